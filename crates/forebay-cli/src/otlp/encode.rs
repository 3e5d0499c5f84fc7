//! Messages of OTLP in protobuf: `opentelemetry/proto/trace/v1/trace.proto`, version 1.

use forebay_semantics::trace_context::TraceContext;

/// Name of the service and of the instrumentation.
const NAME: &str = "forebay";

/// Encoder of one message.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

/// Value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttributeValue<'a> {
    Text(&'a str),
    Number(i64),
}

impl Message {
    /// Adds a field of bytes, a text or a message.
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Adds a field with a variable length.
    pub(super) fn number(&mut self, field: u32, number: u64) {
        self.tag(field, 0);
        self.varint(number);
    }

    /// Adds a field of 8 bytes.
    pub(super) fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Adds a field of 4 bytes.
    pub(super) fn fixed32(&mut self, field: u32, number: u32) {
        self.tag(field, 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Adds a field with a `KeyValue`.
    pub(super) fn attribute(&mut self, field: u32, name: &str, value: AttributeValue<'_>) {
        let mut any = Self::default();
        match value {
            AttributeValue::Text(text) => any.bytes(1, text.as_bytes()),
            // Negative numbers have ten bytes (two's complement).
            AttributeValue::Number(number) => any.number(3, number.cast_unsigned()),
        }
        let mut pair = Self::default();
        pair.bytes(1, name.as_bytes());
        pair.bytes(2, &any.0);
        self.bytes(field, &pair.0);
    }

    /// Adds a field with an `Event` at this time in nanoseconds since 1970.
    pub(super) fn event(
        &mut self,
        field: u32,
        at: u64,
        name: &str,
        attributes: &[(&str, AttributeValue<'_>)],
    ) {
        let mut event = Self::default();
        event.fixed64(1, at);
        event.bytes(2, name.as_bytes());
        for (name, value) in attributes {
            event.attribute(3, name, *value);
        }
        self.bytes(field, &event.0);
    }

    /// Adds a field with a `Link` to a span.
    pub(super) fn link(&mut self, field: u32, to: TraceContext) {
        let mut link = Self::default();
        link.bytes(1, &to.trace.to_be_bytes());
        link.bytes(2, &to.span.to_be_bytes());
        link.fixed32(6, u32::from(to.is_sampled));
        self.bytes(field, &link.0);
    }

    /// Returns the encoded message.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

/// Spans of one `ExportTraceServiceRequest`.
pub(super) struct Batch {
    /// `ScopeSpans`.
    scope: Message,
    spans: usize,
}

impl Batch {
    /// Creates an empty batch.
    pub(super) fn new() -> Self {
        let mut instrumentation = Message::default();
        instrumentation.bytes(1, NAME.as_bytes());
        instrumentation.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
        let mut scope = Message::default();
        scope.bytes(1, &instrumentation.0);
        Self { scope, spans: 0 }
    }

    /// Adds an encoded `Span`.
    pub(super) fn add(&mut self, span: &[u8]) {
        self.scope.bytes(2, span);
        self.spans += 1;
    }

    /// Returns the number of spans.
    pub(super) fn len(&self) -> usize {
        self.spans
    }

    /// Returns the encoded request.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut resource = Message::default();
        resource.attribute(1, "service.name", AttributeValue::Text(NAME));
        let version = AttributeValue::Text(env!("CARGO_PKG_VERSION"));
        resource.attribute(1, "service.version", version);
        let mut spans = Message::default();
        spans.bytes(1, &resource.0);
        spans.bytes(2, &self.scope.0);
        let mut request = Message::default();
        request.bytes(1, &spans.0);
        request.finish()
    }
}

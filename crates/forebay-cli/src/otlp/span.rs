//! Spans as messages of OTLP, with the names of the semantic conventions for HTTP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_http::{LoadSpan, RequestSpan, TierEvent};
use forebay_semantics::trace_context::TraceContext;

use super::encode::AttributeValue::{Number, Text};
use super::encode::{AttributeValue, Message};
use crate::log::access::Redaction;

/// Kind of a span: request from a client.
const SERVER: u64 = 2;

/// Kind of a span: request to a server.
const CLIENT: u64 = 3;

/// Status of a failed span.
const FAILED: u64 = 2;

/// Name of the event of a lookup in a lower tier.
const TIER_EVENT: &str = "forebay.tier";

/// Methods with a name of their own (RFC 9110, RFC 5789); others are `HTTP`.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Fields of `Span`.
mod field {
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const PARENT: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const KIND: u32 = 6;
    pub(super) const START: u32 = 7;
    pub(super) const END: u32 = 8;
    pub(super) const ATTRIBUTE: u32 = 9;
    pub(super) const EVENT: u32 = 11;
    pub(super) const LINK: u32 = 13;
    pub(super) const STATUS: u32 = 15;
    pub(super) const FLAGS: u32 = 16;
}

/// `Span` under construction.
struct SpanMessage(Message);

impl SpanMessage {
    fn new(context: TraceContext, parent: Option<u64>) -> Self {
        let mut message = Message::default();
        message.bytes(field::TRACE_ID, &context.trace.to_be_bytes());
        message.bytes(field::SPAN_ID, &context.span.to_be_bytes());
        if let Some(parent) = parent {
            message.bytes(field::PARENT, &parent.to_be_bytes());
        }
        message.fixed32(field::FLAGS, u32::from(context.is_sampled));
        Self(message)
    }

    fn name(&mut self, name: &str, kind: u64) {
        self.0.bytes(field::NAME, name.as_bytes());
        self.0.number(field::KIND, kind);
    }

    fn times(&mut self, begun: SystemTime, took: Duration) {
        let start = nanoseconds(begun);
        self.0.fixed64(field::START, start);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.fixed64(field::END, start.saturating_add(took));
    }

    /// Adds an event for each lookup in a lower tier.
    fn add_tiers(&mut self, tiers: &[TierEvent]) {
        for TierEvent { at, call } in tiers {
            let took = i64::try_from(call.took.as_micros()).unwrap_or(i64::MAX);
            let attributes = [
                ("forebay.tier", Text(call.tier)),
                ("forebay.tier.operation", Text(call.op)),
                ("forebay.tier.result", Text(call.result)),
                ("forebay.tier.duration_us", Number(took)),
            ];
            self.0.event(field::EVENT, nanoseconds(*at), TIER_EVENT, &attributes);
        }
    }

    fn add(&mut self, name: &str, value: AttributeValue<'_>) {
        self.0.attribute(field::ATTRIBUTE, name, value);
    }

    fn add_text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, Text(value));
        }
    }

    /// Adds a target as path and query, redacted.
    fn add_target(&mut self, target: &str, redaction: &Redaction) {
        let target = redaction.target(target);
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*target, None),
        };
        self.add("url.path", Text(path));
        self.add_text("url.query", query);
    }

    /// Adds the status code, and the cause of a failure.
    fn add_result(&mut self, status: Option<u16>, error: Option<&str>) {
        if let Some(status) = status {
            self.add("http.response.status_code", Number(status.into()));
        }
        if let Some(error) = error {
            self.add("error.type", Text(error));
            let mut failed = Message::default();
            failed.number(3, FAILED);
            self.0.bytes(field::STATUS, &failed.finish());
        }
    }

    fn finish(mut self, link: Option<TraceContext>) -> Vec<u8> {
        if let Some(link) = link {
            self.0.link(field::LINK, link);
        }
        self.0.finish()
    }
}

/// Returns the nanoseconds since 1970.
fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the span of a request.
pub(super) fn of_request(span: &RequestSpan<'_>, redaction: &Redaction) -> Vec<u8> {
    let (entry, request) = (span.entry, span.entry.request);
    let mut message = SpanMessage::new(span.context, span.parent);
    let method = known(&request.method);
    message.name(&format!("{method} {}", entry.site), SERVER);
    message.times(span.begun, entry.total);
    message.add_method(method, &request.method);
    message.add("url.scheme", Text(request.scheme.as_str()));
    message.add_text("server.address", Some(request.host()).filter(|host| !host.is_empty()));
    message.add_target(request.target(), redaction);
    message.add_text("network.protocol.version", request.protocol.strip_prefix("HTTP/"));
    let client = redaction.address(request.client).map(|client| client.to_string());
    message.add_text("client.address", client.as_deref());
    message.add_text("user_agent.original", request.user_agent());
    message.add("forebay.site", Text(entry.site));
    message.add("forebay.cache", Text(entry.cache.label()));
    message.add_text("forebay.why", entry.why);
    message.add_text("forebay.tier", entry.tier());
    if let Some(age) = request.outcome.age {
        message.add("forebay.age", Number(i64::try_from(age).unwrap_or(i64::MAX)));
    }
    message.add("forebay.request_id", Text(&request.id.to_string()));
    message.add("http.response.body.size", Number(i64::try_from(entry.bytes).unwrap_or(i64::MAX)));
    let status = entry.status.to_string();
    message.add_tiers(span.tiers);
    let error = entry.end.label().or_else(|| (entry.status >= 500).then_some(&*status));
    message.add_result(Some(entry.status), error);
    message.finish(span.link)
}

/// Returns the span of a load.
pub(super) fn of_load(span: &LoadSpan, redaction: &Redaction) -> Vec<u8> {
    let exchange = &span.exchange;
    let mut message = SpanMessage::new(span.context, span.parent);
    let method = known(exchange.method.as_str());
    message.name(method, CLIENT);
    message.times(exchange.begun, exchange.took);
    message.add_method(method, exchange.method.as_str());
    message.add("server.address", Text(&exchange.authority));
    message.add_target(&exchange.target, redaction);
    message.add("forebay.site", Text(&exchange.site));
    message.add_tiers(&span.tiers);
    let status = exchange.status.map(|status| status.to_string());
    let error = exchange.error.or_else(|| status.as_deref().filter(|status| *status >= "400"));
    message.add_result(exchange.status, error);
    message.finish(span.link)
}

impl SpanMessage {
    fn add_method(&mut self, known: &str, method: &str) {
        self.add("http.request.method", Text(if known == method { known } else { "_OTHER" }));
    }
}

/// Returns the name of a method in names of spans.
fn known(method: &str) -> &'static str {
    METHODS.into_iter().find(|known| *known == method).unwrap_or("HTTP")
}

//! Requests without a body, as bytes of HTTP/1.1.

use forebay_semantics::FieldSink;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request};
use http_body::Body;

/// Initial size of the buffer for a request head in bytes. Most heads fit.
const HEAD_USUAL: usize = 1 << 10;

/// GET or HEAD without a body, as bytes of HTTP/1.1.
pub(crate) struct EncodedRequest {
    head: Vec<u8>,
    is_head: bool,
}

/// Head of a GET or HEAD that is being encoded.
pub(crate) struct HeadWriter(EncodedRequest);

impl EncodedRequest {
    /// Encodes a request; `None` if hyper must send it.
    pub(super) fn of<B: Body>(request: &Request<B>) -> Option<Self> {
        let method = request.method();
        if !matches!(*method, Method::GET | Method::HEAD) || !request.body().is_end_stream() {
            return None;
        }
        let mut writer = HeadWriter::begin(method, request.uri().path_and_query()?);
        for (name, value) in request.headers() {
            if [CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE].contains(name) {
                return None;
            }
            writer.add(name, value);
        }
        Some(writer.end())
    }

    /// Returns the bytes of the head.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.head
    }

    /// Returns `true` for a HEAD: the response has no body, whatever its fields say.
    pub(super) const fn is_head(&self) -> bool {
        self.is_head
    }
}

impl HeadWriter {
    /// Begins a GET.
    pub(crate) fn get(target: &PathAndQuery) -> Self {
        Self::begin(&Method::GET, target)
    }

    fn begin(method: &Method, target: &PathAndQuery) -> Self {
        let mut head = Vec::with_capacity(HEAD_USUAL);
        for part in [method.as_str(), " ", target.as_str(), " HTTP/1.1\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        Self(EncodedRequest { head, is_head: method == Method::HEAD })
    }

    /// Ends the head. The caller must not have added `Connection`, `Content-Length`, `Expect`,
    /// `Transfer-Encoding` or `Upgrade`.
    pub(crate) fn end(self) -> EncodedRequest {
        let mut encoded = self.0;
        encoded.head.extend_from_slice(b"\r\n");
        encoded
    }

    fn write(&mut self, name: &HeaderName, value: &[u8]) {
        for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
            self.0.head.extend_from_slice(part);
        }
    }
}

impl FieldSink for HeadWriter {
    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.write(name, value.as_bytes());
    }

    fn add_text(&mut self, name: &HeaderName, value: &str) {
        // RFC 9110 section 5.5: a line break would begin another field.
        if !value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            self.write(name, value.as_bytes());
        }
    }
}

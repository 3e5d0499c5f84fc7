//! Encoder of HTTP/1.1 heads.

use forebay_semantics::FieldSink;
use http::header::HeaderName;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode};

/// Initial size of the buffer for a head in bytes. Most heads fit.
const HEAD_USUAL: usize = 1 << 10;

/// Encoder of one head.
pub(crate) struct HeadWriter(Vec<u8>);

impl HeadWriter {
    /// Begins the head of a request.
    pub(crate) fn request(method: &Method, target: &PathAndQuery) -> Self {
        Self::begin([method.as_str(), " ", target.as_str(), " HTTP/1.1\r\n"])
    }

    /// Begins the head of a response, with the usual reason phrase.
    pub(crate) fn response(status: StatusCode) -> Self {
        let reason = status.canonical_reason().unwrap_or_default();
        Self::begin(["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"])
    }

    fn begin<const N: usize>(parts: [&str; N]) -> Self {
        let mut head = Vec::with_capacity(HEAD_USUAL);
        parts.iter().for_each(|part| head.extend_from_slice(part.as_bytes()));
        Self(head)
    }

    /// Ends the head, and returns its bytes.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\r\n");
        self.0
    }
}

impl FieldSink for HeadWriter {
    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.add_line(name.as_str().as_bytes(), value.as_bytes());
    }

    fn add_text(&mut self, name: &HeaderName, value: &str) {
        // RFC 9110 section 5.5: a line break would begin another field.
        if !value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            self.add_line(name.as_str().as_bytes(), value.as_bytes());
        }
    }

    fn add_line(&mut self, name: &[u8], value: &[u8]) {
        let head = &mut self.0;
        // Not in a loop: the compiler copies two bytes without a call.
        head.extend_from_slice(name);
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
}

//! Requests without a body, as bytes of HTTP/1.1.

use forebay_semantics::FieldSink as _;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request};
use http_body::Body;

use crate::head_writer::HeadWriter;

/// GET or HEAD without a body, as bytes of HTTP/1.1.
pub(crate) struct EncodedRequest {
    head: Vec<u8>,
    is_head: bool,
}

impl EncodedRequest {
    /// Returns the request with this head of a GET. It must not have `Connection`, `Content-Length`,
    /// `Expect`, `Transfer-Encoding` or `Upgrade`.
    pub(crate) fn get(head: HeadWriter) -> Self {
        Self { head: head.end(), is_head: false }
    }

    /// Encodes a request; `None` if hyper must send it.
    pub(super) fn of<B: Body>(request: &Request<B>) -> Option<Self> {
        let method = request.method();
        if !matches!(*method, Method::GET | Method::HEAD) || !request.body().is_end_stream() {
            return None;
        }
        let mut head = HeadWriter::request(method, request.uri().path_and_query()?);
        for (name, value) in request.headers() {
            if [CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE].contains(name) {
                return None;
            }
            head.add(name, value);
        }
        Some(Self { head: head.end(), is_head: method == Method::HEAD })
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

//! Requests that the client sends.

use bytes::Bytes;

use crate::fields::Fields;

/// Default value of `Host`.
const HOST: &str = "test.example";

/// Request. `Host` is added unless the request has one or uses [`without_host`](Self::without_host).
/// With a body, `Content-Length` is added unless a field defines the framing.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    fields: Fields,
    body: Bytes,
    chunked: bool,
    host: bool,
}

impl Request {
    /// Request with any method and target.
    pub fn new(method: &str, target: &str) -> Self {
        let (method, target) = (method.to_owned(), target.to_owned());
        let (fields, body) = (Fields::default(), Bytes::new());
        Self { method, target, fields, body, chunked: false, host: true }
    }

    /// GET request.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Adds a field.
    pub fn field(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields.push(name, value);
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the body as one chunk instead of with `Content-Length`.
    pub fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// Suppresses the default `Host` field.
    pub fn without_host(mut self) -> Self {
        self.host = false;
        self
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Bytes of the request as sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if self.host && !self.fields.contains("host") {
            bytes.extend_from_slice(format!("Host: {HOST}\r\n").as_bytes());
        }
        self.fields.write_to(&mut bytes);
        let framed =
            self.fields.contains("content-length") || self.fields.contains("transfer-encoding");
        if self.chunked {
            bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if !self.body.is_empty() && !framed {
            let length = format!("Content-Length: {}\r\n", self.body.len());
            bytes.extend_from_slice(length.as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        self.write_body(&mut bytes);
        bytes
    }

    fn write_body(&self, bytes: &mut Vec<u8>) {
        if !self.chunked {
            return bytes.extend_from_slice(&self.body);
        }
        if !self.body.is_empty() {
            bytes.extend_from_slice(format!("{:x}\r\n", self.body.len()).as_bytes());
            bytes.extend_from_slice(&self.body);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
}

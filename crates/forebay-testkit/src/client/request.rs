//! What the client sends.

use bytes::Bytes;

use crate::fields::Fields;

/// The `Host` of a request that names none.
const HOST: &str = "test.example";

/// One request. It gets a `Host` (unless it has one or [`without_host`](Self::without_host)) and,
/// with a body, a `Content-Length` (unless it has framing of its own).
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
    /// A request with any method and any target.
    pub fn new(method: &str, target: &str) -> Self {
        let (method, target) = (method.to_owned(), target.to_owned());
        let (fields, body) = (Fields::default(), Bytes::new());
        Self { method, target, fields, body, chunked: false, host: true }
    }

    /// A GET.
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

    /// Sends the body as one chunk, instead of by its length.
    pub fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// Sends no `Host` field of our own making.
    pub fn without_host(mut self) -> Self {
        self.host = false;
        self
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Changes the value of every field.
    pub(crate) fn map_values(mut self, change: impl Fn(&str) -> String) -> Self {
        self.fields.map_values(change);
        self
    }

    /// The request on the wire.
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

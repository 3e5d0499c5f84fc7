//! Responses as the client received them.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;

use crate::fields::Fields;
use crate::wire::{BodyReader, split_head};

/// One response.
#[derive(Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Status line, unchanged.
    pub status_line: String,
    /// Header fields in order.
    pub fields: Fields,
    /// Head byte for byte, with its empty line.
    pub raw_head: Bytes,
    /// Interim responses before this one.
    pub interim: Vec<Interim>,
    /// Time from the request to the head. A response that was read late counts as received when its
    /// bytes were read from the socket.
    pub head_after: Duration,
    pub(super) body: BodyReader,
    asked_at: Instant,
}

/// Interim response.
#[derive(Clone, Debug)]
pub struct Interim {
    /// Status code, below 200.
    pub status: u16,
    /// Header fields in order.
    pub fields: Fields,
}

impl Reply {
    pub(super) fn new(
        head: Head,
        interim: Vec<Interim>,
        body: BodyReader,
        asked_at: Instant,
    ) -> Self {
        let Head { status, status_line, fields, raw_head, at } = head;
        let head_after = at.saturating_duration_since(asked_at);
        Self { status, status_line, fields, raw_head, interim, head_after, body, asked_at }
    }

    /// Value of the first field with a name, in any case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.first(name)
    }

    /// Body as far as it was read, at most [`BODY_KEPT`](super::BODY_KEPT) bytes.
    pub fn body(&self) -> &[u8] {
        self.body.kept()
    }

    /// Body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.body())
    }

    /// Number of bytes of the body received so far.
    pub fn body_length(&self) -> u64 {
        self.body.length
    }

    /// Trailer fields of a chunked body.
    pub fn trailers(&self) -> &Fields {
        &self.body.trailers
    }

    /// Returns whether the body is complete according to its framing.
    pub fn ended_cleanly(&self) -> bool {
        self.body.ended_cleanly()
    }

    /// Error that truncated the body, if any.
    pub fn broke(&self) -> Option<&str> {
        self.body.broke()
    }

    /// Time from the request to the first byte of the body, if there was any.
    pub fn body_after(&self) -> Option<Duration> {
        self.body.first_at.map(|at| at.saturating_duration_since(self.asked_at))
    }

    /// Time from the request to the end of the body, complete or truncated; `None` before it is
    /// read.
    pub fn end_after(&self) -> Option<Duration> {
        self.body.end_at.map(|at| at.saturating_duration_since(self.asked_at))
    }
}

/// Head of a response.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) status_line: String,
    pub(super) fields: Fields,
    pub(super) raw_head: Bytes,
    at: Instant,
}

impl Head {
    pub(super) fn parse(raw_head: Bytes, at: Option<Instant>) -> anyhow::Result<Self> {
        let (status_line, fields) = split_head(&raw_head);
        let mut words = status_line.split(' ');
        let versioned = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
        let status = words.next().filter(|word| versioned && word.len() == 3);
        let status = status.and_then(|word| word.parse().ok());
        let status = status.with_context(|| format!("{status_line:?} is not a status line"))?;
        let at = at.unwrap_or_else(Instant::now);
        Ok(Self { status, status_line, fields, raw_head, at })
    }

    /// Returns whether the status is interim. 101 is not: it is the last HTTP message on its
    /// connection (RFC 9110, section 15.2).
    pub(super) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

//! Answers of the origin.

use std::time::Duration;

use bytes::Bytes;

use crate::fields::Fields;
use crate::gate::Gate;

/// Framing of an answer's body (RFC 9112, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding: chunked`, one chunk per piece.
    Chunked,
    /// No framing field; the end of the connection ends the body.
    UntilClose,
    /// Only the given fields; the body is sent unchanged and the connection stays open.
    AsGiven,
}

/// End of a truncated answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Orderly close of the connection.
    Close,
    /// Reset of the connection.
    Reset,
}

/// Answer, built step by step. Methods that change the message have no effect on the answers `raw`,
/// `hang`, `close` and `reset`.
///
/// ```
/// use std::time::Duration;
/// use forebay_testkit::origin::{Answer, Framing};
///
/// let answer = Answer::ok("hello")
///     .field("Cache-Control", "max-age=60")
///     .framing(Framing::Chunked)
///     .drip(5, Duration::from_millis(10));
/// ```
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) before: Vec<Before>,
    pub(super) kind: Kind,
}

/// Action before the first byte of an answer.
#[derive(Clone, Debug)]
pub(super) enum Before {
    Delay(Duration),
    DelayExactly(Duration),
    Wait(Gate),
    Arrive(Gate),
    Interim(u16, Fields),
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Message(Box<Message>),
    Raw(Bytes),
    Hang,
    End(Cut),
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) version: &'static str,
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: Bytes,
    pub(super) trailers: Fields,
    pub(super) framing: Framing,
    pub(super) drip: Option<(usize, Duration)>,
    pub(super) holds: Vec<(usize, Gate)>,
    pub(super) cut: Option<(usize, Cut)>,
}

impl Answer {
    /// Answer with status 200 and a body.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::status(200).body(body)
    }

    /// Answer with a status and no body.
    pub fn status(status: u16) -> Self {
        let (fields, trailers, body) = (Fields::default(), Fields::default(), Bytes::new());
        let message = Message {
            version: "HTTP/1.1",
            status,
            fields,
            body,
            trailers,
            framing: Framing::Length,
            drip: None,
            holds: Vec::new(),
            cut: None,
        };
        Self::of(Kind::Message(Box::new(message)))
    }

    /// Raw bytes in place of an HTTP message, followed by a close.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::of(Kind::Raw(bytes.into()))
    }

    /// No answer until the client closes or the origin is dropped.
    pub fn hang() -> Self {
        Self::of(Kind::Hang)
    }

    /// Close without an answer.
    pub fn close() -> Self {
        Self::of(Kind::End(Cut::Close))
    }

    /// Reset without an answer.
    pub fn reset() -> Self {
        Self::of(Kind::End(Cut::Reset))
    }

    /// Adds a field. Duplicates are kept; `Connection: close` closes the connection afterwards.
    pub fn field(self, name: &str, value: impl Into<String>) -> Self {
        self.with(|message| message.fields.push(name, value))
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        self.with(|message| message.body = body.into())
    }

    /// Sets the framing; the default is `Content-Length`.
    pub fn framing(self, framing: Framing) -> Self {
        self.with(|message| message.framing = framing)
    }

    /// Adds a trailer field and sets chunked framing.
    pub fn trailer(self, name: &str, value: impl Into<String>) -> Self {
        self.with(|message| {
            message.framing = Framing::Chunked;
            message.trailers.push(name, value);
        })
    }

    /// Sets the version to HTTP/1.0, and closes afterwards.
    pub fn http_1_0(self) -> Self {
        self.with(|message| message.version = "HTTP/1.0")
    }

    /// Sends the body in `pieces` with a pause between them.
    pub fn drip(self, pieces: usize, pause: Duration) -> Self {
        self.with(|message| message.drip = Some((pieces, pause)))
    }

    /// Sends `offset` bytes of the body, and the rest after the gate opens. With the length of the
    /// body as the offset, a chunked answer withholds only its end.
    pub fn hold_at(self, offset: usize, gate: &Gate) -> Self {
        self.with(|message| message.holds.push((offset, gate.clone())))
    }

    /// Ends the connection after `after` bytes of the body, although the framing promises more.
    pub fn truncate(self, after: usize, cut: Cut) -> Self {
        self.with(|message| message.cut = Some((after, cut)))
    }

    /// Delays the head.
    pub fn delay(self, delay: Duration) -> Self {
        self.first(Before::Delay(delay))
    }

    /// Delays the head with a precision of 0.1 ms, for measurements.
    pub fn delay_exactly(self, delay: Duration) -> Self {
        self.first(Before::DelayExactly(delay))
    }

    /// Waits at a gate before the head.
    pub fn wait(self, gate: &Gate) -> Self {
        self.first(Before::Wait(gate.clone()))
    }

    /// Arrives at a gate before the head.
    pub fn arrive(self, gate: &Gate) -> Self {
        self.first(Before::Arrive(gate.clone()))
    }

    /// Sends an interim response, such as 103, before the head.
    pub fn interim(self, status: u16, fields: &[(&str, &str)]) -> Self {
        self.first(Before::Interim(status, fields.iter().copied().collect()))
    }

    /// Changes the value of every field, interim responses included.
    pub(crate) fn map_values(mut self, change: impl Fn(&str) -> String) -> Self {
        for before in &mut self.before {
            if let Before::Interim(_, fields) = before {
                fields.map_values(&change);
            }
        }
        self.with(|message| message.fields.map_values(&change))
    }

    /// Adds a field to the last interim response.
    pub(crate) fn interim_field(mut self, name: &str, value: &str) -> Self {
        if let Some(Before::Interim(_, fields)) = self.before.last_mut() {
            fields.push(name, value);
        }
        self
    }

    /// Replaces the answer and keeps the actions before it.
    pub(crate) fn become_answer(self, other: Self) -> Self {
        Self { before: self.before, kind: other.kind }
    }

    /// Changes the message. Answers that are not messages (raw, hang, close) stay unchanged.
    fn with(mut self, change: impl FnOnce(&mut Message)) -> Self {
        if let Kind::Message(message) = &mut self.kind {
            change(message);
        }
        self
    }

    fn first(mut self, before: Before) -> Self {
        self.before.push(before);
        self
    }

    fn of(kind: Kind) -> Self {
        Self { before: Vec::new(), kind }
    }
}

impl Message {
    /// Bytes of the head.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.version, self.status, reason(self.status));
        match self.framing {
            Framing::Length if !matches!(self.status, 100..=199 | 204 | 304) => {
                head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
            }
            Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::Length | Framing::UntilClose | Framing::AsGiven => {}
        }
        let mut head = head.into_bytes();
        self.fields.write_to(&mut head);
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Reason phrase of registered statuses; others have none (RFC 9112, section 4).
pub(super) fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or_default()
}

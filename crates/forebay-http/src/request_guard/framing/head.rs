//! Request head: the request line and the fields, within [`HEAD_MAX`] bytes.

use super::Fault;
use super::fields::{Fields, Section};
use super::framing_error::FramingError;
use super::request_line::RequestLine;

/// Maximum number of bytes of one head, including empty lines before it: several times what
/// browsers send; larger heads get 431. hyper is configured with the same limit.
pub const HEAD_MAX: usize = 64 * 1024;

/// Framing of a request body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    /// No body; the response decides whether HTTP continues after the request (RFC 9110, 7.8).
    Switch,
    Sized(u64),
    Chunked,
}

#[derive(Debug)]
pub(super) struct Head {
    size: usize,
    minor: u8,
    part: Part,
}

#[derive(Debug)]
enum Part {
    Line(RequestLine),
    Fields(Fields),
}

impl Head {
    pub(super) fn new() -> Self {
        Self { size: 0, minor: 1, part: Part::Line(RequestLine::new()) }
    }

    /// Returns `true` if no byte of the head has arrived.
    pub(super) fn is_new(&self) -> bool {
        self.size == 0
    }

    /// Returns `true` if the request line has the version HTTP/1.0.
    pub(super) fn is_http_1_0(&self) -> bool {
        self.minor == 0
    }

    /// Consumes bytes. Once the head is complete, returns their number and the framing of the body.
    ///
    /// A head that is incomplete at its last allowed byte is rejected at that byte.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<(usize, Framing)>, Fault> {
        let window = &piece[..piece.len().min(HEAD_MAX.saturating_sub(self.size))];
        let ended = self.feed_parts(window)?;
        self.size += window.len();
        if ended.is_none() && self.size >= HEAD_MAX {
            let at = window.len().saturating_sub(1);
            return Err(Fault { at, why: FramingError::HeadTooLarge });
        }
        Ok(ended)
    }

    fn feed_parts(&mut self, window: &[u8]) -> Result<Option<(usize, Framing)>, Fault> {
        let mut at = 0;
        if let Part::Line(line) = &mut self.part {
            let Some((used, minor)) = line.feed(window)? else { return Ok(None) };
            self.minor = minor;
            self.part = Part::Fields(Fields::new(Section::Head { minor }));
            at = used;
        }
        let Part::Fields(fields) = &mut self.part else { return Ok(None) };
        let ended = fields.feed(&window[at..]).map_err(|fault| fault.beyond(at))?;
        Ok(ended.map(|used| (at + used, fields.framing())))
    }
}

//! One request head: request line, then fields, within its bound.

use super::Fault;
use super::fields::{Fields, Section};
use super::refusal::Refusal;
use super::request_line::RequestLine;

/// Most bytes of one head, empty lines before it included: several times what browsers send, and
/// what a connection may hold while its head comes in pieces. hyper is given the same bound.
pub const HEAD_MAX: usize = 64 * 1024;

/// Where the body of a request ends (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    /// No body, and whether HTTP goes on behind it is for the answer to say (RFC 9110, 7.8).
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

    /// Whether no byte of it has come.
    pub(super) fn is_new(&self) -> bool {
        self.size == 0
    }

    /// Returns `true` if its request line says HTTP/1.0.
    pub(super) fn is_old(&self) -> bool {
        self.minor == 0
    }

    /// Takes bytes; once the head is complete, tells how many and what body follows.
    ///
    /// A head that is not complete with its last byte allowed is refused at that byte: what comes
    /// next cannot make it better.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<(usize, Framing)>, Fault> {
        let window = &piece[..piece.len().min(HEAD_MAX.saturating_sub(self.size))];
        let ended = self.walk(window)?;
        self.size += window.len();
        if ended.is_none() && self.size >= HEAD_MAX {
            let at = window.len().saturating_sub(1);
            return Err(Fault { at, why: Refusal::HeadTooLarge });
        }
        Ok(ended)
    }

    fn walk(&mut self, window: &[u8]) -> Result<Option<(usize, Framing)>, Fault> {
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

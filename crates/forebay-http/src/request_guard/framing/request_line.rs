//! Request line, with the empty lines that may precede it.

use http::Uri;

use super::Fault;
use super::framing_error::FramingError;
use super::token::{is_plain_target, is_token};
use crate::request_guard::TARGET_MAX;

/// Maximum number of empty lines before a request line. RFC 9112, 2.2 requires support for at least
/// one.
const BLANK_LINES_MAX: u8 = 4;

/// Start of the version in a request line; the minor version follows.
const VERSION: &[u8] = b"HTTP/1.";

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112, 3): one space each, no tab.
#[derive(Debug)]
pub(super) struct RequestLine {
    position: Position,
    blank_lines: u8,
    minor: u8,
    target: Target,
}

/// State of the request target while it is read.
#[derive(Debug, Default)]
struct Target {
    size: usize,
    /// Bytes that a URI parser must validate once the target is complete: all of a target that is
    /// not a path, or a path from its first unusual byte.
    odd: Vec<u8>,
}

/// Element of the request line to which the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum Position {
    Start,
    BlankLf,
    Method,
    TargetStart,
    Path,
    Query,
    OddTarget,
    Version(usize),
    Minor,
    Cr,
    Lf,
    Over,
}

impl RequestLine {
    pub(super) fn new() -> Self {
        Self { position: Position::Start, blank_lines: 0, minor: 0, target: Target::default() }
    }

    /// Consumes bytes. Once the line is complete, returns their number and the minor version.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<(usize, u8)>, Fault> {
        let mut at = 0;
        loop {
            at += self.skip_run(&piece[at..]);
            let Some(&byte) = piece.get(at) else { return Ok(None) };
            self.position = self.after(byte).map_err(|why| Fault { at, why })?;
            at += 1;
            if matches!(self.position, Position::Over) {
                return Ok(Some((at, self.minor)));
            }
        }
    }

    /// Skips bytes that cannot end the current element, and returns their number.
    fn skip_run(&mut self, piece: &[u8]) -> usize {
        match self.position {
            Position::Method => {
                piece.iter().position(|&byte| !is_token(byte)).unwrap_or(piece.len())
            }
            Position::Path | Position::Query => self.target.skip_run(piece),
            Position::Version(0) if piece.starts_with(VERSION) => {
                self.position = Position::Minor;
                VERSION.len()
            }
            _ => 0,
        }
    }

    fn after(&mut self, byte: u8) -> Result<Position, FramingError> {
        Ok(match (self.position, byte) {
            (Position::Start, b'\r') if self.blank_lines < BLANK_LINES_MAX => Position::BlankLf,
            (Position::BlankLf, b'\n') => {
                self.blank_lines += 1;
                Position::Start
            }
            (Position::Start | Position::Method, _) if is_token(byte) => Position::Method,
            (Position::Method, b' ') => Position::TargetStart,
            (Position::TargetStart | Position::Path | Position::Query | Position::OddTarget, _)
                if is_target(byte) =>
            {
                self.target.take(byte, self.position)?
            }
            (Position::Path | Position::Query | Position::OddTarget, b' ') => {
                self.target.validate()?;
                Position::Version(0)
            }
            (Position::Version(seen), _) if VERSION.get(seen) == Some(&byte) => {
                if seen + 1 == VERSION.len() {
                    Position::Minor
                } else {
                    Position::Version(seen + 1)
                }
            }
            (Position::Minor, b'0' | b'1') => {
                self.minor = byte - b'0';
                Position::Cr
            }
            (Position::Cr, b'\r') => Position::Lf,
            (Position::Lf, b'\n') => Position::Over,
            (Position::Lf | Position::BlankLf, _) => return Err(FramingError::LineEnding),
            _ => return Err(FramingError::of_byte(byte, FramingError::RequestLine)),
        })
    }
}

impl Target {
    /// Skips bytes that are valid in both a path and a query, and returns their number.
    fn skip_run(&mut self, piece: &[u8]) -> usize {
        let window = &piece[..piece.len().min(TARGET_MAX.saturating_sub(self.size))];
        let stop = window.iter().position(|&byte| !is_plain_target(byte));
        let length = stop.unwrap_or(window.len());
        self.size += length;
        length
    }

    /// Consumes one byte that [`skip_run`](Self::skip_run) did not skip.
    fn take(&mut self, byte: u8, position: Position) -> Result<Position, FramingError> {
        if self.size == TARGET_MAX {
            return Err(FramingError::TargetTooLong);
        }
        self.size += 1;
        let before: &[u8] = match position {
            Position::TargetStart if byte == b'/' => return Ok(Position::Path),
            Position::Path | Position::Query if byte == b'?' => return Ok(Position::Query),
            Position::Path | Position::Query if is_plain_target(byte) => return Ok(position),
            // The bytes before this one are valid in any case, so a placeholder stands for them.
            Position::Path => b"/",
            Position::Query => b"/?",
            _ => b"",
        };
        self.odd.extend_from_slice(before);
        self.odd.push(byte);
        Ok(Position::OddTarget)
    }

    /// Rejects a target that hyper would reject, so that the service writes the response.
    fn validate(&self) -> Result<(), FramingError> {
        let taken = self.odd.is_empty() || Uri::try_from(self.odd.as_slice()).is_ok();
        if taken { Ok(()) } else { Err(FramingError::RequestLine) }
    }
}

/// Returns `true` if the byte does not end a target. A fragment is never sent (RFC 9112, 3.2): a
/// party that removes it would see another target than one that does not.
fn is_target(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | b'#' | 0x7F)
}

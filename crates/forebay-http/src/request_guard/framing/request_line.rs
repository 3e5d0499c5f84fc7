//! The request line, and the empty lines that may come before it.

use http::Uri;

use super::Fault;
use super::refusal::Refusal;
use super::token::{is_plain_target, is_token};
use crate::request_guard::TARGET_MAX;

/// Empty lines that are skipped before a request line: RFC 9112, 2.2 asks for at least one.
const BLANK_LINES_MAX: u8 = 4;

/// What the last part of a request line begins with; the minor version follows.
const VERSION: &[u8] = b"HTTP/1.";

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112, 3): one space each, no tab.
#[derive(Debug)]
pub(super) struct RequestLine {
    spot: Spot,
    blank_lines: u8,
    minor: u8,
    target: Target,
}

/// What has to be known of a target.
#[derive(Debug, Default)]
struct Target {
    size: usize,
    /// What only a parser of targets can judge, kept for the end: one that is no path, or what
    /// comes from the first unusual byte of a path on.
    odd: Vec<u8>,
}

/// What the next byte must be a part of.
#[derive(Clone, Copy, Debug)]
enum Spot {
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
        Self { spot: Spot::Start, blank_lines: 0, minor: 0, target: Target::default() }
    }

    /// Takes bytes; once the line is complete, tells how many and the minor version.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<(usize, u8)>, Fault> {
        let mut at = 0;
        loop {
            at += self.run(&piece[at..]);
            let Some(&byte) = piece.get(at) else { return Ok(None) };
            self.spot = self.after(byte).map_err(|why| Fault { at, why })?;
            at += 1;
            if matches!(self.spot, Spot::Over) {
                return Ok(Some((at, self.minor)));
            }
        }
    }

    /// Passes over the bytes that are a part of what is read anyway.
    fn run(&mut self, piece: &[u8]) -> usize {
        match self.spot {
            Spot::Method => piece.iter().position(|&byte| !is_token(byte)).unwrap_or(piece.len()),
            Spot::Path | Spot::Query => self.target.run(piece),
            Spot::Version(0) if piece.starts_with(VERSION) => {
                self.spot = Spot::Minor;
                VERSION.len()
            }
            _ => 0,
        }
    }

    fn after(&mut self, byte: u8) -> Result<Spot, Refusal> {
        Ok(match (self.spot, byte) {
            (Spot::Start, b'\r') if self.blank_lines < BLANK_LINES_MAX => Spot::BlankLf,
            (Spot::BlankLf, b'\n') => {
                self.blank_lines += 1;
                Spot::Start
            }
            (Spot::Start | Spot::Method, _) if is_token(byte) => Spot::Method,
            (Spot::Method, b' ') => Spot::TargetStart,
            (Spot::TargetStart | Spot::Path | Spot::Query | Spot::OddTarget, _)
                if is_target(byte) =>
            {
                self.target.take(byte, self.spot)?
            }
            (Spot::Path | Spot::Query | Spot::OddTarget, b' ') => {
                self.target.judge()?;
                Spot::Version(0)
            }
            (Spot::Version(seen), _) if VERSION.get(seen) == Some(&byte) => {
                if seen + 1 == VERSION.len() { Spot::Minor } else { Spot::Version(seen + 1) }
            }
            (Spot::Minor, b'0' | b'1') => {
                self.minor = byte - b'0';
                Spot::Cr
            }
            (Spot::Cr, b'\r') => Spot::Lf,
            (Spot::Lf, b'\n') => Spot::Over,
            (Spot::Lf | Spot::BlankLf, _) => return Err(Refusal::LineEnding),
            _ => return Err(Refusal::of_byte(byte, Refusal::RequestLine)),
        })
    }
}

impl Target {
    /// Passes over the bytes of a path or query that may stand in both.
    fn run(&mut self, piece: &[u8]) -> usize {
        let window = &piece[..piece.len().min(TARGET_MAX.saturating_sub(self.size))];
        let stop = window.iter().position(|&byte| !is_plain_target(byte));
        let length = stop.unwrap_or(window.len());
        self.size += length;
        length
    }

    /// Takes one byte that stands in no run.
    fn take(&mut self, byte: u8, spot: Spot) -> Result<Spot, Refusal> {
        if self.size == TARGET_MAX {
            return Err(Refusal::TargetTooLong);
        }
        self.size += 1;
        let before: &[u8] = match spot {
            Spot::TargetStart if byte == b'/' => return Ok(Spot::Path),
            Spot::Path | Spot::Query if byte == b'?' => return Ok(Spot::Query),
            Spot::Path | Spot::Query if is_plain_target(byte) => return Ok(spot),
            // What came before is right, whatever follows.
            Spot::Path => b"/",
            Spot::Query => b"/?",
            _ => b"",
        };
        self.odd.extend_from_slice(before);
        self.odd.push(byte);
        Ok(Spot::OddTarget)
    }

    /// What hyper would not take is refused here, where the answer is ours.
    fn judge(&self) -> Result<(), Refusal> {
        let taken = self.odd.is_empty() || Uri::try_from(self.odd.as_slice()).is_ok();
        if taken { Ok(()) } else { Err(Refusal::RequestLine) }
    }
}

/// What ends no target. A fragment is never sent (RFC 9112, 3.2), and a party that cuts it off
/// would not see the target that another one sees.
fn is_target(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | b'#' | 0x7F)
}

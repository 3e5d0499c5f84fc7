//! The request line, and the empty lines that may come before it.

use super::Fault;
use super::refusal::Refusal;
use super::token::is_token;

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
}

/// What the next byte must be a part of.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Start,
    BlankLf,
    Method,
    TargetStart,
    Target,
    Version(usize),
    Minor,
    Cr,
    Lf,
    Over,
}

impl RequestLine {
    pub(super) fn new() -> Self {
        Self { spot: Spot::Start, blank_lines: 0, minor: 0 }
    }

    /// Takes bytes; once the line is complete, tells how many and the minor version.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<(usize, u8)>, Fault> {
        let mut at = 0;
        loop {
            if matches!(self.spot, Spot::Target) {
                at += run_of_target(&piece[at..]);
            }
            let Some(&byte) = piece.get(at) else { return Ok(None) };
            self.spot = self.after(byte).map_err(|why| Fault { at, why })?;
            at += 1;
            if matches!(self.spot, Spot::Over) {
                return Ok(Some((at, self.minor)));
            }
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
            (Spot::TargetStart | Spot::Target, _) if is_target(byte) => Spot::Target,
            (Spot::Target, b' ') => Spot::Version(0),
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

/// A target is opaque here but for what would end it; a fragment is never sent (RFC 9112, 3.2),
/// and a party that cuts it off would not see the target that another one sees.
fn is_target(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | b'#' | 0x7F)
}

fn run_of_target(piece: &[u8]) -> usize {
    piece.iter().position(|&byte| !is_target(byte)).unwrap_or(piece.len())
}

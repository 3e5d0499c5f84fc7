//! A chunked request body, to the end of its trailers (RFC 9112, 7.1).

use super::Fault;
use super::fields::{Fields, Section};
use super::refusal::Refusal;
use super::token::is_token;
use crate::request_guard::BODY_MAX;

/// Most bytes of chunk extensions and trailers in one body: nobody here uses either, and a body
/// made of them alone would cost work without end.
pub const BODY_OVERHEAD_MAX: usize = 8 * 1024;

/// Most digits of a chunk size, zeros included: as many as 64 bits take.
const SIZE_DIGITS_MAX: u8 = 16;

#[derive(Debug)]
pub(super) struct Chunked {
    spot: Spot,
    digits: u8,
    left: u64,
    /// All chunks that are over.
    total: u64,
    overhead: usize,
    trailers: Fields,
}

/// What the next byte must be a part of.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Size,
    Gap,
    Extension,
    Quoted,
    Escaped,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
}

impl Chunked {
    pub(super) fn new() -> Self {
        let trailers = Fields::new(Section::Trailers);
        Self { spot: Spot::Size, digits: 0, left: 0, total: 0, overhead: 0, trailers }
    }

    /// Takes bytes; tells how many once the body is complete.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            match self.spot {
                Spot::Data => at += self.skip_chunk(piece.len() - at),
                Spot::Trailers => {
                    let ended = self.feed_trailers(&piece[at..]);
                    let ended = ended.map_err(|fault| fault.beyond(at))?;
                    return Ok(ended.map(|used| at + used));
                }
                _ => {
                    self.spot = self.after(byte).map_err(|why| Fault { at, why })?;
                    at += 1;
                }
            }
        }
        Ok(None)
    }

    fn skip_chunk(&mut self, available: usize) -> usize {
        let used = available.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= used as u64;
        if self.left == 0 {
            self.spot = Spot::DataCr;
        }
        used
    }

    fn feed_trailers(&mut self, rest: &[u8]) -> Result<Option<usize>, Fault> {
        let window = &rest[..rest.len().min(BODY_OVERHEAD_MAX.saturating_sub(self.overhead))];
        let ended = self.trailers.feed(window)?;
        if ended.is_none() && window.len() < rest.len() {
            return Err(Fault { at: window.len(), why: Refusal::BodyOverhead });
        }
        self.overhead += window.len();
        Ok(ended)
    }

    fn after(&mut self, byte: u8) -> Result<Spot, Refusal> {
        match (self.spot, byte) {
            (Spot::Size, _) if byte.is_ascii_hexdigit() => self.take_digit(byte),
            (Spot::Size, b'\r') if self.digits > 0 => Ok(Spot::SizeLf),
            (Spot::Size, b';' | b' ' | b'\t') if self.digits > 0 => self.take_extension(byte),
            (Spot::Gap, b';' | b' ' | b'\t') => self.take_extension(byte),
            (Spot::Extension, b'\r') => Ok(Spot::SizeLf),
            (Spot::Extension | Spot::Quoted | Spot::Escaped, _) => self.take_extension(byte),
            (Spot::SizeLf, b'\n') if self.left == 0 => Ok(Spot::Trailers),
            (Spot::SizeLf, b'\n') => {
                self.total += self.left;
                Ok(Spot::Data)
            }
            (Spot::DataCr, b'\r') => Ok(Spot::DataLf),
            (Spot::DataLf, b'\n') => {
                self.digits = 0;
                Ok(Spot::Size)
            }
            (Spot::SizeLf | Spot::DataLf, _) => Err(Refusal::LineEnding),
            _ => Err(Refusal::of_byte(byte, Refusal::Chunk)),
        }
    }

    fn take_digit(&mut self, byte: u8) -> Result<Spot, Refusal> {
        if self.digits == SIZE_DIGITS_MAX {
            return Err(Refusal::Chunk);
        }
        let digit = char::from(byte).to_digit(16).ok_or(Refusal::Chunk)?;
        self.digits += 1;
        self.left = self.left << 4 | u64::from(digit);
        if self.left > BODY_MAX - self.total {
            return Err(Refusal::BodyTooLarge);
        }
        Ok(Spot::Size)
    }

    /// One byte after the size, within the bound on all of them.
    ///
    /// White space is allowed before an extension only (RFC 9112, 7.1.1).
    /// A quoted value must end in its line: where it does not, some parsers take the line break for
    /// a part of the value and others for the end of the size.
    fn take_extension(&mut self, byte: u8) -> Result<Spot, Refusal> {
        if self.overhead == BODY_OVERHEAD_MAX {
            return Err(Refusal::BodyOverhead);
        }
        self.overhead += 1;
        match (self.spot, byte) {
            (Spot::Size | Spot::Gap, b' ' | b'\t') => Ok(Spot::Gap),
            (Spot::Size | Spot::Gap, b';') => Ok(Spot::Extension),
            (Spot::Extension, b'"') => Ok(Spot::Quoted),
            (Spot::Extension, b';' | b'=' | b' ' | b'\t') => Ok(Spot::Extension),
            (Spot::Extension, _) if is_token(byte) => Ok(Spot::Extension),
            (Spot::Quoted, b'"') => Ok(Spot::Extension),
            (Spot::Quoted, b'\\') => Ok(Spot::Escaped),
            (Spot::Quoted | Spot::Escaped, b'\t' | b' '..=b'~' | 0x80..) => Ok(Spot::Quoted),
            _ => Err(Refusal::of_byte(byte, Refusal::Chunk)),
        }
    }
}

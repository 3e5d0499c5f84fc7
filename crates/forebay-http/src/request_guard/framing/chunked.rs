//! Chunked request body, including its trailers (RFC 9112, 7.1).

use super::Fault;
use super::fields::{Fields, Section};
use super::framing_error::FramingError;
use super::token::is_token;
use crate::request_guard::BODY_MAX;

/// Maximum number of bytes of chunk extensions and trailers in one body. forebay uses neither, and
/// a body made of them alone would cost unbounded work.
pub const BODY_OVERHEAD_MAX: usize = 8 * 1024;

/// Maximum number of digits of a chunk size, zeros included: 64 bits take 16.
const SIZE_DIGITS_MAX: u8 = 16;

#[derive(Debug)]
pub(super) struct Chunked {
    position: Position,
    digits: u8,
    left: u64,
    /// Total size of the completed chunks, in bytes.
    total: u64,
    overhead: usize,
    trailers: Fields,
}

/// Element of the chunked body to which the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum Position {
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
        Self { position: Position::Size, digits: 0, left: 0, total: 0, overhead: 0, trailers }
    }

    /// Consumes bytes. Returns their number once the body is complete.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            match self.position {
                Position::Data => at += self.skip_chunk(piece.len() - at),
                Position::Trailers => {
                    let ended = self.feed_trailers(&piece[at..]);
                    let ended = ended.map_err(|fault| fault.beyond(at))?;
                    return Ok(ended.map(|used| at + used));
                }
                _ => {
                    self.position = self.after(byte).map_err(|why| Fault { at, why })?;
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
            self.position = Position::DataCr;
        }
        used
    }

    fn feed_trailers(&mut self, rest: &[u8]) -> Result<Option<usize>, Fault> {
        let window = &rest[..rest.len().min(BODY_OVERHEAD_MAX.saturating_sub(self.overhead))];
        let ended = self.trailers.feed(window)?;
        if ended.is_none() && window.len() < rest.len() {
            return Err(Fault { at: window.len(), why: FramingError::BodyOverhead });
        }
        self.overhead += window.len();
        Ok(ended)
    }

    fn after(&mut self, byte: u8) -> Result<Position, FramingError> {
        match (self.position, byte) {
            (Position::Size, _) if byte.is_ascii_hexdigit() => self.take_digit(byte),
            (Position::Size, b'\r') if self.digits > 0 => Ok(Position::SizeLf),
            (Position::Size, b';' | b' ' | b'\t') if self.digits > 0 => self.take_extension(byte),
            (Position::Gap, b';' | b' ' | b'\t') => self.take_extension(byte),
            (Position::Extension, b'\r') => Ok(Position::SizeLf),
            (Position::Extension | Position::Quoted | Position::Escaped, _) => {
                self.take_extension(byte)
            }
            (Position::SizeLf, b'\n') if self.left == 0 => Ok(Position::Trailers),
            (Position::SizeLf, b'\n') => {
                self.total += self.left;
                Ok(Position::Data)
            }
            (Position::DataCr, b'\r') => Ok(Position::DataLf),
            (Position::DataLf, b'\n') => {
                self.digits = 0;
                Ok(Position::Size)
            }
            (Position::SizeLf | Position::DataLf, _) => Err(FramingError::LineEnding),
            _ => Err(FramingError::of_byte(byte, FramingError::Chunk)),
        }
    }

    fn take_digit(&mut self, byte: u8) -> Result<Position, FramingError> {
        if self.digits == SIZE_DIGITS_MAX {
            return Err(FramingError::Chunk);
        }
        let digit = char::from(byte).to_digit(16).ok_or(FramingError::Chunk)?;
        self.digits += 1;
        self.left = self.left << 4 | u64::from(digit);
        if self.left > BODY_MAX - self.total {
            return Err(FramingError::BodyTooLarge);
        }
        Ok(Position::Size)
    }

    /// Consumes one byte of a chunk extension, within [`BODY_OVERHEAD_MAX`].
    ///
    /// White space is allowed only before an extension (RFC 9112, 7.1.1). A quoted value must end
    /// on its line: otherwise some parsers read the line break as part of the value, and others as
    /// the end of the size.
    fn take_extension(&mut self, byte: u8) -> Result<Position, FramingError> {
        if self.overhead == BODY_OVERHEAD_MAX {
            return Err(FramingError::BodyOverhead);
        }
        self.overhead += 1;
        match (self.position, byte) {
            (Position::Size | Position::Gap, b' ' | b'\t') => Ok(Position::Gap),
            (Position::Size | Position::Gap, b';') => Ok(Position::Extension),
            (Position::Extension, b'"') => Ok(Position::Quoted),
            (Position::Extension, b';' | b'=' | b' ' | b'\t') => Ok(Position::Extension),
            (Position::Extension, _) if is_token(byte) => Ok(Position::Extension),
            (Position::Quoted, b'"') => Ok(Position::Extension),
            (Position::Quoted, b'\\') => Ok(Position::Escaped),
            (Position::Quoted | Position::Escaped, b'\t' | b' '..=b'~' | 0x80..) => {
                Ok(Position::Quoted)
            }
            _ => Err(FramingError::of_byte(byte, FramingError::Chunk)),
        }
    }
}

//! Field lines of a head, or of the trailers after a chunked body.
//!
//! Only four fields are interpreted, since they alone decide the framing, the authority and the
//! protocol. Of all other fields only the line syntax is checked.

use super::Fault;
use super::framing_error::FramingError;
use super::head::Framing;
use super::token::{is_authority, is_control, is_token};
use crate::request_guard::{BODY_MAX, FIELDS_MAX};

/// Field section of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Head of a request in `HTTP/1.minor`.
    Head {
        /// Minor HTTP version, 0 or 1.
        minor: u8,
    },
    /// Trailers after the last chunk.
    Trailers,
}

#[derive(Debug)]
pub(super) struct Fields {
    section: Section,
    position: Position,
    name: Name,
    value: Value,
    length: Option<u64>,
    chunked: bool,
    host: bool,
    switch: bool,
    count: usize,
}

/// Element of the field section to which the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum Position {
    LineStart,
    Name,
    Value,
    LineLf,
    LastLf,
}

impl Fields {
    pub(super) fn new(section: Section) -> Self {
        let (name, value) = (Name::default(), Value::Opaque);
        let position = Position::LineStart;
        let (length, chunked, host, switch) = (None, false, false, false);
        Self { section, position, name, value, length, chunked, host, switch, count: 0 }
    }

    /// Returns the framing of the body that the fields of a complete head announce.
    pub(super) fn framing(&self) -> Framing {
        match self.length {
            _ if self.chunked => Framing::Chunked,
            None | Some(0) if self.switch => Framing::Switch,
            None | Some(0) => Framing::None,
            Some(length) => Framing::Sized(length),
        }
    }

    /// Consumes bytes. Returns their number once the empty line after the last field has arrived.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<Option<usize>, Fault> {
        let mut at = 0;
        loop {
            at += match self.position {
                Position::LineStart => self.skip_lines(&piece[at..]),
                _ => self.skip_run(&piece[at..]),
            };
            let Some(&byte) = piece.get(at) else { return Ok(None) };
            let over = matches!(self.position, Position::LastLf);
            self.position = self.after(byte).map_err(|why| Fault { at, why })?;
            at += 1;
            if over {
                return Ok(Some(at));
            }
        }
    }

    /// Skips whole lines of fields that are not interpreted, and returns their length in bytes.
    fn skip_lines(&mut self, piece: &[u8]) -> usize {
        let mut at = 0;
        while self.count < FIELDS_MAX {
            let Some(length) = opaque_line(&piece[at..]) else { break };
            at += length;
            self.count += 1;
        }
        at
    }

    /// Skips bytes that cannot end the current element, and returns their number.
    fn skip_run(&mut self, piece: &[u8]) -> usize {
        match (self.position, &self.value) {
            (Position::Name, _) => {
                let length = piece.iter().position(|&byte| !is_token(byte)).unwrap_or(piece.len());
                self.name.extend(&piece[..length]);
                length
            }
            (Position::Value, Value::Opaque) => run_of_value(piece),
            (Position::Value, Value::Host(ValuePosition::Inside)) => {
                piece.iter().position(|&byte| !is_authority(byte)).unwrap_or(piece.len())
            }
            _ => 0,
        }
    }

    fn after(&mut self, byte: u8) -> Result<Position, FramingError> {
        match (self.position, byte) {
            (Position::LineStart, b'\r') => Ok(Position::LastLf),
            (Position::LineStart, b' ' | b'\t') => Err(FramingError::Fold),
            (Position::LineStart, _) if is_token(byte) => {
                if self.count == FIELDS_MAX {
                    return Err(FramingError::TooManyFields);
                }
                self.count += 1;
                self.name = Name::default();
                self.name.extend(&[byte]);
                Ok(Position::Name)
            }
            (Position::Name, b':') => {
                self.value = self.open()?;
                Ok(Position::Value)
            }
            (Position::LineStart | Position::Name, _) => {
                Err(FramingError::of_byte(byte, FramingError::FieldName))
            }
            (Position::Value, b'\r') => {
                self.close()?;
                Ok(Position::LineLf)
            }
            (Position::Value, b'\n') => Err(FramingError::LineEnding),
            (Position::Value, 0) => Err(FramingError::Nul),
            (Position::Value, _) => {
                self.value.take(byte)?;
                Ok(Position::Value)
            }
            (Position::LineLf, b'\n') => Ok(Position::LineStart),
            (Position::LastLf, b'\n') => {
                self.validate_host()?;
                Ok(Position::LineStart)
            }
            (Position::LineLf | Position::LastLf, _) => Err(FramingError::LineEnding),
        }
    }

    /// Starts a value once its field name is complete. Fails if the field is not allowed here.
    fn open(&mut self) -> Result<Value, FramingError> {
        let Some(known) = self.name.known() else { return Ok(Value::Opaque) };
        let Section::Head { minor } = self.section else { return known.in_trailers() };
        match known {
            Known::Host if self.host => Err(FramingError::Host),
            Known::Host => {
                self.host = true;
                Ok(Value::Host(ValuePosition::Before))
            }
            Known::ContentLength if self.chunked => Err(FramingError::BothFramings),
            Known::ContentLength if self.length.is_some() => Err(FramingError::ContentLength),
            Known::ContentLength => Ok(Value::Length { position: ValuePosition::Before, total: 0 }),
            Known::TransferEncoding if self.length.is_some() => Err(FramingError::BothFramings),
            Known::TransferEncoding if minor == 0 || self.chunked => {
                Err(FramingError::TransferEncoding)
            }
            Known::TransferEncoding => {
                Ok(Value::Coding { position: ValuePosition::Before, matched: 0 })
            }
            Known::Upgrade => {
                // RFC 9110, 7.8: `Upgrade` in HTTP/1.0 is ignored.
                self.switch = minor == 1;
                Ok(Value::Opaque)
            }
        }
    }

    /// Checks a value once it is complete.
    fn close(&mut self) -> Result<(), FramingError> {
        match self.value {
            Value::Opaque | Value::Host(_) => {}
            Value::Length { position: ValuePosition::Before, .. } => {
                return Err(FramingError::ContentLength);
            }
            Value::Length { total, .. } if total > BODY_MAX => {
                return Err(FramingError::BodyTooLarge);
            }
            Value::Length { total, .. } => self.length = Some(total),
            Value::Coding { matched, .. } if matched < CHUNKED.len() => {
                return Err(FramingError::TransferEncoding);
            }
            Value::Coding { .. } => self.chunked = true,
        }
        Ok(())
    }

    fn validate_host(&self) -> Result<(), FramingError> {
        let wanted = self.section == Section::Head { minor: 1 };
        if wanted && !self.host { Err(FramingError::Host) } else { Ok(()) }
    }
}

/// Length of the longest field name that is interpreted, in bytes.
const NAME_KEPT: usize = "transfer-encoding".len();

/// Length and first bytes of a field name: enough to recognise the names that are interpreted.
#[derive(Debug, Default)]
struct Name {
    length: usize,
    start: [u8; NAME_KEPT],
}

/// Field that is interpreted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Host,
    ContentLength,
    TransferEncoding,
    Upgrade,
}

impl Known {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"upgrade") => Some(Self::Upgrade),
            4 if name.eq_ignore_ascii_case(b"host") => Some(Self::Host),
            14 if name.eq_ignore_ascii_case(b"content-length") => Some(Self::ContentLength),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => Some(Self::TransferEncoding),
            _ => None,
        }
    }

    /// Fields that decide the framing or the authority are not allowed in trailers (RFC 9110,
    /// 6.5.1).
    fn in_trailers(self) -> Result<Value, FramingError> {
        match self {
            Self::Upgrade => Ok(Value::Opaque),
            Self::Host | Self::ContentLength | Self::TransferEncoding => Err(FramingError::Trailer),
        }
    }
}

impl Name {
    fn extend(&mut self, bytes: &[u8]) {
        let free = self.start.get_mut(self.length..).unwrap_or_default();
        let kept = free.len().min(bytes.len());
        free[..kept].copy_from_slice(&bytes[..kept]);
        self.length = self.length.saturating_add(bytes.len());
    }

    fn known(&self) -> Option<Known> {
        self.start.get(..self.length).and_then(Known::of)
    }
}

/// Maximum Content-Length: the largest signed 64-bit integer.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// The only supported transfer coding (RFC 9112, 7), case-insensitive.
const CHUNKED: &[u8] = b"chunked";

/// Field value that is being read.
#[derive(Clone, Copy, Debug)]
enum Value {
    Opaque,
    Host(ValuePosition),
    Length { position: ValuePosition, total: u64 },
    Coding { position: ValuePosition, matched: usize },
}

/// Position in a field value, which optional white space may surround (RFC 9112, 5.1).
#[derive(Clone, Copy, Debug)]
enum ValuePosition {
    Before,
    Inside,
    After,
}

impl ValuePosition {
    /// The position after this byte, or none if a second word begins.
    fn after(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Before, b' ' | b'\t') => Some(Self::Before),
            (_, b' ' | b'\t') => Some(Self::After),
            (Self::After, _) => None,
            _ => Some(Self::Inside),
        }
    }
}

impl Value {
    fn take(&mut self, byte: u8) -> Result<(), FramingError> {
        match self {
            Self::Opaque if is_control(byte) => Err(FramingError::FieldValue),
            Self::Opaque => Ok(()),
            Self::Host(position) => {
                *position = position.after(byte).ok_or(FramingError::Host)?;
                let allowed = !matches!(position, ValuePosition::Inside) || is_authority(byte);
                allowed.then_some(()).ok_or(FramingError::Host)
            }
            Self::Length { position, total } => {
                *position = position.after(byte).ok_or(FramingError::ContentLength)?;
                if matches!(position, ValuePosition::Inside) {
                    *total = with_digit(*total, byte).ok_or(FramingError::ContentLength)?;
                }
                Ok(())
            }
            Self::Coding { position, matched } => {
                *position = position.after(byte).ok_or(FramingError::TransferEncoding)?;
                if matches!(position, ValuePosition::Inside) {
                    let expected = CHUNKED.get(*matched).copied();
                    if expected != Some(byte.to_ascii_lowercase()) {
                        return Err(FramingError::TransferEncoding);
                    }
                    *matched += 1;
                }
                Ok(())
            }
        }
    }
}

/// Returns the length of the first line in bytes if the line is complete, valid, and of a field
/// that is not interpreted.
fn opaque_line(piece: &[u8]) -> Option<usize> {
    let name = piece.iter().position(|&byte| !is_token(byte))?;
    let (name, rest) = piece.split_at(name);
    let is_opaque = !name.is_empty() && Known::of(name).is_none();
    let value = rest.strip_prefix(b":").filter(|_| is_opaque)?;
    let length = run_of_value(value);
    value.get(length..)?.starts_with(b"\r\n").then(|| name.len() + 1 + length + 2)
}

/// Returns the number of bytes before the first control byte.
pub(super) fn run_of_value(piece: &[u8]) -> usize {
    let mut at = 0;
    while let Some(eight) = piece.get(at..).and_then(<[u8]>::first_chunk) {
        match first_control(u64::from_le_bytes(*eight)) {
            None => at += eight.len(),
            Some(offset) if eight[offset] == b'\t' => at += offset + 1,
            Some(offset) => return at + offset,
        }
    }
    let rest = &piece[at..];
    at + rest.iter().position(|&byte| is_control(byte)).unwrap_or(rest.len())
}

/// Returns the index of the first control byte in eight bytes, the lowest byte first.
///
/// Processes eight bytes by one subtraction: a byte borrows if it is smaller than a space. A borrow
/// can mark the byte above it wrongly, so only the lowest mark counts.
fn first_control(eight: u64) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let below_space = eight.wrapping_sub(ONES * b' ' as u64) & !eight;
    let differs = eight ^ (ONES * 0x7F);
    let is_del = differs.wrapping_sub(ONES) & !differs;
    let marks = (below_space | is_del) & HIGH;
    (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
}

fn with_digit(total: u64, byte: u8) -> Option<u64> {
    let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
    let total = total.checked_mul(10)?.checked_add(digit)?;
    (total <= LENGTH_MAX).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_are_found_at_every_offset() {
        for byte in 0..=u8::MAX {
            for length in 0..20 {
                for at in 0..length {
                    // The other bytes are close to the control bytes.
                    for other in [b' ', b'~', 0x80, 0xFF, b'\t'] {
                        let mut value = vec![other; length];
                        value[at] = byte;
                        let expected = value.iter().position(|&byte| is_control(byte));
                        assert_eq!(run_of_value(&value), expected.unwrap_or(length), "{value:?}");
                    }
                }
            }
        }
    }
}

//! Heads of plain requests: GET or HEAD in HTTP/1.1, without a body, complete in one piece.
//!
//! Direct hits read them in one pass. The scanner accepts every head that is accepted here, and
//! decides about all others.

use super::fields::{Known, run_of_value};
use super::head::HEAD_MAX;
use super::token::{is_authority, is_plain_target, is_token};
use crate::request_guard::{FIELDS_MAX, TARGET_MAX};

/// Head of a plain request, as slices of its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainHead<'a> {
    pub(crate) is_head: bool,
    /// Target in origin form (RFC 9112 section 3.2.1).
    pub(crate) target: &'a str,
    /// Value of `Host`.
    pub(crate) host: &'a str,
    /// Field lines, without the empty line at the end.
    pub(crate) fields: &'a [u8],
    /// Length of the head in bytes, with the empty line.
    pub(crate) length: usize,
}

impl<'a> PlainHead<'a> {
    /// Reads the head at the start of the received bytes. `is_plain` gets each field line except
    /// `Host`. Returns `None` if it returns `false`, or if the scanner must decide.
    pub(crate) fn read(
        received: &'a [u8],
        mut is_plain: impl FnMut(&FieldLine<'a>) -> bool,
    ) -> Option<Self> {
        let (is_head, rest) = match received.strip_prefix(b"GET ") {
            Some(rest) => (false, rest),
            None => (true, received.strip_prefix(b"HEAD ")?),
        };
        let is_end = |&byte: &u8| !is_plain_target(byte) && byte != b'?';
        let (target, rest) = rest.split_at(rest.iter().position(is_end)?);
        if target.first() != Some(&b'/') || target.len() > TARGET_MAX {
            return None;
        }
        let after_line = rest.strip_prefix(b" HTTP/1.1\r\n")?;
        let (mut host, mut count, mut rest) = (None, 0, after_line);
        let end = loop {
            if let Some(end) = rest.strip_prefix(b"\r\n") {
                break end;
            }
            let line = FieldLine::first_of(rest)?;
            let is_accepted = match Known::of(line.name) {
                None => is_plain(&line),
                Some(Known::Host) if host.is_none() => {
                    let value = line.value.trimmed();
                    host = Some(value);
                    value.iter().all(|&byte| is_authority(byte))
                }
                // It is not allowed, or there may be a body or another protocol.
                Some(_) => false,
            };
            count += 1;
            if !is_accepted || count > FIELDS_MAX {
                return None;
            }
            rest = line.after;
        };
        let (length, fields) = (received.len() - end.len(), after_line.len() - rest.len());
        let (target, host) = (str::from_utf8(target).ok()?, str::from_utf8(host?).ok()?);
        let fields = &after_line[..fields];
        (length <= HEAD_MAX).then_some(Self { is_head, target, host, fields, length })
    }
}

/// Complete and valid field line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldLine<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: RawValue<'a>,
    /// Bytes after the line.
    pub(crate) after: &'a [u8],
}

impl<'a> FieldLine<'a> {
    /// Reads the line at the start of `piece`. Returns `None` if it is incomplete or invalid. The
    /// value of a field that is interpreted is not checked.
    pub(crate) fn first_of(piece: &'a [u8]) -> Option<Self> {
        let (name, rest) = piece.split_at(piece.iter().position(|&byte| !is_token(byte))?);
        let rest = rest.strip_prefix(b":").filter(|_| !name.is_empty())?;
        let (value, rest) = rest.split_at(run_of_value(rest));
        Some(Self { name, value: RawValue(value), after: rest.strip_prefix(b"\r\n")? })
    }
}

/// Value of a field line, with the white space around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawValue<'a>(&'a [u8]);

impl<'a> RawValue<'a> {
    /// Returns the value without the white space around it.
    #[inline]
    pub(crate) fn trimmed(self) -> &'a [u8] {
        // Nearly all values have one space before them and none behind.
        self.0.strip_prefix(b" ").unwrap_or(self.0).trim_ascii()
    }
}

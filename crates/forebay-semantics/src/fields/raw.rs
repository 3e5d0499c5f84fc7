//! Fields of a message, as the bytes of its head.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::fields::{CopyFields, FieldLines, FieldSink};

/// Number of lines whose positions need no further allocation.
const LINES_USUAL: usize = 8;

/// Number of fields that a cache usually adds: `Via`, `Cache-Status`, `Age`, `Date`.
const ADDED_USUAL: usize = 4;

/// Head of a message as bytes, with the positions of its field lines. A lookup compares names.
///
/// For a head that is only forwarded, with few lookups, this costs less than a [`HeaderMap`].
#[derive(Clone, Debug, Default)]
pub struct RawFields {
    /// The head, with names in lower case.
    bytes: Bytes,
    lines: SmallVec<[Line; LINES_USUAL]>,
}

/// Name and value of a line, without white space around them.
#[derive(Clone, Copy, Debug)]
struct Line {
    name: Span,
    value: Span,
}

/// Range of the bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    length: u32,
}

impl RawFields {
    /// Copies the bytes of a head. `lines` are names and values of its field lines, as slices of `head`.
    /// Names must be tokens, and values valid without white space around them (RFC 9110 section 5).
    pub fn copied<'a>(head: &'a [u8], lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let span = |slice| Span::of(slice, head);
        let line = |(name, value)| {
            debug_assert!(HeaderName::from_bytes(name).is_ok(), "{name:?}");
            debug_assert!(HeaderValue::from_bytes(value).is_ok(), "{value:?}");
            Line { name: span(name), value: span(value) }
        };
        let lines = lines.map(line);
        let (lines, mut bytes) = (lines.collect::<SmallVec<_>>(), head.to_vec());
        for Line { name, .. } in &lines {
            if let Some(name) = bytes.get_mut(name.range()) {
                name.make_ascii_lowercase();
            }
        }
        Self { bytes: bytes.into(), lines }
    }

    /// Returns the head, with the names of its fields in lower case.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the parsed form, with capacity for the fields that a cache usually adds. Its values share the
    /// bytes.
    #[must_use]
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.lines.len() + ADDED_USUAL);
        for line in &self.lines {
            let name = HeaderName::from_bytes(self.slice(line.name));
            let value = self.bytes.slice_ref(self.slice(line.value));
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_maybe_shared(value)) {
                map.append(name, value);
            }
        }
        map
    }

    fn slice(&self, span: Span) -> &[u8] {
        self.bytes.get(span.range()).unwrap_or_default()
    }
}

impl Span {
    /// Returns the range of a slice of `head`.
    fn of(slice: &[u8], head: &[u8]) -> Self {
        let start = slice.as_ptr().addr().wrapping_sub(head.as_ptr().addr());
        // A head has far less than 4 GiB; a span that does not fit is empty when it is read.
        let in_u32 = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { start: in_u32(start), length: in_u32(slice.len()) }
    }

    const fn range(self) -> Range<usize> {
        let (start, length) = (self.start as usize, self.length as usize);
        start..start.saturating_add(length)
    }
}

impl FieldLines for RawFields {
    fn lines<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        self.lines_named(name.as_str())
    }

    fn lines_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // Nearly all other names have another length.
        let is_named = move |line: &&Line| {
            line.name.length as usize == name.len() && self.slice(line.name) == name.as_bytes()
        };
        self.lines.iter().filter(is_named).map(|line| self.slice(line.value))
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| (self.slice(line.name), self.slice(line.value)))
    }
}

impl CopyFields for RawFields {
    fn copy_to(&self, is_kept: impl Fn(&[u8]) -> bool, sink: &mut impl FieldSink) {
        for (name, value) in self.all() {
            if is_kept(name) {
                sink.add_line(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, HOST, VIA};

    use super::*;
    use crate::samples::headers;

    const LINES: [(&str, &str); 4] = [("Accept", "a"), ("X-A", ""), ("ACCEPT", "b"), ("via", "c")];

    fn raw() -> RawFields {
        let head: String = LINES.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
        let slices = head.lines().filter_map(|line| line.split_once(':'));
        let slices = slices.map(|(name, value)| (name.as_bytes(), value.trim().as_bytes()));
        RawFields::copied(head.as_bytes(), slices)
    }

    #[test]
    fn lines_are_found_in_any_case_and_keep_their_order() {
        let raw = raw();
        assert_eq!(raw.lines(&ACCEPT).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(raw.lines_named("x-a").collect::<Vec<_>>(), [b""]);
        assert!(raw.has(&VIA) && !raw.has(&HOST));
        assert_eq!(raw.bytes(), "accept: a\r\nx-a: \r\naccept: b\r\nvia: c\r\n");
    }

    #[test]
    fn the_parsed_form_has_the_same_lines() {
        assert_eq!(raw().to_map(), headers(&["accept: a", "x-a: ", "accept: b", "via: c"]));
    }
}

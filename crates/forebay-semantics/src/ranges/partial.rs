//! Partial responses and their combination (RFC 9110 section 14.4, RFC 9111 sections 3.3 and 3.4).

use http::StatusCode;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE,
};
use smallvec::SmallVec;

use crate::fields::{digits, single};
use crate::message::ResponseRef;
use crate::validation::validate::{merge_not_modified, strong_match};
use crate::variants::vary::selects;

/// Maximum number of separate stored ranges of one body; a further one is not stored. It bounds the
/// list for a client that requests every other byte.
pub const SPANS_MAX: usize = 64;

/// Range of bytes in a body, first and last byte inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte, at least `first`.
    pub last: u64,
}

impl Span {
    /// Returns the number of bytes in the range, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a span has at least one byte")]
    pub const fn len(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    const fn holds(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Returns true if the two ranges overlap or are adjacent.
    const fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// Parsed `Content-Range` of a 206 (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Range of bytes in the message.
    pub span: Span,
    /// Length of the whole body in bytes; `None` if `Content-Range` has `*` in its place.
    pub complete: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes 0-9/100` or `bytes 0-9/*`. `None` if it is malformed, or if the last byte is
    /// before the first or beyond the end (RFC 9110 section 14.4).
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let value = value.trim_ascii();
        let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
        if !unit.eq_ignore_ascii_case(b"bytes ") {
            return None;
        }
        let (range, complete) = split(rest, b'/')?;
        let (first, last) = split(range, b'-')?;
        let span = Span { first: digits(first)?, last: digits(last)? };
        let complete = if complete == b"*" { None } else { Some(digits(complete)?) };
        let is_inside = complete.is_none_or(|complete| span.last < complete);
        (span.first <= span.last && span.last < u64::MAX && is_inside)
            .then_some(Self { span, complete })
    }

    /// Returns the range of the first `length` bytes of this one; `None` if `length` is 0 or larger
    /// than the range.
    #[must_use]
    pub const fn came(self, length: u64) -> Option<Self> {
        if length == 0 || length > self.span.len() {
            return None;
        }
        let Span { first, .. } = self.span;
        Some(Self { span: Span { first, last: first + (length - 1) }, ..self })
    }

    /// Returns the range as a `Content-Range` field value.
    #[must_use]
    pub fn to_value(&self) -> HeaderValue {
        let Span { first, last } = self.span;
        text_value(&match self.complete {
            Some(complete) => format!("bytes {first}-{last}/{complete}"),
            None => format!("bytes {first}-{last}/*"),
        })
    }
}

/// Returns the `Content-Range` of a 416 for a body of `length` bytes (RFC 9110 section 15.5.17).
#[must_use]
pub fn unsatisfied(length: u64) -> HeaderValue {
    text_value(&format!("bytes */{length}"))
}

/// Returns the range in a 206 (RFC 9111 section 3.3): its single `Content-Range`. If
/// `Content-Length` is smaller, the response is incomplete and holds the first bytes of that range.
/// If it is larger, zero or malformed, the result is `None`, as for any other status. A
/// `multipart/byteranges` response has no `Content-Range` and is not parsed.
///
/// Without `Content-Length`, the caller must compare the range with the length of the received
/// body.
#[must_use]
pub fn received_range(answered: ResponseRef<'_>) -> Option<ContentRange> {
    let value = single(answered.headers, &CONTENT_RANGE)?;
    let range = ContentRange::read(value.as_bytes())?;
    if answered.status != StatusCode::PARTIAL_CONTENT {
        return None;
    }
    if !answered.headers.contains_key(CONTENT_LENGTH) {
        return Some(range);
    }
    range.came(digits(single(answered.headers, &CONTENT_LENGTH)?.as_bytes())?)
}

/// Returns true if a received part can be combined with stored parts (RFC 9111 section 3.4): both
/// have the same strong entity tag. Dates do not suffice, because two changes within one second
/// have the same date.
///
/// Servers give one strong tag to several codings and variants. Therefore `Content-Encoding` and
/// the fields in `Vary` must be equal too.
#[must_use]
pub fn can_combine(stored: &HeaderMap, fresh: &HeaderMap) -> bool {
    let tags = single(stored, &ETAG).zip(single(fresh, &ETAG));
    tags.is_some_and(|(one, other)| strong_match(one.as_bytes(), other.as_bytes()))
        && stored.get_all(CONTENT_ENCODING).iter().eq(fresh.get_all(CONTENT_ENCODING))
        && selects(stored) == selects(fresh)
}

/// Adds `Range` and `If-Range` for the first missing bytes to a request (RFC 9111 section 3.4).
/// Returns false and changes nothing if no byte is missing, none is stored, or the stored parts
/// cannot be combined with others: the caller then requests the whole body.
///
/// If the representation has changed, the origin answers with the whole new one (RFC 9110 section
/// 13.1.5).
#[must_use]
pub fn request_missing(request: &mut HeaderMap, stored: &HeaderMap, parts: &Parts) -> bool {
    let (Some(tag), Some((from, to))) = (single(stored, &ETAG), parts.missing()) else {
        return false;
    };
    if !can_combine(stored, stored) || parts.spans().is_empty() {
        return false;
    }
    let range = match to {
        Some(to) => format!("bytes={from}-{to}"),
        None => format!("bytes={from}-"),
    };
    request.insert(RANGE, text_value(&range));
    request.insert(IF_RANGE, tag.clone());
    true
}

/// Returns the stored fields updated by those of a later part (RFC 9111 sections 3.2 and 3.4),
/// without `Content-Range` and `Content-Length`, which are added when the entry is served.
#[must_use]
pub fn combined_fields(stored: &HeaderMap, fresh: &HeaderMap) -> HeaderMap {
    let mut joined = merge_not_modified(stored, fresh);
    joined.remove(CONTENT_RANGE);
    joined.remove(CONTENT_LENGTH);
    joined
}

/// Stored byte ranges of one body, in ascending order and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    spans: SmallVec<[Span; 2]>,
    complete: Option<u64>,
}

impl Parts {
    /// Adds a stored range. Returns false and changes nothing if the range contradicts the known
    /// length of the body or would be one more than [`SPANS_MAX`] separate ranges.
    pub fn insert(&mut self, range: ContentRange) -> bool {
        let complete = self.complete.or(range.complete);
        let contradicts = range.complete.is_some_and(|length| Some(length) != complete);
        let end = self.spans.last().map_or(0, |span| span.last).max(range.span.last);
        if contradicts || complete.is_some_and(|length| end >= length) {
            return false;
        }
        let start = self
            .spans
            .partition_point(|span| !span.touches(range.span) && span.last < range.span.first);
        let joined = self.spans[start..].iter().take_while(|span| span.touches(range.span));
        let (count, span) = joined.fold((0, range.span), |(count, sum), span| {
            let first = sum.first.min(span.first);
            (count + 1, Span { first, last: sum.last.max(span.last) })
        });
        if count == 0 && self.spans.len() == SPANS_MAX {
            return false;
        }
        self.spans.drain(start..start + count);
        self.spans.insert(start, span);
        self.complete = complete;
        true
    }

    /// Returns the stored ranges in ascending order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the length of the whole body in bytes, if a stored part stated it.
    #[must_use]
    pub const fn complete(&self) -> Option<u64> {
        self.complete
    }

    /// Returns true if all bytes of the range `wanted` are stored.
    #[must_use]
    pub fn cover(&self, wanted: Span) -> bool {
        self.spans.iter().any(|span| span.holds(wanted))
    }

    /// Returns true if the whole body is stored, which makes it a complete response (RFC 9111
    /// section 3.4).
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.complete.is_some_and(|length| length > 0 && self.missing().is_none())
    }

    /// Returns the positions of the first and the last of the missing bytes before the next stored
    /// part; the last is `None` if no stored part follows. Returns `None` if no byte is missing.
    #[must_use]
    pub fn missing(&self) -> Option<(u64, Option<u64>)> {
        let from = match self.spans.first() {
            Some(span) if span.first == 0 => span.last + 1,
            _ => 0,
        };
        if self.complete.is_some_and(|length| from >= length) {
            return None;
        }
        let next = self.spans.iter().find(|span| span.first > from);
        Some((from, next.map(|span| span.first - 1)))
    }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let (head, tail) = text.split_at_checked(text.iter().position(|byte| *byte == at)?)?;
    Some((head, tail.get(1..)?))
}

pub(crate) fn text_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;

//! Parts of a body: which one came, which are at hand, and what can be made of them.

use http::StatusCode;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE,
};
use smallvec::SmallVec;

use crate::fields::{digits, single};
use crate::storable::Answered;
use crate::validate::{merge_not_modified, strong_match};
use crate::vary::selects;

/// How many separate parts of one body are kept. A peer that asks for every other byte would
/// otherwise make a list as long as the body.
pub const SPANS_MAX: usize = 64;

/// Bytes of a body, the first and the last included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where it begins.
    pub first: u64,
    /// Its last byte, not before the first.
    pub last: u64,
}

impl Span {
    /// How many bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a span has at least one byte")]
    pub const fn len(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    const fn holds(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the two overlap or have nothing between them.
    const fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// What a `Content-Range` says (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Which bytes the message holds.
    pub span: Span,
    /// How many the whole has, if that was known.
    pub complete: Option<u64>,
}

impl ContentRange {
    /// Reads `bytes 0-9/100` or `bytes 0-9/*`. What contradicts itself says nothing: a last byte
    /// before the first or behind the end makes the field invalid (RFC 9110 section 14.4).
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

    /// The part that came, if `length` bytes of it did. Nothing where that is none, or more than
    /// there should be.
    #[must_use]
    pub const fn came(self, length: u64) -> Option<Self> {
        if length == 0 || length > self.span.len() {
            return None;
        }
        let Span { first, .. } = self.span;
        Some(Self { span: Span { first, last: first + (length - 1) }, ..self })
    }

    /// The value of the field.
    #[must_use]
    pub fn to_value(&self) -> HeaderValue {
        let Span { first, last } = self.span;
        text_value(&match self.complete {
            Some(complete) => format!("bytes {first}-{last}/{complete}"),
            None => format!("bytes {first}-{last}/*"),
        })
    }
}

/// The `Content-Range` of a 416 (RFC 9110 section 15.5.17): how long the body is.
#[must_use]
pub fn unsatisfied(length: u64) -> HeaderValue {
    text_value(&format!("bytes */{length}"))
}

/// Which part a 206 holds (RFC 9111 section 3.3): what its one `Content-Range` says. If it is
/// shorter than that, it is incomplete, and what came are its first bytes; if it is longer, nobody
/// knows what it is. One in several parts (`multipart/byteranges`) has no `Content-Range` of its
/// own and is not taken apart.
///
/// Where there is no `Content-Length`, who stores the body has to look at what came.
#[must_use]
pub fn part_of(answered: Answered<'_>) -> Option<ContentRange> {
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

/// Whether a part that came and what is stored are of the same bytes (RFC 9111 section 3.4): both
/// have the same strong validator. Dates do not count here, since two changes within a second
/// have the same.
///
/// Servers give one strong tag to several codings and variants, so the codings must be equal, and
/// so must the request fields that `Vary` names: parts that only some requests select are not
/// joined with parts that others select.
#[must_use]
pub fn joins(stored: &HeaderMap, fresh: &HeaderMap) -> bool {
    let tags = single(stored, &ETAG).zip(single(fresh, &ETAG));
    tags.is_some_and(|(one, other)| strong_match(one.as_bytes(), other.as_bytes()))
        && stored.get_all(CONTENT_ENCODING).iter().eq(fresh.get_all(CONTENT_ENCODING))
        && selects(stored) == selects(fresh)
}

/// Makes a request one for the bytes that are missing, if the stored ones are still the same (RFC
/// 9111 section 3.4). `false`, and nothing is changed, where nothing is missing or what came could
/// not be joined: then all of it is asked for.
///
/// Where the bytes have changed, the answer is the whole of the new ones (RFC 9110 section 13.1.5).
#[must_use]
pub fn ask_for_missing(request: &mut HeaderMap, stored: &HeaderMap, parts: &Parts) -> bool {
    let (Some(tag), Some((from, to))) = (single(stored, &ETAG), parts.missing()) else {
        return false;
    };
    if !joins(stored, stored) || parts.spans().is_empty() {
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

/// The fields of what was stored, as a part that was joined with it leaves them (RFC 9111 section
/// 3.4: those of the later response, as section 3.2 updates them). Which part it is, is said when
/// it is served.
#[must_use]
pub fn joined_fields(stored: &HeaderMap, fresh: &HeaderMap) -> HeaderMap {
    let mut joined = merge_not_modified(stored, fresh);
    joined.remove(CONTENT_RANGE);
    joined.remove(CONTENT_LENGTH);
    joined
}

/// The parts of one body that are at hand: in order, apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    spans: SmallVec<[Span; 2]>,
    complete: Option<u64>,
}

impl Parts {
    /// Takes a part in. `false`, and nothing is changed, where it contradicts what is known of
    /// the length, or would make more than [`SPANS_MAX`] separate parts.
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

    /// The parts, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How long the whole is, if a part said so.
    #[must_use]
    pub const fn complete(&self) -> Option<u64> {
        self.complete
    }

    /// Whether these bytes are all at hand.
    #[must_use]
    pub fn cover(&self, wanted: Span) -> bool {
        self.spans.iter().any(|span| span.holds(wanted))
    }

    /// Whether the whole body is at hand (RFC 9111 section 3.4: then it is a complete response).
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.complete.is_some_and(|length| length > 0 && self.missing().is_none())
    }

    /// The first bytes that are not at hand, for the `Range` that asks for them: up to the next
    /// part, or to the end, wherever that is.
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

//! Byte ranges that a request asks for in a stored body (RFC 9110 section 14).

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE};
use smallvec::SmallVec;

use crate::fields::date::http_date;
use crate::fields::{digits, single};
use crate::freshness::lifetime::date_in;
use crate::ranges::partial::{ContentRange, Parts, Span};
use crate::validation::validate::strong_match;

/// Byte range that a request asks for, for a server that can send one part only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleRange {
    /// The whole body is sent, with status 200.
    Whole,
    /// Bytes from `first` to `last`, both inclusive and inside the body, status 206.
    Part {
        /// Position of the first byte.
        first: u64,
        /// Position of the last byte.
        last: u64,
    },
    /// The range is outside the body: status 416.
    Unsatisfiable,
}

/// Byte ranges that a request asks for, for a server that can send several parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole body is sent, with status 200.
    Whole,
    /// One range inside the body is sent, with status 206 and a `Content-Range`.
    One(Span),
    /// Two or more disjoint ranges inside the body, in the order of the request, status 206 as
    /// `multipart/byteranges`; see [`Multipart`](crate::ranges::multipart::Multipart).
    Several(SmallVec<[Span; 4]>),
    /// No requested range is inside the body: status 416; see
    /// [`unsatisfied`](crate::ranges::partial::unsatisfied).
    Unsatisfiable,
}

/// Maximum number of ranges in one request; a request with more gets the whole body. RFC 9110
/// sections 14.2 and 17.15: many ranges in one request are a sign of an attack.
pub const RANGES_MAX: usize = 32;

/// Maximum gap in bytes between two ranges that are sent as one: the header of a separate part
/// would be longer (RFC 9110 section 15.3.7.2 estimates 80 bytes).
const GAP_MAX: u64 = 80;

/// Returns the range of a stored body of `length` bytes that a GET asks for, at most one (RFC 9110
/// section 14.2).
///
/// Only a 200 is divided into ranges. A server may ignore any `Range`; this one ignores several
/// ranges, units other than bytes, malformed values, and a range whose `If-Range` does not match.
#[must_use]
pub fn range(
    request: &HeaderMap,
    stored: &HeaderMap,
    status: StatusCode,
    length: u64,
) -> SingleRange {
    let specs = asked(request, stored, status).unwrap_or_default();
    let [spec] = specs[..] else { return SingleRange::Whole };
    resolve(spec, length).unwrap_or(SingleRange::Whole)
}

/// Returns the ranges of a stored body of `length` bytes that a GET asks for (RFC 9110 section
/// 14.2).
///
/// Ranges outside the body are left out, overlapping and nearly adjacent ranges become one, and the
/// others keep their order (section 15.3.7.2). Hence a response never has more bytes than the body.
/// The whole body is the answer for units other than bytes, a list with a malformed member, more
/// than [`RANGES_MAX`] ranges, and an `If-Range` that does not match.
#[must_use]
pub fn ranges(request: &HeaderMap, stored: &HeaderMap, status: StatusCode, length: u64) -> Wanted {
    let specs = asked(request, stored, status).unwrap_or_default();
    if specs.is_empty() || specs.len() > RANGES_MAX {
        return Wanted::Whole;
    }
    let mut spans: SmallVec<[Span; 4]> = SmallVec::new();
    for spec in &specs {
        match resolve(spec, length) {
            Some(SingleRange::Part { first, last }) => coalesce(&mut spans, Span { first, last }),
            Some(SingleRange::Unsatisfiable) => {}
            // The last bytes of an empty body are the whole body, which has no Content-Range.
            Some(SingleRange::Whole) | None => return Wanted::Whole,
        }
    }
    match spans[..] {
        [] => Wanted::Unsatisfiable,
        [only] => Wanted::One(only),
        _ => Wanted::Several(spans),
    }
}

/// Returns the one range that a GET asks for if all its bytes are among the stored `parts` (RFC
/// 9111 section 3.3). `None` if the origin must be asked, which includes several ranges, ranges
/// outside the body and malformed values.
#[must_use]
pub fn stored_range(
    request: &HeaderMap,
    stored: &HeaderMap,
    parts: &Parts,
) -> Option<ContentRange> {
    let specs = asked(request, stored, StatusCode::OK)?;
    let [spec] = specs[..] else { return None };
    // A range that is relative to the end has no position while the length is unknown.
    let goes_by_end = spec.starts_with(b"-") || spec.ends_with(b"-");
    let length = parts.complete().or_else(|| (!goes_by_end).then_some(u64::MAX))?;
    let SingleRange::Part { first, last } = resolve(spec, length)? else { return None };
    let span = Span { first, last };
    parts.cover(span).then_some(ContentRange { span, complete: parts.complete() })
}

/// Start of the single range that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeStart {
    /// Position of the first byte.
    At(u64),
    /// Number of bytes before the end of the body.
    BeforeEnd(u64),
}

/// Returns the start of the range in `Range`, or `None` if the field is absent, malformed, in
/// another unit than bytes, or names several ranges. `If-Range` is not evaluated.
#[must_use]
pub fn range_start(request: &HeaderMap) -> Option<RangeStart> {
    let specs = specs(single(request, &RANGE)?.as_bytes())?;
    let [spec] = specs[..] else { return None };
    resolve(spec, u64::MAX)?;
    let (first, last) = spec.split_at_checked(spec.iter().position(|byte| *byte == b'-')?)?;
    if first.is_empty() {
        return digits(last.get(1..)?).map(RangeStart::BeforeEnd);
    }
    digits(first).map(RangeStart::At)
}

/// Adds a range, merged with every range that it overlaps or nearly touches, at the position of the
/// first of them. The merged range can touch further ones, hence the loop; each iteration removes
/// one.
fn coalesce(spans: &mut SmallVec<[Span; 4]>, mut new: Span) {
    let mut place = spans.len();
    let is_near = |one: &Span, other: Span| {
        one.first <= other.last.saturating_add(GAP_MAX + 1)
            && other.first <= one.last.saturating_add(GAP_MAX + 1)
    };
    while let Some(at) = spans.iter().position(|span| is_near(span, new)) {
        let near = spans.remove(at);
        new = Span { first: new.first.min(near.first), last: new.last.max(near.last) };
        place = place.saturating_sub(usize::from(at < place)).min(at);
    }
    spans.insert(place.min(spans.len()), new);
}

/// Returns the members of `Range`, or `None` if the field does not apply to this response.
fn asked<'a>(
    request: &'a HeaderMap,
    stored: &HeaderMap,
    status: StatusCode,
) -> Option<SmallVec<[&'a [u8]; 4]>> {
    if status != StatusCode::OK || !request.contains_key(RANGE) || !if_range(request, stored) {
        return None;
    }
    specs(single(request, &RANGE)?.as_bytes())
}

/// Returns the members of `bytes=…`, at most one more than the limit. The unit is case-insensitive
/// (RFC 9110 section 14.1).
fn specs(value: &[u8]) -> Option<SmallVec<[&[u8]; 4]>> {
    let value = value.trim_ascii();
    let (unit, set) = value.split_at_checked(value.iter().position(|byte| *byte == b'=')?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let members = set.get(1..)?.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    Some(members.filter(|member| !member.is_empty()).take(RANGES_MAX + 1).collect())
}

/// Resolves one range (RFC 9110 section 14.1.2); `None` for a malformed one.
fn resolve(spec: &[u8], length: u64) -> Option<SingleRange> {
    let (first, last) = spec.split_at_checked(spec.iter().position(|byte| *byte == b'-')?)?;
    let last = last.get(1..)?;
    if first.is_empty() {
        return Some(suffix(digits(last)?, length));
    }
    let first = digits(first)?;
    let last = if last.is_empty() { u64::MAX } else { digits(last)? };
    if last < first {
        return None;
    }
    // A last position beyond the end means the end.
    let inside = first < length;
    let last = last.min(length.saturating_sub(1));
    Some(if inside { SingleRange::Part { first, last } } else { SingleRange::Unsatisfiable })
}

/// Returns the last `wanted` bytes, or all if the body is shorter. An empty body has no part that a
/// Content-Range can describe.
const fn suffix(wanted: u64, length: u64) -> SingleRange {
    match (wanted, length) {
        (0, _) => SingleRange::Unsatisfiable,
        (_, 0) => SingleRange::Whole,
        _ => SingleRange::Part { first: length.saturating_sub(wanted), last: length - 1 },
    }
}

/// RFC 9110 section 13.1.5: the range applies only if the client's other parts belong to the same
/// representation. Tags are compared strongly, and a date must equal the stored Last-Modified.
fn if_range(request: &HeaderMap, stored: &HeaderMap) -> bool {
    if !request.contains_key(IF_RANGE) {
        return true;
    }
    let Some(asked) = single(request, &IF_RANGE).map(HeaderValue::as_bytes) else {
        return false;
    };
    match http_date(asked) {
        Some(asked) => date_in(stored, &LAST_MODIFIED) == Some(asked) && is_strong_date(stored),
        None => single(stored, &ETAG).is_some_and(|tag| strong_match(asked, tag.as_bytes())),
    }
}

/// RFC 9110 section 8.8.2.2: a Last-Modified is a strong validator only if it is at least one
/// second earlier than Date.
fn is_strong_date(stored: &HeaderMap) -> bool {
    let (changed, sent) = (date_in(stored, &LAST_MODIFIED), date_in(stored, &DATE));
    changed.zip(sent).is_some_and(|(changed, sent)| sent.since(changed) >= Duration::from_secs(1))
}

#[cfg(test)]
mod tests;

//! Parts of a stored body: which of them a request wants.

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE};
use smallvec::SmallVec;

use crate::date::http_date;
use crate::fields::{digits, single};
use crate::lifetime::date_in;
use crate::partial::{ContentRange, Parts, Span};
use crate::validate::strong_match;

/// What a request wants of a stored body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranged {
    /// All of it: 200.
    Whole,
    /// The bytes from `first` to `last`, both included and both inside the body: 206.
    Part {
        /// Where the part begins.
        first: u64,
        /// Its last byte.
        last: u64,
    },
    /// A part that lies outside the body: 416.
    Unsatisfiable,
}

/// What a request wants of a stored body, in as many parts as it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: 200.
    Whole,
    /// One part, inside the body: 206 with a `Content-Range`.
    One(Span),
    /// Two or more, inside the body and apart from each other, in the order in which they were
    /// asked for: 206 as `multipart/byteranges`, see [`Multipart`](crate::multipart::Multipart).
    Several(SmallVec<[Span; 4]>),
    /// Nothing that lies inside the body: 416, see [`unsatisfied`](crate::partial::unsatisfied).
    Unsatisfiable,
}

/// How many ranges one request may name. RFC 9110 sections 14.2 and 17.15: who asks for more is
/// after the work that it makes, and is sent the whole.
pub const RANGES_MAX: usize = 32;

/// Ranges with no more than this between them are sent as one: the head of a part would be longer
/// (RFC 9110 section 15.3.7.2 speaks of about 80 bytes).
const GAP_MAX: u64 = 80;

/// Which part of a stored body of `length` bytes a GET asks for (RFC 9110 section 14.2), for who
/// can send one part only.
///
/// Only a 200 has parts. A server may pass over any `Range`, and here it does for several ranges
/// at once, for units other than bytes, for what it cannot read, and where `If-Range` does not
/// hold.
#[must_use]
pub fn range(request: &HeaderMap, stored: &HeaderMap, status: StatusCode, length: u64) -> Ranged {
    let specs = asked(request, stored, status).unwrap_or_default();
    let [spec] = specs[..] else { return Ranged::Whole };
    resolve(spec, length).unwrap_or(Ranged::Whole)
}

/// Which parts of a stored body of `length` bytes a GET asks for (RFC 9110 section 14.2).
///
/// What [`range`] passes over is passed over here too, but for several ranges: those outside the
/// body are left out, those that overlap or nearly touch become one, and the others keep their
/// order (section 15.3.7.2). So never more bytes are sent than the body has. A list with one
/// malformed member is malformed, and one of more than [`RANGES_MAX`] is passed over.
#[must_use]
pub fn ranges(request: &HeaderMap, stored: &HeaderMap, status: StatusCode, length: u64) -> Wanted {
    let specs = asked(request, stored, status).unwrap_or_default();
    if specs.is_empty() || specs.len() > RANGES_MAX {
        return Wanted::Whole;
    }
    let mut spans: SmallVec<[Span; 4]> = SmallVec::new();
    for spec in &specs {
        match resolve(spec, length) {
            Some(Ranged::Part { first, last }) => coalesce(&mut spans, Span { first, last }),
            Some(Ranged::Unsatisfiable) => {}
            // The last bytes of an empty body: all there is, in no part that could be named.
            Some(Ranged::Whole) | None => return Wanted::Whole,
        }
    }
    match spans[..] {
        [] => Wanted::Unsatisfiable,
        [only] => Wanted::One(only),
        _ => Wanted::Several(spans),
    }
}

/// Which part of a body, of which only some is at hand, answers a GET (RFC 9111 section 3.3): one
/// range, all of it at hand. `None` where the origin has to be asked, also for what lies outside
/// the body and for what would be passed over.
#[must_use]
pub fn range_at_hand(
    request: &HeaderMap,
    stored: &HeaderMap,
    parts: &Parts,
) -> Option<ContentRange> {
    let specs = asked(request, stored, StatusCode::OK)?;
    let [spec] = specs[..] else { return None };
    // Where nobody knows the length, nobody knows where a range lies that goes by the end.
    let goes_by_end = spec.starts_with(b"-") || spec.ends_with(b"-");
    let length = parts.complete().or_else(|| (!goes_by_end).then_some(u64::MAX))?;
    let Ranged::Part { first, last } = resolve(spec, length)? else { return None };
    let span = Span { first, last };
    parts.cover(span).then_some(ContentRange { span, complete: parts.complete() })
}

/// Where the one range that a request asks for begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// At this byte, if there is one.
    At(u64),
    /// So many bytes before the end, wherever that is.
    BeforeEnd(u64),
}

/// Where the one range that a request asks for begins; nothing where it asks for none or several,
/// or what cannot be read. Whether it counts is not known before what it is about.
#[must_use]
pub fn begins(request: &HeaderMap) -> Option<Begins> {
    let specs = specs(single(request, &RANGE)?.as_bytes())?;
    let [spec] = specs[..] else { return None };
    resolve(spec, u64::MAX)?;
    let (first, last) = spec.split_at_checked(spec.iter().position(|byte| *byte == b'-')?)?;
    if first.is_empty() {
        return digits(last.get(1..)?).map(Begins::BeforeEnd);
    }
    digits(first).map(Begins::At)
}

/// Takes the place of the first of those that it is joined with. What it grows to may in turn
/// touch others, hence the loop, which ends since each round takes one away.
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

/// The ranges that are asked for, if they count at all.
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

/// The members of `bytes=…`, one more at most than may be; the unit is read in any case (RFC 9110
/// section 14.1).
fn specs(value: &[u8]) -> Option<SmallVec<[&[u8]; 4]>> {
    let value = value.trim_ascii();
    let (unit, set) = value.split_at_checked(value.iter().position(|byte| *byte == b'=')?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let members = set.get(1..)?.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    Some(members.filter(|member| !member.is_empty()).take(RANGES_MAX + 1).collect())
}

/// RFC 9110 section 14.1.2; `None` for what is not a range at all.
fn resolve(spec: &[u8], length: u64) -> Option<Ranged> {
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
    // A last position behind the end means the end.
    let inside = first < length;
    let last = last.min(length.saturating_sub(1));
    Some(if inside { Ranged::Part { first, last } } else { Ranged::Unsatisfiable })
}

/// The last `wanted` bytes, or all where there are fewer. An empty body has no part that could be
/// named in a Content-Range.
const fn suffix(wanted: u64, length: u64) -> Ranged {
    match (wanted, length) {
        (0, _) => Ranged::Unsatisfiable,
        (_, 0) => Ranged::Whole,
        _ => Ranged::Part { first: length.saturating_sub(wanted), last: length - 1 },
    }
}

/// RFC 9110 section 13.1.5: the part is wanted only if the client's other parts are of the same
/// bytes. Tags are compared strongly, and a date must be exactly the stored Last-Modified.
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

/// RFC 9110 section 8.8.2.2: a Last-Modified identifies the bytes only if they had a second to
/// change again before they were sent.
fn is_strong_date(stored: &HeaderMap) -> bool {
    let (changed, sent) = (date_in(stored, &LAST_MODIFIED), date_in(stored, &DATE));
    changed.zip(sent).is_some_and(|(changed, sent)| sent.since(changed) >= Duration::from_secs(1))
}

#[cfg(test)]
mod tests;

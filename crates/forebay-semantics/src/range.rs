//! A part of a stored body.

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE};

use crate::date::http_date;
use crate::fields::{digits, single};
use crate::lifetime::date_in;
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

/// Which part of a stored body of `length` bytes a GET asks for (RFC 9110 section 14.2).
///
/// Only a 200 has parts. A server may pass over any `Range`, and here it does for several ranges
/// at once, for units other than bytes, for what it cannot read, and where `If-Range` does not
/// hold.
#[must_use]
pub fn range(request: &HeaderMap, stored: &HeaderMap, status: StatusCode, length: u64) -> Ranged {
    if status != StatusCode::OK || !request.contains_key(RANGE) || !if_range(request, stored) {
        return Ranged::Whole;
    }
    let asked = single(request, &RANGE).and_then(|value| only_spec(value.as_bytes()));
    asked.and_then(|spec| resolve(spec, length)).unwrap_or(Ranged::Whole)
}

/// The one range of `bytes=…`; the unit is read in any case (RFC 9110 section 14.1).
fn only_spec(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    let (unit, set) = value.split_at_checked(value.iter().position(|byte| *byte == b'=')?)?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = set
        .get(1..)?
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|spec| !spec.is_empty());
    let first = specs.next()?;
    specs.next().is_none().then_some(first)
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

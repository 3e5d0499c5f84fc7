//! Target: `Range` and `If-Range` over a stored body.

use forebay_semantics::{SingleRange, range};
use http::{HeaderMap, StatusCode};

use crate::block::{Block, one};
use crate::run::{Outcome, Target};

/// Fuzz target for `Range` and `If-Range` over a stored body.
pub const TARGET: Target = Target { check, outcomes_min: 7 };

fn check(input: &[u8]) -> Outcome {
    let (request, stored) = Block::pair(input);
    let length = stored.number("length").unwrap_or(100);
    let (asked, stored) = ((&request.headers, &stored.headers), &stored);
    let ranged = range(asked.0, asked.1, StatusCode::OK, length);
    if stored.status() != StatusCode::OK {
        let other = range(asked.0, asked.1, stored.status(), length);
        assert_eq!(other, SingleRange::Whole, "only a 200 has parts");
    }
    match ranged {
        SingleRange::Whole => {}
        SingleRange::Part { first, last } => assert_part(asked.0, asked.1, length, first, last),
        SingleRange::Unsatisfiable => {
            assert_eq!(range(asked.0, asked.1, StatusCode::OK, 0), ranged, "nothing is larger");
            assert!(asked.0.contains_key("range"));
        }
    }
    if let Some(expected) = simple(asked.0, length) {
        assert_eq!(ranged, expected, "by the plain reading of RFC 9110 section 14.1.2");
    }
    let conditional = asked.0.contains_key("if-range");
    Outcome::of((std::mem::discriminant(&ranged), conditional, edges(ranged, length)))
}

fn assert_part(request: &HeaderMap, stored: &HeaderMap, length: u64, first: u64, last: u64) {
    assert!(first <= last && last < length, "{first}-{last} of {length}");
    assert!(request.contains_key("range"));
    let spelled = format!("bytes={first}-{last}");
    let again =
        one("range", spelled.as_bytes()).map(|plain| range(&plain, stored, StatusCode::OK, length));
    assert_eq!(again, Some(SingleRange::Part { first, last }), "written and read again");
    let mut other = stored.clone();
    other.remove("etag");
    other.remove("last-modified");
    if request.contains_key("if-range") {
        let blind = range(request, &other, StatusCode::OK, length);
        assert_eq!(blind, SingleRange::Whole, "If-Range holds of nothing that has no validator");
    }
}

/// Meaning of a single `bytes=FIRST-LAST` with few digits; `None` for other values.
fn simple(request: &HeaderMap, length: u64) -> Option<SingleRange> {
    if request.contains_key("if-range") || request.get_all("range").iter().count() != 1 {
        return None;
    }
    let spec = request.get("range")?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = spec.split_once('-')?;
    let number = |text: &str| {
        let is_short = (1..=18).contains(&text.len());
        let is_plain = is_short && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (first, last) = (number(first)?, number(last)?);
    Some(if last < first {
        SingleRange::Whole
    } else if first >= length {
        SingleRange::Unsatisfiable
    } else {
        SingleRange::Part { first, last: last.min(length - 1) }
    })
}

fn edges(ranged: SingleRange, length: u64) -> Option<(bool, bool)> {
    match ranged {
        SingleRange::Part { first, last } => Some((first == 0, last + 1 == length)),
        SingleRange::Whole | SingleRange::Unsatisfiable => None,
    }
}

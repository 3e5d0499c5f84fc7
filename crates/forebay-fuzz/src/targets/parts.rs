//! Target: multiple ranges of a stored body, and combination of partial responses.

use forebay_semantics::multipart::{Multipart, Piece};
use forebay_semantics::partial::{ContentRange, Parts, SPANS_MAX, Span, request_missing};
use forebay_semantics::range::{RANGES_MAX, Wanted, ranges, stored_range};
use forebay_semantics::{SingleRange, range};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::block::{Block, one};
use crate::run::{Outcome, Target};

/// Fuzz target for several ranges of a body, and for the combination of partial responses.
pub const TARGET: Target = Target { check, outcomes_min: 7 };

fn check(input: &[u8]) -> Outcome {
    let (request, stored) = Block::pair(input);
    let length = stored.number("length").unwrap_or(1_000);
    let wanted = ranges(&request.headers, &stored.headers, StatusCode::OK, length);
    match range(&request.headers, &stored.headers, StatusCode::OK, length) {
        SingleRange::Part { first, last } => {
            assert_eq!(wanted, Wanted::One(Span { first, last }), "one by either way");
        }
        SingleRange::Unsatisfiable => assert_eq!(wanted, Wanted::Unsatisfiable),
        SingleRange::Whole => {}
    }
    let count = match &wanted {
        Wanted::Several(spans) => {
            assert_several(spans, length, &stored.headers);
            2
        }
        Wanted::One(span) => {
            assert!(span.first <= span.last && span.last < length, "{span:?}");
            1
        }
        Wanted::Whole | Wanted::Unsatisfiable => 0,
    };
    let (parts, mark) = gathered(&request.headers);
    if let Some(available) = stored_range(&request.headers, &stored.headers, &parts) {
        assert!(parts.cover(available.span) && available.complete == parts.complete());
    }
    let mut asked = request.headers.clone();
    if !request_missing(&mut asked, &stored.headers, &parts) {
        assert_eq!(asked, request.headers, "nothing half asked for");
    }
    Outcome::of((std::mem::discriminant(&wanted), count, mark))
}

fn assert_several(spans: &[Span], length: u64, stored: &HeaderMap) {
    assert!((2..=RANGES_MAX).contains(&spans.len()), "{spans:?}");
    let mut sorted = spans.to_vec();
    sorted.sort_by_key(|span| span.first);
    assert!(sorted.windows(2).all(|pair| pair[0].last + 1 < pair[1].first), "{spans:?}");
    assert!(sorted.last().is_some_and(|span| span.last < length), "{spans:?}");
    let spec = |span: &Span| format!("{}-{}", span.first, span.last);
    let line = format!("bytes={}", spans.iter().map(spec).collect::<Vec<_>>().join(", "));
    let again =
        one("range", line.as_bytes()).map(|asked| ranges(&asked, stored, StatusCode::OK, length));
    assert_eq!(again, Some(Wanted::Several(spans.into())), "written and read again");
    assert_sent(spans, length, stored);
}

fn assert_sent(spans: &[Span], length: u64, stored: &HeaderMap) {
    let multipart = Multipart::new(spans, length, stored, 7);
    let bodies = multipart.pieces().iter().filter_map(|piece| match piece {
        Piece::Body(span) => Some(*span),
        Piece::Text(_) => None,
    });
    assert!(bodies.eq(spans.iter().copied()), "the parts, in their order");
    let sent: u64 = spans.iter().map(|span| span.len()).sum();
    assert!(multipart.content_length() > sent && sent <= length);
}

/// Adds all partial responses of the input.
fn gathered(headers: &HeaderMap) -> (Parts, (usize, bool, bool)) {
    let mut parts = Parts::default();
    let read = |value: &HeaderValue| ContentRange::read(value.as_bytes());
    for part in headers.get_all("content-range").iter().filter_map(read) {
        assert_eq!(ContentRange::read(part.to_value().as_bytes()), Some(part));
        let before = parts.clone();
        if parts.insert(part) {
            assert!(parts.cover(part.span), "{part:?} in {parts:?}");
            assert!(before.spans().iter().all(|span| parts.cover(*span)), "{before:?} {parts:?}");
        } else {
            assert_eq!(parts, before, "nothing half taken in");
        }
    }
    assert!(parts.spans().len() <= SPANS_MAX);
    assert!(parts.spans().windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
    if let Some((from, to)) = parts.missing() {
        assert!(!parts.cover(Span { first: from, last: from }), "it is there: {parts:?}");
        assert!(to.is_none_or(|to| from <= to && !parts.is_whole()));
    }
    let mark = (parts.spans().len().min(3), parts.is_whole(), parts.complete().is_some());
    (parts, mark)
}

use proptest::prelude::*;

use super::*;
use crate::samples::headers;

const fn part(first: u64, last: u64) -> SingleRange {
    SingleRange::Part { first, last }
}

#[test]
fn one_range_is_limited_to_the_body() {
    // RFC 9110 section 14.1.2.
    let rows = [
        ("bytes=0-1", part(0, 1)),
        ("bytes=0-0", part(0, 0)),
        ("bytes=9-9", part(9, 9)),
        ("bytes=1-", part(1, 9)),
        ("bytes=0-", part(0, 9)),
        ("bytes=5-100", part(5, 9)),
        ("bytes=5-99999999999999999999999", part(5, 9)),
        ("bytes=-1", part(9, 9)),
        ("bytes=-10", part(0, 9)),
        ("bytes=-100", part(0, 9)),
        ("Bytes=0-1", part(0, 1)),
        (" bytes= 0-1 , ", part(0, 1)),
        ("bytes=10-", SingleRange::Unsatisfiable),
        ("bytes=10-20", SingleRange::Unsatisfiable),
        ("bytes=99999999999999999999999-", SingleRange::Unsatisfiable),
        ("bytes=-0", SingleRange::Unsatisfiable),
    ];
    for (asked, expected) in rows {
        let request = headers(&[&format!("range: {asked}")]);
        assert_eq!(range(&request, &HeaderMap::new(), StatusCode::OK, 10), expected, "{asked}");
    }
}

#[test]
fn anything_but_one_range_of_bytes_is_ignored() {
    // RFC 9110 section 14.2: a server may ignore the Range field.
    for asked in [
        "bytes=0-1,3-4",
        "bytes=0-1, -1",
        "bytes=2-1",
        "bytes=",
        "bytes=-",
        "bytes=,",
        "bytes=a-b",
        "bytes=1",
        "bytes=0x1-2",
        "bytes=+1-2",
        "bytes=--1",
        "bytes=0 - 1",
        "items=0-1",
        "0-1",
        "",
    ] {
        let request = headers(&[&format!("range: {asked}")]);
        let whole = SingleRange::Whole;
        assert_eq!(range(&request, &HeaderMap::new(), StatusCode::OK, 10), whole, "{asked}");
    }
    let twice = headers(&["range: bytes=0-1", "range: bytes=0-1"]);
    assert_eq!(range(&twice, &HeaderMap::new(), StatusCode::OK, 10), SingleRange::Whole);
}

#[test]
fn only_a_nonempty_200_has_ranges() {
    let request = headers(&["range: bytes=0-1"]);
    let none = HeaderMap::new();
    assert_eq!(range(&none, &none, StatusCode::OK, 10), SingleRange::Whole);
    assert_eq!(range(&request, &none, StatusCode::NOT_FOUND, 10), SingleRange::Whole);
    assert_eq!(range(&request, &none, StatusCode::OK, 0), SingleRange::Unsatisfiable);
    let last = headers(&["range: bytes=-1"]);
    assert_eq!(range(&last, &none, StatusCode::OK, 0), SingleRange::Whole);
}

#[test]
fn if_range_requires_an_equal_strong_validator() {
    // RFC 9110 sections 13.1.5 and 8.8.2.2.
    let tagged: &[&str] = &["etag: \"a\""];
    let weak: &[&str] = &["etag: W/\"a\""];
    let changed = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT";
    let later: &[&str] = &[changed, "date: Sun, 06 Nov 1994 08:49:38 GMT"];
    let at_once: &[&str] = &[changed, "date: Sun, 06 Nov 1994 08:49:37 GMT"];
    let rows: [(&str, &[&str], bool); 11] = [
        ("\"a\"", tagged, true),
        ("\"b\"", tagged, false),
        ("W/\"a\"", tagged, false),
        ("W/\"a\"", weak, false),
        ("a", &["etag: a"], false),
        ("\"a\"", later, false),
        ("Sun, 06 Nov 1994 08:49:37 GMT", later, true),
        ("Sun, 06 Nov 1994 08:49:36 GMT", later, false),
        ("Sun, 06 Nov 1994 08:49:38 GMT", later, false),
        ("Sun, 06 Nov 1994 08:49:37 GMT", at_once, false),
        ("Sun, 06 Nov 1994 08:49:37 GMT", &[changed], false),
    ];
    for (condition, stored, holds) in rows {
        let request = headers(&["range: bytes=0-1", &format!("if-range: {condition}")]);
        let expected = if holds { part(0, 1) } else { SingleRange::Whole };
        let ranged = range(&request, &headers(stored), StatusCode::OK, 10);
        assert_eq!(ranged, expected, "{condition} {stored:?}");
    }
}

const fn span(first: u64, last: u64) -> Span {
    Span { first, last }
}

fn wanted(asked: &str, length: u64) -> Wanted {
    let request = headers(&[&format!("range: {asked}")]);
    ranges(&request, &HeaderMap::new(), StatusCode::OK, length)
}

#[test]
fn several_ranges_keep_their_order_and_near_ones_are_merged() {
    // RFC 9110 sections 14.1.2, 14.2 and 15.3.7.2.
    let several = |spans: &[Span]| Wanted::Several(spans.iter().copied().collect());
    let rows = [
        ("bytes=0-9", Wanted::One(span(0, 9))),
        ("bytes=0-9,500-509", several(&[span(0, 9), span(500, 509)])),
        ("bytes=500-509, 0-9", several(&[span(500, 509), span(0, 9)])),
        ("bytes=0-9,-10", several(&[span(0, 9), span(990, 999)])),
        ("bytes=0-9,990-", several(&[span(0, 9), span(990, 999)])),
        ("bytes=500-,0-9", several(&[span(500, 999), span(0, 9)])),
        // Overlapping, adjacent and nearly adjacent ranges.
        ("bytes=0-9,5-20", Wanted::One(span(0, 20))),
        ("bytes=0-9,10-20", Wanted::One(span(0, 20))),
        ("bytes=0-9,90-99", Wanted::One(span(0, 99))),
        ("bytes=0-9,91-99", several(&[span(0, 9), span(91, 99)])),
        ("bytes=91-99,0-9", several(&[span(91, 99), span(0, 9)])),
        ("bytes=90-99,0-9", Wanted::One(span(0, 99))),
        ("bytes=0-0,0-0,0-0", Wanted::One(span(0, 0))),
        ("bytes=0-,0-,0-", Wanted::One(span(0, 999))),
        // The third range joins the first two.
        ("bytes=0-9,500-509,5-505", Wanted::One(span(0, 509))),
        ("bytes=900-909,0-9,300-309,5-305", several(&[span(900, 909), span(0, 309)])),
        ("bytes=300-309,900-909,0-9,5-305", several(&[span(0, 309), span(900, 909)])),
        // Ranges outside the body are left out.
        ("bytes=0-9,2000-3000", Wanted::One(span(0, 9))),
        ("bytes=2000-,-0", Wanted::Unsatisfiable),
        ("bytes=0-9,a", Wanted::Whole),
        ("bytes=0-9,9-0", Wanted::Whole),
        ("bytes=,", Wanted::Whole),
        ("lines=0-9,20-29", Wanted::Whole),
    ];
    for (asked, expected) in rows {
        assert_eq!(wanted(asked, 1_000), expected, "{asked}");
    }
    assert_eq!(wanted("bytes=-1", 0), Wanted::Whole);
    assert_eq!(wanted("bytes=0-1", 0), Wanted::Unsatisfiable);
    assert_eq!(wanted("bytes=0-1,-1", 0), Wanted::Whole);
}

#[test]
fn more_than_the_maximum_of_ranges_are_ignored() {
    // RFC 9110 section 17.15.
    let many = |count: usize| {
        let specs: Vec<_> = (0..count).map(|n| format!("{0}-{0}", n * 1_000)).collect();
        wanted(&format!("bytes={}", specs.join(",")), 1 << 40)
    };
    assert!(matches!(many(RANGES_MAX), Wanted::Several(spans) if spans.len() == RANGES_MAX));
    assert_eq!(many(RANGES_MAX + 1), Wanted::Whole);
}

#[test]
fn if_range_applies_to_several_ranges_too() {
    // RFC 9110 sections 13.1.5 and 14.2.
    let request = headers(&["range: bytes=0-9,500-509", "if-range: \"a\""]);
    let (same, other) = (headers(&["etag: \"a\""]), headers(&["etag: \"b\""]));
    assert!(matches!(ranges(&request, &same, StatusCode::OK, 1_000), Wanted::Several(_)));
    assert_eq!(ranges(&request, &other, StatusCode::OK, 1_000), Wanted::Whole);
    assert_eq!(ranges(&request, &same, StatusCode::NOT_FOUND, 1_000), Wanted::Whole);
    let twice = headers(&["range: bytes=0-9", "range: bytes=500-509"]);
    assert_eq!(ranges(&twice, &same, StatusCode::OK, 1_000), Wanted::Whole);
}

#[test]
fn stored_parts_answer_only_ranges_inside_them() {
    // RFC 9111 section 3.3.
    let of = |first: u64, last: u64, complete: Option<u64>| {
        let mut parts = Parts::default();
        assert!(parts.insert(ContentRange { span: span(first, last), complete }));
        parts
    };
    let (known, open) = (of(4, 9, Some(10)), of(4, 9, None));
    let rows = [
        ("bytes=6-8", Some((6, 8)), Some((6, 8))),
        ("bytes=4-9", Some((4, 9)), Some((4, 9))),
        ("bytes=6-", Some((6, 9)), None),
        ("bytes=-1", Some((9, 9)), None),
        ("bytes=6-20", Some((6, 9)), None),
        ("bytes=3-8", None, None),
        ("bytes=-7", None, None),
        ("bytes=10-", None, None),
        ("bytes=6-7,8-9", None, None),
        ("bytes=x", None, None),
        ("lines=6-8", None, None),
    ];
    let spans =
        |range: Option<ContentRange>| range.map(|range| (range.span.first, range.span.last));
    for (asked, of_known, of_open) in rows {
        let request = headers(&[&format!("range: {asked}")]);
        let at_hand = |parts| spans(stored_range(&request, &HeaderMap::new(), parts));
        assert_eq!((at_hand(&known), at_hand(&open)), (of_known, of_open), "{asked}");
    }
    assert_eq!(stored_range(&HeaderMap::new(), &HeaderMap::new(), &known), None);
    let end = of(u64::MAX - 9, u64::MAX - 1, None);
    let last = headers(&["range: bytes=-1"]);
    assert_eq!(stored_range(&last, &HeaderMap::new(), &end), None, "nobody knows the end");
    let other = headers(&["range: bytes=6-8", "if-range: \"a\""]);
    assert_eq!(stored_range(&other, &headers(&["etag: \"b\""]), &known), None);
    assert!(stored_range(&other, &headers(&["etag: \"a\""]), &known).is_some());
}

proptest! {
    #[test]
    fn parts_are_inside_apart_and_hold_what_was_asked_for(
        asked in prop::collection::vec((0u64..2_000, 0u64..400), 1..RANGES_MAX),
        length in 1u64..1_500,
    ) {
        let specs: Vec<_> =
            asked.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
        let spans = match wanted(&format!("bytes={}", specs.join(",")), length) {
            Wanted::One(span) => SmallVec::from_slice(&[span]),
            Wanted::Several(spans) => spans,
            Wanted::Unsatisfiable => SmallVec::new(),
            Wanted::Whole => return Err(TestCaseError::fail("a list that is in order")),
        };
        for (first, more) in &asked {
            let inside = *first < length;
            let last = (first + more).min(length - 1);
            let is_held = spans.iter().any(|span| span.first <= *first && last <= span.last);
            prop_assert!(!inside || is_held, "{first} of {spans:?}");
        }
        prop_assert!(spans.iter().all(|span| span.first <= span.last && span.last < length));
        prop_assert!(spans.iter().map(|span| span.len()).sum::<u64>() <= length);
        let mut sorted = spans.to_vec();
        sorted.sort_by_key(|span| span.first);
        prop_assert!(sorted.windows(2).all(|pair| pair[0].last + GAP_MAX + 1 < pair[1].first));
    }
}

#[test]
fn where_one_range_begins_is_known_before_the_length_is() {
    let rows = [
        ("bytes=0-", Some(RangeStart::At(0))),
        ("bytes=7-9", Some(RangeStart::At(7))),
        ("bytes=-5", Some(RangeStart::BeforeEnd(5))),
        ("bytes=9-7", None),
        ("bytes=0-1,3-4", None),
        ("bytes=", None),
        ("lines=0-1", None),
        ("bytes=a-", None),
    ];
    for (value, expected) in rows {
        let mut request = HeaderMap::new();
        request.insert(RANGE, HeaderValue::from_static(value));
        assert_eq!(range_start(&request), expected, "{value}");
    }
    assert_eq!(range_start(&HeaderMap::new()), None);
}

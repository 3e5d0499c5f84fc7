use proptest::prelude::*;

use super::*;
use crate::samples::headers;

const fn span(first: u64, last: u64) -> Span {
    Span { first, last }
}

const fn of(first: u64, last: u64, complete: Option<u64>) -> ContentRange {
    ContentRange { span: span(first, last), complete }
}

#[test]
fn a_contradictory_content_range_is_invalid() {
    // RFC 9110 section 14.4.
    let rows = [
        ("bytes 0-9/100", Some(of(0, 9, Some(100)))),
        ("Bytes 0-9/100 ", Some(of(0, 9, Some(100)))),
        ("bytes 0-0/1", Some(of(0, 0, Some(1)))),
        ("bytes 4-9/*", Some(of(4, 9, None))),
        ("bytes 99-99/100", Some(of(99, 99, Some(100)))),
        ("bytes 0-100/100", None),
        ("bytes 9-0/100", None),
        ("bytes */100", None),
        ("bytes 0-9", None),
        ("bytes 0-/100", None),
        ("bytes -9/100", None),
        ("bytes=0-9/100", None),
        ("bytes 0-9/", None),
        ("bytes 0-9/1x", None),
        ("bytes 0 - 9/100", None),
        ("items 0-9/100", None),
        ("bytes 0-99999999999999999999/*", None),
        ("", None),
    ];
    for (text, expected) in rows {
        assert_eq!(ContentRange::read(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(of(0, 9, Some(100)).to_value(), "bytes 0-9/100");
    assert_eq!(of(0, 9, None).to_value(), "bytes 0-9/*");
    assert_eq!(unsatisfied(0), "bytes */0");
}

#[test]
fn a_part_is_the_received_prefix_of_its_range() {
    // RFC 9111 section 3.3.
    let range = "content-range: bytes 4-9/100";
    type Row<'a> = (u16, &'a [&'a str], Option<(u64, u64)>);
    let rows: [Row<'_>; 10] = [
        (206, &[range], Some((4, 9))),
        (206, &[range, "content-length: 6"], Some((4, 9))),
        (206, &[range, "content-length: 5"], Some((4, 8))),
        (206, &[range, "content-length: 1"], Some((4, 4))),
        (206, &[range, "content-length: 7"], None),
        (206, &[range, "content-length: 0"], None),
        (206, &[range, "content-length: x"], None),
        (206, &[range, range], None),
        (206, &["content-type: multipart/byteranges; boundary=a", "content-length: 6"], None),
        (200, &[range], None),
    ];
    for (status, lines, expected) in rows {
        let status = StatusCode::from_u16(status).unwrap();
        let part = received_range(ResponseRef { status, headers: &headers(lines) });
        let expected = expected.map(|(first, last)| of(first, last, Some(100)));
        assert_eq!(part, expected, "{status} {lines:?}");
    }
}

#[test]
fn parts_combine_only_with_equal_strong_tag_vary_and_coding() {
    // RFC 9111 section 3.4.
    let modified = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT";
    let tag = "etag: \"a\"";
    let rows: [(&[&str], &[&str], bool); 10] = [
        (&[tag], &[tag], true),
        (&["etag: \"a\""], &["etag: \"b\""], false),
        (&["etag: W/\"a\""], &["etag: W/\"a\""], false),
        (&["etag: \"a\""], &[], false),
        (&[], &[], false),
        (&[modified], &[modified], false),
        (&[tag, "vary: a, b"], &[tag, "vary: B,a"], true),
        (&[tag, "vary: a"], &[tag], false),
        (&[tag], &[tag, "vary: a"], false),
        (&[tag, "content-encoding: gzip"], &[tag], false),
    ];
    for (stored, fresh, expected) in rows {
        assert_eq!(
            can_combine(&headers(stored), &headers(fresh)),
            expected,
            "{stored:?} {fresh:?}"
        );
    }
}

#[test]
fn combined_parts_have_the_later_fields_and_no_content_range() {
    // RFC 9111 section 3.4.
    let old = ["etag: \"a\"", "a: 1", "b: 1", "content-range: bytes 0-4/10", "content-length: 5"];
    let new = ["etag: \"a\"", "a: 2", "content-range: bytes 5-9/10", "content-length: 5"];
    let joined = combined_fields(&headers(&old), &headers(&new));
    assert_eq!(joined, headers(&["etag: \"a\"", "a: 2", "b: 1"]));
}

fn parts(ranges: &[ContentRange]) -> Parts {
    let mut parts = Parts::default();
    for range in ranges {
        assert!(parts.insert(*range), "{range:?}");
    }
    parts
}

#[test]
fn adjacent_parts_are_merged_until_the_body_is_complete() {
    let mut some = parts(&[of(4, 9, Some(10))]);
    assert_eq!(some.missing(), Some((0, Some(3))));
    assert!(some.cover(span(6, 8)) && !some.cover(span(3, 5)) && !some.is_whole());
    assert!(some.insert(of(0, 3, None)));
    assert_eq!((some.spans(), some.missing()), (&[span(0, 9)][..], None));
    assert!(some.is_whole() && some.complete() == Some(10));
    let gaps = parts(&[of(0, 1, None), of(8, 9, None), of(4, 5, None)]);
    assert_eq!(gaps.spans(), [span(0, 1), span(4, 5), span(8, 9)]);
    assert_eq!(gaps.missing(), Some((2, Some(3))));
    assert!(!gaps.is_whole() && !gaps.cover(span(0, 9)));
    assert_eq!(parts(&[of(0, 4, None)]).missing(), Some((5, None)));
    assert_eq!(Parts::default().missing(), Some((0, None)));
    let over = parts(&[of(0, 1, None), of(8, 9, None), of(4, 5, None), of(1, 8, None)]);
    assert_eq!(over.spans(), [span(0, 9)]);
}

#[test]
fn a_part_that_contradicts_the_length_is_rejected() {
    let mut known = parts(&[of(0, 4, Some(10))]);
    for range in [of(5, 9, Some(11)), of(5, 10, None), of(20, 29, Some(30))] {
        let before = known.clone();
        assert!(!known.insert(range), "{range:?}");
        assert_eq!(known, before);
    }
    let mut open = parts(&[of(0, 9, None)]);
    assert!(!open.insert(of(0, 1, Some(5))), "bytes are at hand behind that end");
}

#[test]
fn separate_parts_are_bounded() {
    let mut many = Parts::default();
    for number in 0..SPANS_MAX as u64 {
        assert!(many.insert(of(number * 10, number * 10, None)));
    }
    assert!(!many.insert(of(100_000, 100_000, None)));
    assert!(many.insert(of(1, 1, None)), "one that touches another makes no more of them");
    assert_eq!(many.spans().len(), SPANS_MAX);
}

#[test]
fn missing_bytes_are_requested_if_they_can_be_combined() {
    // RFC 9111 section 3.4 and RFC 9110 section 13.1.5.
    let tagged = headers(&["etag: \"a\""]);
    let mut request = headers(&["a: 1", "range: bytes=0-1", "if-range: \"client\""]);
    assert!(request_missing(&mut request, &tagged, &parts(&[of(0, 4, Some(10))])));
    assert_eq!(request, headers(&["a: 1", "range: bytes=5-", "if-range: \"a\""]));
    assert!(request_missing(&mut request, &tagged, &parts(&[of(4, 9, Some(10))])));
    assert_eq!(request["range"], "bytes=0-3");
    let before = request.clone();
    for stored in [headers(&["etag: W/\"a\""]), HeaderMap::new()] {
        assert!(!request_missing(&mut request, &stored, &parts(&[of(0, 4, Some(10))])));
    }
    assert!(!request_missing(&mut request, &tagged, &parts(&[of(0, 9, Some(10))])));
    assert!(!request_missing(&mut request, &tagged, &Parts::default()));
    assert_eq!(request, before);
}

proptest! {
    #[test]
    fn what_is_covered_is_exactly_what_came(
        ranges in prop::collection::vec((0u64..40, 0u64..8), 0..20),
    ) {
        let place = |place: u64| usize::try_from(place).unwrap();
        let mut parts = Parts::default();
        let mut bytes = [false; 64];
        for (first, more) in ranges {
            prop_assert!(parts.insert(of(first, first + more, None)));
            bytes[place(first)..=place(first + more)].fill(true);
        }
        for (at, is_there) in bytes.iter().enumerate() {
            prop_assert_eq!(parts.cover(span(at as u64, at as u64)), *is_there);
        }
        prop_assert!(parts.spans().windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
        let (from, to) = parts.missing().unwrap();
        prop_assert!(bytes[..place(from)].iter().all(|there| *there));
        prop_assert!(!bytes[place(from)..=to.map_or(63, place)].iter().any(|there| *there));
    }

    #[test]
    fn a_written_range_is_read_back(
        first in 0u64..1 << 40,
        more in 0u64..1 << 20,
        rest in any::<u32>(),
    ) {
        let complete = (rest % 2 == 0).then(|| first + more + 1 + u64::from(rest));
        let range = of(first, first + more, complete);
        prop_assert_eq!(ContentRange::read(range.to_value().as_bytes()), Some(range));
    }
}

use super::*;
use http::header::{HeaderName, HeaderValue};

fn headers(lines: &[&str]) -> HeaderMap {
    lines
        .iter()
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        })
        .collect()
}

const fn part(first: u64, last: u64) -> Ranged {
    Ranged::Part { first, last }
}

#[test]
fn one_range_of_bytes_is_cut_to_the_body() {
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
        ("bytes=10-", Ranged::Unsatisfiable),
        ("bytes=10-20", Ranged::Unsatisfiable),
        ("bytes=99999999999999999999999-", Ranged::Unsatisfiable),
        ("bytes=-0", Ranged::Unsatisfiable),
    ];
    for (asked, expected) in rows {
        let request = headers(&[&format!("range: {asked}")]);
        assert_eq!(range(&request, &HeaderMap::new(), StatusCode::OK, 10), expected, "{asked}");
    }
}

#[test]
fn what_is_not_one_range_of_bytes_is_passed_over() {
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
        let whole = Ranged::Whole;
        assert_eq!(range(&request, &HeaderMap::new(), StatusCode::OK, 10), whole, "{asked}");
    }
    let twice = headers(&["range: bytes=0-1", "range: bytes=0-1"]);
    assert_eq!(range(&twice, &HeaderMap::new(), StatusCode::OK, 10), Ranged::Whole);
}

#[test]
fn only_a_200_has_parts_and_an_empty_body_has_none() {
    let request = headers(&["range: bytes=0-1"]);
    let none = HeaderMap::new();
    assert_eq!(range(&none, &none, StatusCode::OK, 10), Ranged::Whole);
    assert_eq!(range(&request, &none, StatusCode::NOT_FOUND, 10), Ranged::Whole);
    assert_eq!(range(&request, &none, StatusCode::OK, 0), Ranged::Unsatisfiable);
    let last = headers(&["range: bytes=-1"]);
    assert_eq!(range(&last, &none, StatusCode::OK, 0), Ranged::Whole);
}

#[test]
fn if_range_needs_the_very_same_bytes() {
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
        let expected = if holds { part(0, 1) } else { Ranged::Whole };
        let ranged = range(&request, &headers(stored), StatusCode::OK, 10);
        assert_eq!(ranged, expected, "{condition} {stored:?}");
    }
}

use http::header::CACHE_CONTROL;

use super::*;
use crate::samples::headers;

const SECOND_BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const THEN_850: &str = "Sunday, 06-Nov-94 08:49:37 GMT";

#[test]
fn validators_are_kept_byte_for_byte() {
    let dated = format!("last-modified: {THEN}");
    let both = validator(&headers(&["etag: W/\"a\"", &dated])).unwrap();
    assert_eq!(both.tag.as_deref(), Some(&b"W/\"a\""[..]));
    assert_eq!(both.modified.as_deref(), Some(THEN.as_bytes()));
    let tagged = validator(&headers(&["etag: \"a\"", "last-modified: yesterday"])).unwrap();
    assert_eq!(tagged.modified, None);
    assert_eq!(validator(&HeaderMap::new()), None);
    assert_eq!(validator(&headers(&["last-modified: yesterday"])), None);
    assert_eq!(validator(&headers(&["etag: "])), None);
    assert_eq!(validator(&headers(&["etag: \"a\"", "etag: \"b\""])), None);
}

#[test]
fn shared_loads_have_the_caches_conditions_only() {
    let mut request = headers(&[
        "if-none-match: \"x\"",
        "if-modified-since: x",
        "if-match: \"x\"",
        "if-unmodified-since: x",
        "if-range: \"x\"",
        "range: bytes=0-1",
        "accept: a",
    ]);
    strip_conditions(&mut request);
    assert_eq!(request, headers(&["accept: a"]));
    let dated = format!("last-modified: {THEN}");
    let stored = headers(&["etag: \"ü\"", &dated]);
    make_conditional(&mut request, &validator(&stored).unwrap());
    let since = format!("if-modified-since: {THEN}");
    assert_eq!(request, headers(&["accept: a", "if-none-match: \"ü\"", &since]));
}

#[test]
fn an_invalid_validator_is_omitted() {
    let mut request = headers(&["if-none-match: \"client\""]);
    let evil = Validator { tag: Some(Bytes::from_static(b"a\r\nx: y")), modified: None };
    make_conditional(&mut request, &evil);
    assert!(request.is_empty());
}

#[test]
fn names_in_the_stored_vary_stay() {
    let rows: [(&[&str], &[&str], &[&str]); 5] = [
        (&["vary: Cookie"], &[], &["vary: Cookie"]),
        (&[], &["vary: a"], &["vary: a"]),
        (&["vary: Cookie"], &["vary: a, cookie"], &["vary: a, cookie"]),
        (&["vary: Cookie, a, b"], &["vary: A"], &["vary: A", "vary: Cookie", "vary: b"]),
        (&["vary: Cookie"], &["vary: *"], &["vary: *", "vary: Cookie"]),
    ];
    for (stored, fresh, expected) in rows {
        let merged = merge_not_modified(&headers(stored), &headers(fresh));
        assert_eq!(merged, headers(expected), "{stored:?} {fresh:?}");
    }
}

#[test]
fn a_304_replaces_only_the_fields_that_it_has() {
    // RFC 9111 section 3.2.
    let stored = headers(&[
        "cache-control: max-age=1",
        "cache-control: public",
        "date: old",
        "age: 100",
        "content-length: 10",
        "content-type: text/plain",
        "content-encoding: gzip",
        "set-cookie: old=1",
        "x-kept: 1",
        "x-new: old",
    ]);
    let fresh = headers(&[
        "connection: close, x-hop",
        "x-hop: 1",
        "keep-alive: 1",
        "cache-control: max-age=3600",
        "date: new",
        "content-length: 0",
        "content-type: text/html",
        "content-encoding: br",
        "content-range: bytes 0-1/2",
        "set-cookie: new=1",
        "set-cookie2: new=1",
        "x-new: one",
        "x-new: two",
    ]);
    let expected = headers(&[
        "cache-control: max-age=3600",
        "date: new",
        "content-length: 10",
        "content-type: text/plain",
        "content-encoding: gzip",
        "set-cookie: old=1",
        "x-kept: 1",
        "set-cookie2: new=1",
        "x-new: one",
        "x-new: two",
    ]);
    assert_eq!(merge_not_modified(&stored, &fresh), expected);
    let silent = merge_not_modified(&stored, &HeaderMap::new());
    assert!(!silent.contains_key(DATE) && !silent.contains_key(AGE));
    assert_eq!(silent.get_all(CACHE_CONTROL).into_iter().count(), 2);
}

#[test]
fn a_304_with_another_validator_does_not_apply() {
    // RFC 9111 section 4.3.4.
    let (then, before) =
        (format!("last-modified: {THEN}"), format!("last-modified: {SECOND_BEFORE}"));
    let rows: [(&[&str], &[&str], bool); 10] = [
        (&["etag: \"a\""], &[], true),
        (&["etag: \"a\""], &["etag: \"a\""], true),
        (&["etag: \"a\""], &["etag: \"b\""], false),
        (&["etag: W/\"a\""], &["etag: \"a\""], false),
        (&["etag: \"a\""], &["etag: W/\"a\""], true),
        (&["etag: W/\"a\""], &["etag: W/\"b\""], false),
        (&[], &["etag: \"a\""], false),
        (&[&then], &[&then], true),
        (&[&then], &[&before], false),
        (&["etag: \"a\""], &[&before], true),
    ];
    for (stored, fresh, expected) in rows {
        assert_eq!(confirms(&headers(stored), &headers(fresh)), expected, "{stored:?} {fresh:?}");
    }
}

fn has_it(request: &[&str], stored: &[&str]) -> bool {
    client_has_it(&headers(request), StatusCode::OK, &headers(stored))
}

#[test]
fn if_none_match_compares_weakly_over_the_whole_list() {
    // RFC 9110 section 13.1.2.
    let rows: [(&[&str], &str, bool); 20] = [
        (&["\"a\""], "\"a\"", true),
        (&["W/\"a\""], "\"a\"", true),
        (&["\"a\""], "W/\"a\"", true),
        (&["W/\"a\""], "W/\"a\"", true),
        (&["w/\"a\""], "\"a\"", false),
        (&["\"b\""], "\"a\"", false),
        (&["\"A\""], "\"a\"", false),
        (&["\"a\", \"b\", \"c\""], "\"a\"", true),
        (&["\"b\",\"a\" , \"c\""], "\"a\"", true),
        (&["\"b\", \"c\", W/\"a\""], "\"a\"", true),
        (&["\"b\"", "\"a\""], "\"a\"", true),
        (&["\"x, \"a\", y\""], "\"y\"", false),
        (&["\"b,c\", \"a\""], "\"b,c\"", true),
        (&["\"ü\""], "\"ü\"", true),
        (&["\"a\\\", \"b\""], "\"b\"", true),
        (&["*"], "\"a\"", true),
        (&["\"b\", *"], "\"a\"", false),
        (&["a"], "a", true),
        (&["\"a"], "\"a\"", false),
        (&[""], "\"\"", false),
    ];
    for (lines, tag, expected) in rows {
        let request: Vec<_> = lines.iter().map(|line| format!("if-none-match: {line}")).collect();
        let request: Vec<_> = request.iter().map(String::as_str).collect();
        assert_eq!(has_it(&request, &[&format!("etag: {tag}")]), expected, "{lines:?} {tag}");
    }
    assert!(has_it(&["if-none-match: *"], &[]));
    assert!(!has_it(&["if-none-match: \"a\""], &[]));
}

#[test]
fn if_modified_since_applies_only_without_if_none_match() {
    // RFC 9110 section 13.1.3 and RFC 9111 section 4.3.2.
    let since = |date: &str| format!("if-modified-since: {date}");
    let changed = format!("last-modified: {THEN}");
    let dated = format!("date: {THEN}");
    for (asked, stored, expected) in [
        (since(THEN), &[&*changed][..], true),
        (since(THEN_850), &[&changed], true),
        (since("Mon, 07 Nov 1994 08:49:37 GMT"), &[&changed], true),
        (since(SECOND_BEFORE), &[&changed], false),
        (since("yesterday"), &[&changed], false),
        (since(THEN), &[&dated], true),
        (since(SECOND_BEFORE), &[&dated], false),
        (since(THEN), &[&dated, "last-modified: yesterday"], false),
        (since(THEN), &[], false),
    ] {
        assert_eq!(has_it(&[&asked], stored), expected, "{asked} {stored:?}");
    }
    let both = [&*since(THEN), "if-none-match: \"b\""];
    assert!(!has_it(&both, &[&changed, "etag: \"a\""]));
    assert!(!has_it(&[&since(THEN), &since(THEN)], &[&changed]));
    assert!(!has_it(&[], &[&changed, "etag: \"a\""]));
}

#[test]
fn conditions_apply_only_to_a_success() {
    // RFC 9110 section 13.2.1.
    let request = headers(&["if-none-match: \"a\""]);
    let stored = headers(&["etag: \"a\""]);
    for (status, expected) in [(200, true), (204, true), (301, false), (404, false), (500, false)] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(client_has_it(&request, status, &stored), expected, "{status}");
    }
    // RFC 9110 section 15.4.5.
    let request = headers(&[&format!("if-modified-since: {THEN}")]);
    let stored = headers(&[&format!("last-modified: {THEN}")]);
    for (status, expected) in [(200, true), (203, false), (204, false), (404, false)] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(client_has_it(&request, status, &stored), expected, "{status}");
    }
}

#[test]
fn a_304_repeats_the_fields_for_the_clients_cache() {
    // RFC 9110 section 15.4.5.
    let dated = format!("last-modified: {THEN}");
    let stored = headers(&[
        "cache-control: max-age=1",
        "cache-control: public",
        "content-location: /a",
        "content-type: text/plain",
        "content-length: 5",
        "date: x",
        "etag: \"a\"",
        "expires: 0",
        "vary: a",
        "x-other: 1",
        &dated,
    ]);
    let mut expected = headers(&[
        "cache-control: max-age=1",
        "cache-control: public",
        "content-location: /a",
        "date: x",
        "etag: \"a\"",
        "expires: 0",
        "vary: a",
    ]);
    assert_eq!(not_modified_fields(&stored), expected);
    let mut untagged = stored;
    untagged.remove(ETAG);
    expected.remove(ETAG);
    expected.extend(headers(&[&dated]));
    assert_eq!(not_modified_fields(&untagged), expected);
}

#[test]
fn a_304_repeats_the_fields_that_browsers_check() {
    let checked = headers(&[
        "access-control-allow-origin: https://a.example",
        "access-control-allow-credentials: true",
        "access-control-allow-methods: GET",
        "access-control-expose-headers: x-a",
        "access-control-expose-headers: x-b",
        "cross-origin-resource-policy: same-site",
        "timing-allow-origin: *",
    ]);
    let mut stored = checked.clone();
    stored.extend(headers(&[
        "set-cookie: a=b",
        "content-security-policy: script-src 'nonce-1'",
        "content-language: en",
        "x-a: 1",
    ]));
    assert_eq!(not_modified_fields(&stored), checked);
}

#[test]
fn a_304_for_one_client_omits_only_the_fields_of_the_body() {
    let dated = format!("last-modified: {THEN}");
    let kept = ["set-cookie: a=b", "set-cookie: c=d", "x-a: 1", "content-location: /a"];
    let mut answered = headers(&kept);
    answered.extend(headers(&["content-type: text/plain", "content-length: 5", &dated]));
    let mut expected = headers(&kept);
    expected.extend(headers(&[&dated]));
    assert_eq!(private_not_modified_fields(&answered), expected);
    answered.extend(headers(&["etag: \"a\""]));
    expected.remove(LAST_MODIFIED);
    expected.extend(headers(&["etag: \"a\""]));
    assert_eq!(private_not_modified_fields(&answered), expected);
}

#[test]
fn client_conditions_are_copied_unchanged() {
    let request = headers(&["if-none-match: \"a\"", "if-none-match: \"b\"", "range: bytes=0-1"]);
    let mut fields = headers(&["accept: a"]);
    copy_conditions(&mut fields, &request);
    assert_eq!(fields, headers(&["accept: a", "if-none-match: \"a\"", "if-none-match: \"b\""]));
    assert!(has_cache_conditions(&request));
    assert!(has_cache_conditions(&headers(&["if-modified-since: x"])));
    assert!(!has_cache_conditions(&headers(&["if-range: \"a\"", "if-match: \"a\""])));
}

#[test]
fn all_cookies_of_a_304_are_returned() {
    let fresh = headers(&["set-cookie: a=b", "x-a: 1", "set-cookie: c=d"]);
    assert_eq!(cookies_of(&fresh), headers(&["set-cookie: a=b", "set-cookie: c=d"]));
}

#[test]
fn if_match_and_if_unmodified_since_are_forwarded() {
    // RFC 9111 section 4.3.2.
    assert!(must_forward(&headers(&["if-match: \"a\""])));
    assert!(must_forward(&headers(&["if-unmodified-since: x"])));
    assert!(!must_forward(&headers(&["if-none-match: \"a\"", "if-range: \"a\"", "range: x"])));
}

#[test]
fn the_names_of_conditions_are_those_of_their_fields() {
    assert!(CONDITIONS.iter().all(|name| is_condition(name.as_str().as_bytes())));
    assert!(!is_condition(b"if-none-matched") && !is_condition(b"accept"));
}

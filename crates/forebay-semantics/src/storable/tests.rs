use super::*;
use http::HeaderValue;

/// Reads `Name: value` lines.
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

fn judge(request: &[&str], status: u16, response: &[&str]) -> Result<(), Unstorable> {
    judge_with(&Rules::default(), request, status, response)
}

fn judge_with(
    rules: &Rules,
    request: &[&str],
    status: u16,
    response: &[&str],
) -> Result<(), Unstorable> {
    let (request, response) = (headers(request), headers(response));
    let asked = Asked { method: &Method::GET, headers: &request };
    let status = StatusCode::from_u16(status).unwrap();
    storable(asked, Answered { status, headers: &response }, rules)
}

#[test]
fn only_answers_to_get_are_stored() {
    let response = headers(&["cache-control: max-age=60"]);
    let answered = Answered { status: StatusCode::OK, headers: &response };
    for method in [Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS] {
        let asked = Asked { method: &method, headers: &HeaderMap::new() };
        assert_eq!(storable(asked, answered, &Rules::default()), Err(Unstorable::Method));
    }
}

#[test]
fn any_final_status_with_explicit_freshness_is_stored() {
    // RFC 9111 section 3.
    for status in [
        200, 201, 203, 204, 299, 301, 302, 303, 307, 308, 400, 403, 404, 410, 499, 500, 502, 503,
        504, 599,
    ] {
        assert_eq!(judge(&[], status, &["cache-control: max-age=60"]), Ok(()), "{status}");
        assert_eq!(judge(&[], status, &["cache-control: s-maxage=60"]), Ok(()), "{status}");
        let expires =
            ["date: Sun, 06 Nov 1994 08:49:37 GMT", "expires: Mon, 07 Nov 1994 08:49:37 GMT"];
        assert_eq!(judge(&[], status, &expires), Ok(()), "{status}");
    }
}

#[test]
fn interim_partial_and_not_modified_are_never_stored() {
    for (status, expected) in [
        (100, Unstorable::Status),
        (103, Unstorable::Status),
        (304, Unstorable::Status),
        (206, Unstorable::Partial),
    ] {
        assert_eq!(judge(&[], status, &["cache-control: max-age=60, public"]), Err(expected));
    }
}

#[test]
fn no_store_and_private_forbid_it() {
    // RFC 9111 sections 5.2.1.5, 5.2.2.5, 5.2.2.7.
    for (response, expected) in [
        ("cache-control: no-store, max-age=60", Unstorable::NoStore),
        ("cache-control: max-age=60, nO-StOrE", Unstorable::NoStore),
        ("cache-control: private, max-age=60", Unstorable::Private),
        ("cache-control: public, private, max-age=60", Unstorable::Private),
        ("cache-control: private=\"set-cookie\", max-age=60", Unstorable::Private),
    ] {
        assert_eq!(judge(&[], 200, &[response]), Err(expected), "{response}");
    }
    let request = ["cache-control: no-store"];
    let response = ["cache-control: public, max-age=60"];
    assert_eq!(judge(&request, 200, &response), Err(Unstorable::RequestNoStore));
}

#[test]
fn must_understand_outweighs_no_store_where_the_status_is_understood() {
    // RFC 9111 section 5.2.2.3.
    let both = ["cache-control: max-age=60, no-store, must-understand"];
    let alone = ["cache-control: max-age=60, must-understand"];
    assert_eq!(judge(&[], 200, &both), Ok(()));
    assert_eq!(judge(&[], 404, &alone), Ok(()));
    assert_eq!(judge(&[], 599, &both), Err(Unstorable::Status));
    assert_eq!(judge(&[], 599, &alone), Err(Unstorable::Status));
}

#[test]
fn answers_to_requests_with_credentials_need_leave() {
    // RFC 9111 section 3.5.
    for (response, expected) in [
        ("max-age=60", Err(Unstorable::Authorization)),
        ("max-age=60, proxy-revalidate", Err(Unstorable::Authorization)),
        ("max-age=60, public", Ok(())),
        ("max-age=60, must-revalidate", Ok(())),
        ("s-maxage=60", Ok(())),
    ] {
        let response = format!("cache-control: {response}");
        assert_eq!(judge(&["authorization: x"], 200, &[&response]), expected, "{response}");
    }
    let expires = ["date: Sun, 06 Nov 1994 08:49:37 GMT", "expires: Mon, 07 Nov 1994 08:49:37 GMT"];
    assert_eq!(judge(&["authorization: x"], 200, &expires), Err(Unstorable::Authorization));
}

#[test]
fn cookies_are_not_stored_unless_public_or_chosen() {
    let plain = ["cache-control: max-age=60", "set-cookie: a=b"];
    assert_eq!(judge(&[], 200, &plain), Err(Unstorable::SetCookie));
    assert_eq!(judge(&[], 200, &["cache-control: max-age=60, public", "set-cookie: a=b"]), Ok(()));
    let chosen = Rules { store_set_cookie: true, ..Rules::default() };
    assert_eq!(judge_with(&chosen, &[], 200, &plain), Ok(()));
    let old = ["cache-control: max-age=60", "set-cookie2: a=b"];
    assert_eq!(judge(&[], 200, &old), Err(Unstorable::SetCookie));
}

#[test]
fn vary_star_is_never_stored() {
    // RFC 9111 section 4.1: a stored Vary of * always fails to match.
    for vary in ["*", "*, *", ", *", "*, foo", "foo, *"] {
        let vary = format!("vary: {vary}");
        let expected = Err(Unstorable::VaryAny);
        assert_eq!(judge(&[], 200, &["cache-control: max-age=60", &vary]), expected, "{vary}");
    }
}

#[test]
fn what_can_neither_be_served_nor_validated_is_not_stored() {
    let dated = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT";
    let expired = "expires: 0";
    let rows: [(u16, &[&str], bool); 17] = [
        (200, &[], false),
        (200, &["cache-control: public"], false),
        (200, &["cache-control: max-age=0"], false),
        (200, &["cache-control: no-cache, max-age=60"], false),
        (200, &[expired], false),
        (200, &["etag: \"a\""], true),
        (200, &[dated], true),
        (200, &["cache-control: max-age=0", "etag: \"a\""], true),
        (200, &["cache-control: no-cache", "etag: \"a\""], true),
        (200, &[expired, dated], true),
        (200, &["cache-control: stale-while-revalidate=9"], true),
        (200, &["cache-control: max-age=0, stale-if-error=9"], true),
        // RFC 9111 section 4.2.2: only some statuses have heuristic freshness.
        (201, &[dated], false),
        (403, &[dated, "etag: \"a\""], false),
        (599, &[dated], false),
        (599, &[dated, "cache-control: public"], true),
        (404, &[dated], true),
    ];
    for (status, response, expected) in rows {
        let expected = if expected { Ok(()) } else { Err(Unstorable::NoFreshness) };
        assert_eq!(judge(&[], status, response), expected, "{status} {response:?}");
    }
}

#[test]
fn a_default_lifetime_is_for_statuses_that_may_have_a_heuristic_one() {
    let rules = Rules { default_ttl: Duration::from_secs(5), ..Rules::default() };
    assert_eq!(judge_with(&rules, &[], 200, &[]), Ok(()));
    assert_eq!(judge_with(&rules, &[], 404, &[]), Ok(()));
    assert_eq!(judge_with(&rules, &[], 500, &[]), Err(Unstorable::NoFreshness));
    let zero = ["cache-control: max-age=0"];
    assert_eq!(judge_with(&rules, &[], 200, &zero), Err(Unstorable::NoFreshness));
}

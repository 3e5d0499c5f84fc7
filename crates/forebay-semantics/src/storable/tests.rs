use super::*;
use crate::samples::headers;
use http::HeaderMap;
use http::HeaderName;
use std::time::Duration;

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
    let asked = RequestRef { method: &Method::GET, headers: &request };
    let status = StatusCode::from_u16(status).unwrap();
    storable(asked, ResponseRef { status, headers: &response }, rules)
}

#[test]
fn only_responses_to_get_are_stored() {
    let response = headers(&["cache-control: max-age=60"]);
    let answered = ResponseRef { status: StatusCode::OK, headers: &response };
    for method in [Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS] {
        let asked = RequestRef { method: &method, headers: &HeaderMap::new() };
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
fn no_store_and_private_prevent_storage() {
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
fn must_understand_overrides_no_store_if_the_status_is_understood() {
    // RFC 9111 section 5.2.2.3.
    let both = ["cache-control: max-age=60, no-store, must-understand"];
    let alone = ["cache-control: max-age=60, must-understand"];
    assert_eq!(judge(&[], 200, &both), Ok(()));
    assert_eq!(judge(&[], 404, &alone), Ok(()));
    assert_eq!(judge(&[], 599, &both), Err(Unstorable::Status));
    assert_eq!(judge(&[], 599, &alone), Err(Unstorable::Status));
}

#[test]
fn responses_to_requests_with_credentials_need_permission() {
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
fn responses_with_cookies_are_stored_only_with_the_option() {
    let chosen = Rules { store_set_cookie: true, ..Rules::default() };
    for said in ["max-age=60", "max-age=60, public", "s-maxage=60, public, immutable"] {
        let said = format!("cache-control: {said}");
        let response = [&*said, "set-cookie: a=b"];
        assert_eq!(judge(&[], 200, &response), Err(Unstorable::SetCookie), "{said}");
        assert_eq!(judge_with(&chosen, &[], 200, &response), Ok(()), "{said}");
    }
    // `Set-Cookie2` of RFC 2965 is an ordinary field.
    let old = ["cache-control: max-age=60", "set-cookie2: a=b"];
    assert_eq!(judge(&[], 200, &old), Ok(()));
}

#[test]
fn no_heuristic_lifetime_for_a_request_with_a_cookie() {
    let modified = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT";
    let expires = "expires: Mon, 07 Nov 2094 08:49:37 GMT";
    let rows: [(u16, &[&str], bool); 9] = [
        (200, &[modified], false),
        (200, &["etag: \"a\""], false),
        (404, &[modified], false),
        (200, &["cache-control: must-revalidate", modified], false),
        (200, &["cache-control: public", modified], true),
        (200, &["cache-control: max-age=60"], true),
        (200, &["cache-control: s-maxage=60"], true),
        (200, &[expires], true),
        // Stored only for validation, as the origin demands.
        (200, &["cache-control: no-cache", "etag: \"a\""], true),
    ];
    let allowed = Rules { heuristics_with_cookie: true, ..Rules::default() };
    for (status, response, stored) in rows {
        let expected = if stored { Ok(()) } else { Err(Unstorable::Cookie) };
        assert_eq!(judge(&["cookie: a=b"], status, response), expected, "{response:?}");
        assert_eq!(judge(&[], status, response), Ok(()), "{response:?}");
        assert_eq!(judge_with(&allowed, &["cookie: a=b"], status, response), Ok(()));
    }
    let chosen = Rules {
        default_ttl: Duration::from_secs(5),
        negative_ttl: Duration::from_secs(5),
        ..Rules::default()
    };
    for status in [200, 404] {
        let judged = judge_with(&chosen, &["cookie: a=b"], status, &[]);
        assert_eq!(judged, Err(Unstorable::Cookie), "{status}");
    }
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
fn a_response_without_freshness_and_validator_is_not_stored() {
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
fn default_lifetime_applies_to_heuristically_cacheable_statuses() {
    let rules = Rules { default_ttl: Duration::from_secs(5), ..Rules::default() };
    assert_eq!(judge_with(&rules, &[], 200, &[]), Ok(()));
    assert_eq!(judge_with(&rules, &[], 404, &[]), Ok(()));
    assert_eq!(judge_with(&rules, &[], 500, &[]), Err(Unstorable::NoFreshness));
    let zero = ["cache-control: max-age=0"];
    assert_eq!(judge_with(&rules, &[], 200, &zero), Err(Unstorable::NoFreshness));
}

const NOON: u64 = 784_111_777;

fn kept(request: &[&str], status: u16, response: &[&str]) -> Result<Storable, Unstorable> {
    let (request, response) = (headers(request), headers(response));
    let asked = RequestRef { method: &Method::GET, headers: &request };
    let status = StatusCode::from_u16(status).unwrap();
    let answered = ResponseRef { status, headers: &response };
    check_storable(asked, answered, &Rules::default(), WallTime::from_secs(NOON))
}

/// Names of the withheld fields, or the reason against storing the response.
type Names<'a> = Result<&'a [&'a str], Unstorable>;

fn withheld(response: &[&str]) -> Result<Vec<String>, Unstorable> {
    let names = ["a", "b", "set-cookie"].map(HeaderName::from_static);
    let kept = kept(&[], 200, response)?;
    Ok(names.iter().filter(|name| kept.withheld.holds(name)).map(ToString::to_string).collect())
}

#[test]
fn qualified_directives_withhold_only_the_named_fields() {
    // RFC 9111 sections 5.2.2.4 and 5.2.2.7.
    let rows: [(&[&str], Names<'_>); 9] = [
        (&["cache-control: max-age=60"], Ok(&[])),
        (&["cache-control: max-age=60, private=\"a, b\""], Ok(&["a", "b"])),
        (&["cache-control: max-age=60, no-cache=\"a\""], Ok(&["a"])),
        (&["cdn-cache-control: max-age=60, private=\"a\""], Ok(&["a"])),
        (&["cache-control: max-age=60, private"], Err(Unstorable::Private)),
        (&["cache-control: max-age=60, private, private=\"a\""], Err(Unstorable::Private)),
        (&["cache-control: max-age=60, private=\"vary\""], Err(Unstorable::Private)),
        (&["cache-control: max-age=60, no-cache"], Err(Unstorable::NoFreshness)),
        (&["cache-control: max-age=60, no-cache=\"vary\""], Err(Unstorable::NoFreshness)),
    ];
    for (response, expected) in rows {
        let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(withheld(response), expected, "{response:?}");
    }
    let lifetime = kept(&[], 200, &["cache-control: max-age=60, no-cache=\"a\""]).unwrap().lifetime;
    assert_eq!(lifetime, Lifetime::fresh(Duration::from_secs(60)));
}

#[test]
fn a_withheld_cookie_does_not_prevent_storage() {
    for directive in ["private", "no-cache"] {
        let line = format!("cache-control: max-age=60, {directive}=\"Set-Cookie\"");
        assert_eq!(withheld(&[&line, "set-cookie: a=b"]), Ok(vec!["set-cookie".to_owned()]));
    }
    let other = ["cache-control: max-age=60, private=\"a\"", "set-cookie: a=b"];
    assert_eq!(withheld(&other), Err(Unstorable::SetCookie));
}

#[test]
fn qualified_directives_do_not_permit_sharing_with_credentials() {
    // RFC 9111 section 3.5.
    let asked = ["authorization: x"];
    let named = ["cache-control: max-age=60, private=\"a\""];
    assert_eq!(kept(&asked, 200, &named), Err(Unstorable::Authorization));
    assert!(kept(&asked, 200, &["cdn-cache-control: s-maxage=60"]).is_ok());
    let hidden = ["cache-control: public", "cdn-cache-control: max-age=60"];
    assert_eq!(kept(&asked, 200, &hidden), Err(Unstorable::Authorization));
}

#[test]
fn a_targeted_field_replaces_the_others() {
    // RFC 9213 section 2.2.
    let modified = "last-modified: Sun, 06 Nov 1994 08:47:57 GMT";
    let rows: [(&[&str], Result<u64, Unstorable>); 9] = [
        (&["cdn-cache-control: max-age=60"], Ok(60)),
        (&["cdn-cache-control: max-age=60", "cache-control: no-store"], Ok(60)),
        (&["cdn-cache-control: max-age=60", "expires: 0", "cache-control: max-age=1"], Ok(60)),
        (
            &["cdn-cache-control: max-age=0", "cache-control: max-age=60"],
            Err(Unstorable::NoFreshness),
        ),
        (&["cdn-cache-control: no-store", "cache-control: max-age=60"], Err(Unstorable::NoStore)),
        (&["cdn-cache-control: private", "cache-control: max-age=60"], Err(Unstorable::Private)),
        (
            &["cdn-cache-control: no-cache", "cache-control: max-age=60"],
            Err(Unstorable::NoFreshness),
        ),
        (&["cdn-cache-control: x", "expires: Mon, 07 Nov 1994 08:49:37 GMT", modified], Ok(10)),
        (
            &["cdn-cache-control: max-age=60, &", "cache-control: no-store"],
            Err(Unstorable::NoStore),
        ),
    ];
    for (response, expected) in rows {
        let fresh = kept(&[], 200, response).map(|kept| kept.lifetime.fresh.as_secs());
        assert_eq!(fresh, expected, "{response:?}");
    }
}

#[test]
fn what_may_be_stored_whole_is_kept_and_nothing_withheld() {
    let rows: [(u16, &[&str]); 6] = [
        (200, &["cache-control: max-age=60"]),
        (204, &["cache-control: max-age=60, no-store"]),
        (299, &["expires: Mon, 07 Nov 1994 08:49:37 GMT"]),
        (404, &["last-modified: Sun, 06 Nov 1983 08:49:37 GMT"]),
        (206, &["cache-control: max-age=60"]),
        (200, &["cache-control: max-age=60", "vary: *"]),
    ];
    for (status, response) in rows {
        let whole = judge(&[], status, response);
        assert_eq!(
            kept(&[], status, response).map(|kept| assert_eq!(kept.withheld, Withheld::default())),
            whole
        );
    }
    let two_digits = ["expires: Thursday, 18-Aug-50 02:01:18 GMT"];
    assert!(kept(&[], 200, &two_digits).unwrap().lifetime.fresh > Duration::from_hours(24));
}

#[test]
fn a_partial_response_is_storable_if_it_states_its_range() {
    // RFC 9111 section 3.3.
    let part = |status: u16, lines: &[&str]| {
        let response = headers(lines);
        let asked = RequestRef { method: &Method::GET, headers: &HeaderMap::new() };
        let status = StatusCode::from_u16(status).unwrap();
        let answered = ResponseRef { status, headers: &response };
        let kept =
            check_storable_part(asked, answered, &Rules::default(), WallTime::from_secs(NOON));
        kept.map(|(kept, range)| (kept.lifetime.fresh.as_secs(), range.span.first))
    };
    let range = "content-range: bytes 4-9/10";
    let (fresh, tag) = ("cache-control: max-age=60", "etag: \"a\"");
    assert_eq!(part(206, &[range, fresh, tag]), Ok((60, 4)));
    assert_eq!(part(206, &[range, fresh]), Ok((60, 4)));
    assert_eq!(part(206, &[fresh, tag]), Err(Unstorable::Partial));
    assert_eq!(part(200, &[range, fresh, tag]), Err(Unstorable::Partial));
    let private = "cache-control: private, max-age=60";
    assert_eq!(part(206, &[range, private, tag]), Err(Unstorable::Private));
    let understood = "cache-control: max-age=60, no-store, must-understand";
    assert_eq!(part(206, &[range, understood, tag]), Ok((60, 4)));
}

#[test]
fn each_reason_is_examined_here_or_by_the_rules_of_a_site() {
    use Unstorable::{EditFailed, KeyedCookie, NoEcho, Rule, TypeMismatch};
    let of_site = [Rule, KeyedCookie, NoEcho, EditFailed, TypeMismatch];
    let mut all = [&PRECEDENCE[..], &of_site].concat();
    all.sort_by_key(|reason| Unstorable::ALL.iter().position(|other| other == reason));
    assert_eq!(all, Unstorable::ALL);
}

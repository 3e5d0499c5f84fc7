use super::*;
use crate::samples::headers;
use http::{HeaderMap, HeaderValue};

/// Sun, 06 Nov 1994 08:49:37 GMT.
const NOON: u64 = 784_111_777;
const DATE_LINE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";

fn of(status: u16, lines: &[&str]) -> Lifetime {
    let headers = headers(lines);
    let answered = ResponseRef { status: StatusCode::from_u16(status).unwrap(), headers: &headers };
    lifetime(answered, &Rules::default(), WallTime::from_secs(NOON))
}

fn fresh(lines: &[&str]) -> u64 {
    of(200, lines).fresh.as_secs()
}

#[test]
fn s_maxage_before_max_age_before_expires() {
    // RFC 9111 section 4.2.1.
    let rows: [(&[&str], u64); 13] = [
        (&["cache-control: max-age=60"], 60),
        (&["cache-control: max-age=3600, s-maxage=1"], 1),
        (&["cache-control: s-maxage=3600", "cache-control: max-age=1"], 3600),
        (&["cache-control: max-age=60", "expires: 0", DATE_LINE], 60),
        (&["cache-control: max-age=0", "expires: Mon, 07 Nov 1994 08:49:37 GMT", DATE_LINE], 0),
        (&["cache-control: s-maxage=x, max-age=60"], 0),
        (&["expires: Sun, 06 Nov 1994 08:50:37 GMT", DATE_LINE], 60),
        (&["expires: Sunday, 06-Nov-94 08:50:37 GMT", DATE_LINE], 60),
        (&["expires: Sun Nov  6 08:50:37 1994", DATE_LINE], 60),
        (&["expires: Sun, 06 Nov 1994 08:49:37 GMT", DATE_LINE], 0),
        (&["expires: Sun, 06 Nov 1994 08:40:00 GMT", DATE_LINE], 0),
        // Only the difference counts if the origin's clock is wrong.
        (&["expires: Thu, 01 Jan 2015 00:01:00 GMT", "date: Thu, 01 Jan 2015 00:00:00 GMT"], 60),
        (&["expires: Fri, 31 Dec 9999 23:59:59 GMT", DATE_LINE], 1 << 31),
    ];
    for (lines, expected) in rows {
        assert_eq!(fresh(lines), expected, "{lines:?}");
    }
}

#[test]
fn an_invalid_expires_is_in_the_past() {
    // RFC 9111 section 5.3.
    for text in ["0", "-1", "", "tomorrow", "Sun, 06 Nov 1994 08:50:37 UTC"] {
        let dated = format!("expires: {text}");
        let modified = "last-modified: Sun, 06 Nov 1983 08:49:37 GMT";
        assert_eq!(fresh(&[&dated, DATE_LINE, modified]), 0, "{text}");
    }
    let twice = ["expires: Mon, 07 Nov 1994 08:49:37 GMT", "expires: 0", DATE_LINE];
    assert_eq!(fresh(&twice), 0);
}

#[test]
fn without_a_valid_date_the_time_of_receipt_counts() {
    let expires = "expires: Sun, 06 Nov 1994 08:50:37 GMT";
    assert_eq!(fresh(&[expires]), 60);
    assert_eq!(fresh(&[expires, "date: foo"]), 60);
}

#[test]
fn heuristic_lifetime_is_a_tenth_of_the_age_and_at_most_a_day() {
    // RFC 9111 section 4.2.2.
    let hundred = "last-modified: Sun, 06 Nov 1994 08:47:57 GMT";
    assert_eq!(fresh(&[hundred, DATE_LINE]), 10);
    assert_eq!(fresh(&[hundred]), 10);
    assert_eq!(fresh(&["last-modified: Sun, 06 Nov 1983 08:49:37 GMT", DATE_LINE]), 86_400);
    assert_eq!(fresh(&["last-modified: Mon, 07 Nov 1994 08:49:37 GMT", DATE_LINE]), 0);
    assert_eq!(fresh(&["last-modified: foo", DATE_LINE]), 0);
    assert_eq!(fresh(&[DATE_LINE, "etag: \"a\""]), 0);
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        assert_eq!(of(status, &[hundred]).fresh.as_secs(), 10, "{status}");
    }
    for status in [201, 202, 302, 303, 307, 403, 500, 502, 503, 504, 599] {
        assert!(of(status, &[hundred]).fresh.is_zero(), "{status}");
        let public = of(status, &[hundred, "cache-control: public"]);
        assert_eq!(public.fresh.as_secs(), 10, "{status}");
    }
}

#[test]
fn site_lifetimes_replace_only_the_heuristic() {
    let rules = Rules { default_ttl: Duration::from_secs(7), ..Rules::default() };
    let rows: [(u16, &[&str], u64); 6] = [
        (200, &[], 7),
        (200, &["last-modified: Sun, 06 Nov 1983 08:49:37 GMT"], 7),
        (200, &["cache-control: max-age=60"], 60),
        (200, &["expires: 0"], 0),
        (200, &["cache-control: no-cache"], 0),
        (500, &[], 0),
    ];
    for (status, lines, expected) in rows {
        let headers = headers(lines);
        let status = StatusCode::from_u16(status).unwrap();
        let lifetime =
            lifetime(ResponseRef { status, headers: &headers }, &rules, WallTime::from_secs(NOON));
        assert_eq!(lifetime.fresh.as_secs(), expected, "{status} {lines:?}");
    }
}

#[test]
fn stale_windows_are_ignored_if_stale_responses_are_forbidden() {
    // RFC 5861, and RFC 9111 section 4.2.4.
    let windows = "max-age=60, stale-while-revalidate=30, stale-if-error=90";
    let open = of(200, &[&format!("cache-control: {windows}")]);
    assert_eq!(open.stale_while_revalidate.as_secs(), 30);
    assert_eq!(open.stale_if_error.as_secs(), 90);
    assert_eq!(open.stale, Stale::Permitted);
    for (forbids, fresh) in [
        ("must-revalidate", 60),
        ("proxy-revalidate", 60),
        ("s-maxage=5", 5),
        ("no-cache", 0),
        ("no-cache=\"x\"", 0),
    ] {
        let closed = of(200, &[&format!("cache-control: {windows}, {forbids}")]);
        let fresh = Duration::from_secs(fresh);
        let expected = Lifetime { fresh, stale: Stale::Forbidden, ..Lifetime::default() };
        assert_eq!(closed, expected, "{forbids}");
    }
}

#[test]
fn initial_age_is_the_larger_of_date_and_age() {
    // RFC 9111 section 4.2.3.
    let rows: [(&[&str], u64); 20] = [
        (&[], 2),
        (&[DATE_LINE], 2),
        (&["date: Sun, 06 Nov 1994 08:49:27 GMT"], 10),
        (&["date: Mon, 07 Nov 1994 08:49:27 GMT"], 2),
        (&["date: foo"], 2),
        (&["age: 30"], 32),
        (&["age: 30", "date: Sun, 06 Nov 1994 08:49:27 GMT"], 32),
        (&["age: 3", "date: Sun, 06 Nov 1994 08:49:27 GMT"], 10),
        // RFC 9111 section 5.1: the first member counts.
        (&["age: 7200, 0"], 7202),
        (&["age: 0, 7200"], 2),
        (&["age: 7200", "age: 0"], 7202),
        (&["age: 0", "age: 7200"], 2),
        // A value that is no integer is ignored.
        (&["age: abc"], 2),
        (&["age: -7200"], 2),
        (&["age: 7200.0"], 2),
        (&["age: 7200;foo=bar"], 2),
        (&["age: "], 2),
        (&["age: 2147483647"], 1 << 31),
        (&["age: 2147483648"], 1 << 31),
        (&["age: 99999999999999999999999"], 1 << 31),
    ];
    for (lines, expected) in rows {
        let received = WallTime::from_secs(NOON);
        let age = initial_age(&headers(lines), received, Duration::from_secs(2));
        assert_eq!(age.as_secs(), expected, "{lines:?}");
    }
    let endless = initial_age(&HeaderMap::new(), WallTime::from_secs(NOON), Duration::MAX);
    assert_eq!(endless.as_secs(), 1 << 31);
}

#[test]
fn served_age_is_whole_seconds_of_at_most_two_to_the_31() {
    // RFC 9111 sections 1.2.2 and 5.1.
    let rows = [(0, 0), (999, 0), (1_000, 1), (59_999, 59), (u64::MAX, 1 << 31)];
    for (millis, expected) in rows {
        assert_eq!(age_seconds(Duration::from_millis(millis)), expected, "{millis}");
    }
}

#[test]
fn what_is_not_there_has_a_lifetime_of_its_own_where_none_is_stated() {
    let received = WallTime::from_secs(1_000_000_000);
    let seconds = Duration::from_secs;
    let rules = Rules { default_ttl: seconds(60), negative_ttl: seconds(5), ..Rules::default() };
    let of = |status: u16, lines: &HeaderMap| {
        let status = StatusCode::from_u16(status).unwrap();
        let answered = ResponseRef { status, headers: lines };
        let (lifetime, lifetime_origin) =
            lifetime_of(&Policy::of(lines), answered, &rules, received);
        (lifetime.fresh, lifetime_origin)
    };
    let none = HeaderMap::new();
    for status in [404, 405, 410, 414, 501] {
        assert_eq!(of(status, &none), (seconds(5), LifetimeOrigin::Cache), "{status}");
    }
    for status in [200, 204, 301] {
        assert_eq!(of(status, &none), (seconds(60), LifetimeOrigin::Cache), "{status}");
    }
    assert_eq!(of(403, &none), (Duration::ZERO, LifetimeOrigin::Origin));
    let mut stated = HeaderMap::new();
    stated.insert("cache-control", HeaderValue::from_static("max-age=9"));
    assert_eq!(of(404, &stated), (seconds(9), LifetimeOrigin::Origin));
}

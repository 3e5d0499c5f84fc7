use super::*;
use http::{HeaderMap, HeaderValue};

fn headers(lines: &[&str]) -> HeaderMap {
    lines.iter().map(|line| (CACHE_CONTROL, HeaderValue::from_str(line).unwrap())).collect()
}

fn read(lines: &[&str]) -> Directives {
    Directives::of_response(&headers(lines))
}

const fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

fn fields(names: &[&'static str]) -> Option<Scope> {
    Some(Scope::Fields(names.iter().copied().map(HeaderName::from_static).collect()))
}

#[test]
fn spans_are_digits_quoted_or_not_and_anything_else_is_zero() {
    let rows: [(&str, Option<Duration>); 19] = [
        ("max-age=3600", secs(3600)),
        ("MaX-aGe=3600", secs(3600)),
        ("max-age=003600", secs(3600)),
        // RFC 9111 section 5.2: both forms of the argument.
        ("max-age=\"3600\"", secs(3600)),
        // RFC 9111 section 1.2.2: no overflow.
        ("max-age=2147483648", secs(1 << 31)),
        ("max-age=99999999999999999999999", secs(1 << 31)),
        ("max-age=0", secs(0)),
        // RFC 9111 section 4.2.1: invalid freshness information is stale.
        ("max-age", secs(0)),
        ("max-age=", secs(0)),
        ("max-age=-1", secs(0)),
        ("max-age=1.5", secs(0)),
        ("max-age=3600.0", secs(0)),
        ("max-age=a100", secs(0)),
        ("max-age=100a", secs(0)),
        ("max-age='3600'", secs(0)),
        ("max-age =3600", secs(0)),
        ("max-age= 3600", secs(0)),
        ("max-age=\"3600", secs(0)),
        ("x-max-age=3600, max-ages=1, maxage=2", None),
    ];
    for (line, expected) in rows {
        assert_eq!(read(&[line]).max_age, expected, "{line}");
    }
}

#[test]
fn the_stricter_of_two_holds_in_either_order_and_on_any_lines() {
    let pairs = [
        ("max-age=1", "max-age=1800"),
        ("max-age=x", "max-age=1800"),
        ("no-cache", "no-cache=\"a\""),
        ("no-cache=\"b\"", "no-cache=\"a\""),
        ("stale-if-error=5", "stale-if-error=60"),
    ];
    for (one, other) in pairs {
        let there = read(&[&format!("{one}, {other}")]);
        let back = read(&[&format!("{other} ,,{one}")]);
        assert_eq!(there, back, "{one} {other}");
        assert_eq!(there, read(&[one, other]));
        assert_eq!(back, read(&[other, one]));
    }
    assert_eq!(read(&["max-age=1, max-age=1800"]).max_age, secs(1));
    assert_eq!(read(&["max-age=x", "max-age=1800"]).max_age, secs(0));
    assert_eq!(read(&["min-fresh=5, min-fresh=9, min-fresh=x"]).min_fresh, secs(9));
}

#[test]
fn what_stands_in_a_quoted_string_is_no_directive() {
    let one = read(&["extension=\"max-age=3600, no-store\", max-age=1"]);
    assert_eq!((one.max_age, one.no_store), (secs(1), false));
    assert_eq!(read(&["max-age=1, extension=\"max-age=0\""]).max_age, secs(1));
    // A quote that is never closed hides nothing that restricts.
    assert!(read(&["extension=\"oops, no-store"]).no_store);
}

#[test]
fn scopes_are_whole_unless_they_name_fields() {
    let rows = [
        ("no-cache", Some(Scope::Whole)),
        ("no-cache=", Some(Scope::Whole)),
        ("no-cache=\"\"", Some(Scope::Whole)),
        ("no-cache=\"a b\"", Some(Scope::Whole)),
        ("no-cache=\"set-cookie\"", fields(&["set-cookie"])),
        ("no-cache=Set-Cookie", fields(&["set-cookie"])),
        ("no-cache=\"B, a,, A\"", fields(&["a", "b"])),
        ("no-cache =\"a\"", Some(Scope::Whole)),
        ("no-cache=\"a\", no-cache=\"b,a\"", fields(&["a", "b"])),
        ("no-cache=\"a\", no-cache", Some(Scope::Whole)),
        ("no-cached", None),
    ];
    for (line, expected) in rows {
        assert_eq!(read(&[line]).no_cache, expected, "{line}");
        let line = line.replace("no-cache", "private");
        assert_eq!(read(&[&line]).private, expected, "{line}");
    }
    let many: Vec<_> = (0..=SCOPE_FIELDS_MAX).map(|number| format!("f{number}")).collect();
    let line = format!("private=\"{}\"", many.join(","));
    assert_eq!(read(&[&line]).private, Some(Scope::Whole));
}

#[test]
fn flags_are_known_by_name_in_any_case() {
    let said = read(&["NO-STORE, No-Transform,only-if-cached", "must-revalidate ,\tpublic"]);
    assert!(said.no_store && said.no_transform && said.only_if_cached);
    assert!(said.must_revalidate && said.public);
    assert!(!said.proxy_revalidate && !said.must_understand && !said.immutable);
    let said = read(&["proxy-revalidate, must-understand, immutable, no-store=1"]);
    assert!(said.proxy_revalidate && said.must_understand && said.immutable && said.no_store);
}

#[test]
fn stale_windows_and_request_spans() {
    let said = read(&["stale-while-revalidate=30, stale-if-error=60, s-maxage=9, max-stale"]);
    assert_eq!(said.stale_while_revalidate, secs(30));
    assert_eq!(said.stale_if_error, secs(60));
    assert_eq!(said.s_maxage, secs(9));
    // RFC 9111 section 5.2.1.2: without an argument a stale answer of any age will do.
    assert_eq!(said.max_stale, Some(Duration::MAX));
    assert_eq!(read(&["max-stale, max-stale=5"]).max_stale, secs(5));
    assert_eq!(read(&["max-stale=x"]).max_stale, secs(0));
}

#[test]
fn pragma_counts_in_a_request_that_has_no_cache_control() {
    // RFC 9111 section 5.4.
    let mut request = HeaderMap::new();
    request.insert(PRAGMA, HeaderValue::from_static("x, No-Cache"));
    assert_eq!(Directives::of_request(&request).no_cache, Some(Scope::Whole));
    assert_eq!(Directives::of_response(&request), Directives::default());
    request.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=5"));
    assert_eq!(Directives::of_request(&request).no_cache, None);
}

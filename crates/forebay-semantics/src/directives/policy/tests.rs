use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::*;
use crate::directives::Scope;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let field = |line: &(&'static str, &str)| {
        (HeaderName::from_static(line.0), HeaderValue::from_bytes(line.1.as_bytes()).unwrap())
    };
    lines.iter().map(field).collect()
}

fn of(lines: &[(&'static str, &str)]) -> Policy {
    Policy::of(&headers(lines))
}

/// Returns the directives of `CDN-Cache-Control`, if it is valid.
fn cdn(value: &str) -> Option<Directives> {
    let policy = of(&[("cache-control", "only-if-cached"), ("cdn-cache-control", value)]);
    match policy.ruled_by {
        RuledBy::Targeted(_) => Some(policy.said),
        RuledBy::CacheControl => None,
    }
}

const fn secs(secs: u64) -> Option<Duration> {
    Some(Duration::from_secs(secs))
}

#[test]
fn the_most_specific_valid_field_applies_alone() {
    // RFC 9213 section 2.2.
    let own = ("forebay-cache-control", "max-age=1");
    let cdn = ("cdn-cache-control", "max-age=2");
    let plain = ("cache-control", "max-age=3, no-store");
    let rows: [(&[(&str, &str)], u64); 8] = [
        (&[plain], 3),
        (&[plain, cdn], 2),
        (&[plain, cdn, own], 1),
        (&[own, plain], 1),
        (&[("forebay-cache-control", "max-age=1,"), cdn, plain], 2),
        (&[("forebay-cache-control", ""), cdn, plain], 2),
        (&[("forebay-cache-control", "&"), ("cdn-cache-control", "Max-Age=2"), plain], 3),
        (&[("surrogate-control", "max-age=9"), plain], 3),
    ];
    for (lines, expected) in rows {
        let lines: Vec<_> = lines
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect();
        let policy = Policy::of(&HeaderMap::from_iter(lines.iter().cloned()));
        assert_eq!(policy.said.max_age, secs(expected), "{lines:?}");
        assert_eq!(policy.heeds_expires(), expected == 3, "{lines:?}");
        assert_eq!(policy.said.no_store, expected == 3, "{lines:?}");
    }
}

#[test]
fn an_invalid_or_empty_field_counts_as_absent() {
    // RFC 9213 section 2.1.
    for value in [
        "",
        "  ",
        "max-age=10000, &&&&&",
        "MaX-aGe=3600",
        "max-age =100",
        "max-age= 100",
        "max-age=100,",
        ",max-age=100",
        "max-age=100 no-store",
        "max-age=1000000000000000",
        "max-age=\"100",
        "max-age=(1 2",
        "max-age=1;",
        "max-age=\u{fc}",
        "max-age=1.",
    ] {
        assert_eq!(cdn(value), None, "{value}");
    }
    let lines = [("cdn-cache-control", "max-age=1"), ("cdn-cache-control", "")];
    assert_eq!(of(&lines).ruled_by, RuledBy::CacheControl, "a trailing comma");
}

#[test]
fn directives_have_their_inferred_types() {
    // RFC 9213 section 2.1.
    let said =
        cdn("max-age=60, s-maxage=9, no-store, private=\"a, b\", no-cache, foo=bar").unwrap();
    assert_eq!((said.max_age, said.s_maxage), (secs(60), secs(9)));
    assert!(said.no_store && !said.public && said.no_cache == Some(Scope::Whole));
    let names = ["a", "b"].map(HeaderName::from_static).into_iter().collect();
    assert_eq!(said.private, Some(Scope::Fields(names)));
    assert_eq!(cdn("max-age=2147483648").unwrap().max_age, secs(1 << 31));
    assert_eq!(cdn("max-age=99999999999").unwrap().max_age, secs(1 << 31));
    assert_eq!(cdn("max-age=0").unwrap().max_age, secs(0));
    let flags = cdn("must-revalidate, proxy-revalidate=?1, public, immutable, must-understand");
    let flags = flags.unwrap();
    assert!(flags.must_revalidate && flags.proxy_revalidate && flags.public);
    assert!(flags.immutable && flags.must_understand);
    let windows = cdn("stale-while-revalidate=5, stale-if-error=6").unwrap();
    assert_eq!((windows.stale_while_revalidate, windows.stale_if_error), (secs(5), secs(6)));
}

#[test]
fn parameters_and_unknown_members_are_ignored_and_the_last_duplicate_applies() {
    // RFC 9213 section 2.1; RFC 9651 section 4.2.2.
    assert_eq!(cdn("max-age=60;x=\"y\";z, foobar").unwrap().max_age, secs(60));
    assert_eq!(cdn("foobar=(1 2);a").unwrap(), Directives::default());
    assert_eq!(cdn("max-age=60, max-age=5").unwrap().max_age, secs(5));
    assert_eq!(cdn("max-age=5, max-age=60").unwrap().max_age, secs(60));
    let lines = [("cdn-cache-control", "max-age=5"), ("cdn-cache-control", "max-age=60")];
    assert_eq!(of(&lines).said.max_age, secs(60));
}

#[test]
fn a_wrong_type_keeps_a_restriction_and_loses_a_permission() {
    // RFC 9213 section 2.1: such values should not be consumed.
    for value in ["\"10000\"", "10.5", "-1", "ten", ":AAAA:", "?1", "(60)", "@60"] {
        assert_eq!(cdn(&format!("max-age={value}")).unwrap().max_age, secs(0), "{value}");
    }
    for value in ["5", "\"x\"", "(a)", "x"] {
        let names = "no-store={}, private={}, public={}, must-understand={}, immutable={}";
        let said = cdn(&names.replace("{}", value)).unwrap();
        assert!(said.no_store && said.private.is_some(), "{value}");
        assert!(!said.public && !said.must_understand && !said.immutable, "{value}");
    }
    let said = cdn("no-store=?0, private=?0, public=?0, max-age=?0").unwrap();
    assert_eq!(said, Directives::default());
    assert_eq!(cdn("private=(\"a\")").unwrap().private, Some(Scope::Whole));
}

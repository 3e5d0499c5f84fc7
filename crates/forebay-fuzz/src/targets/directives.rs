//! Target: `Cache-Control` of requests and responses.

use std::time::Duration;

use forebay_core::Demand;
use forebay_semantics::directives::SCOPE_FIELDS_MAX;
use forebay_semantics::{Directives, Scope, demand};
use http::{HeaderMap, HeaderValue};

use crate::block::{Block, backwards, one};
use crate::run::{Outcome, Target};

/// Maximum of a delta-seconds value (RFC 9111 section 1.2.2).
pub(crate) const SPAN_MAX: Duration = Duration::from_secs(1 << 31);

/// Fuzz target for `Cache-Control` of requests and responses.
pub const TARGET: Target = Target { check, outcomes_min: 14 };

fn check(input: &[u8]) -> Outcome {
    let headers = Block::read(input).headers;
    let said = Directives::of_response(&headers);
    assert_eq!(Directives::of_response(&backwards(&headers)), said, "lines in another order");
    assert_eq!(Directives::of_response(&upper_case(&headers)), said, "in upper case");
    assert_bounded(&said);
    assert_eq!(read_back(&said), said, "written and read again");
    assert_stricter(&headers, &said);
    assert_asked(&headers, &said);
    Outcome::of(mark(&said))
}

fn assert_bounded(said: &Directives) {
    let spans = [
        said.max_age,
        said.s_maxage,
        said.min_fresh,
        said.max_stale.filter(|span| *span != Duration::MAX),
        said.stale_while_revalidate,
        said.stale_if_error,
    ];
    assert!(spans.into_iter().flatten().all(|span| span <= SPAN_MAX), "{said:?}");
    for scope in [&said.no_cache, &said.private].into_iter().flatten() {
        let Scope::Fields(names) = scope else { continue };
        assert!((1..=SCOPE_FIELDS_MAX).contains(&names.len()), "{scope:?}");
        assert!(names.windows(2).all(|pair| pair[0].as_str() < pair[1].as_str()), "{scope:?}");
    }
}

/// Asserts that a further line can only make the policy stricter, and that no earlier line hides it.
fn assert_stricter(headers: &HeaderMap, said: &Directives) {
    let line = "no-store, private, no-cache, must-revalidate, max-age=7, s-maxage=7, max-stale=7";
    let mut more = headers.clone();
    more.append("cache-control", HeaderValue::from_static(line));
    let more = Directives::of_response(&more);
    let whole = Some(Scope::Whole);
    assert!(more.no_store && more.must_revalidate, "{more:?}");
    assert_eq!((&more.private, &more.no_cache), (&whole, &whole));
    let at_most = |span: Option<Duration>| {
        Some(span.map_or(Duration::from_secs(7), |span| span.min(Duration::from_secs(7))))
    };
    assert_eq!(more.max_age, at_most(said.max_age));
    assert_eq!(more.s_maxage, at_most(said.s_maxage));
    assert_eq!(more.max_stale, at_most(said.max_stale));
    assert_eq!(more.stale_if_error, said.stale_if_error);
}

/// Asserts that a request is read like a response, except for `Pragma` (RFC 9111 section 5.4).
fn assert_asked(headers: &HeaderMap, said: &Directives) {
    let asked = Directives::of_request(headers);
    if headers.contains_key("cache-control") || !headers.contains_key("pragma") {
        assert_eq!(asked, *said);
    } else {
        let no_cache = asked.no_cache.clone();
        assert_eq!(asked, Directives { no_cache, ..Directives::default() });
    }
    let wanted = demand(headers, &Demand::default());
    assert_eq!(wanted.revalidate, asked.no_cache.is_some());
    assert_eq!((wanted.max_age, wanted.no_store), (asked.max_age, asked.no_store));
}

fn upper_case(headers: &HeaderMap) -> HeaderMap {
    let mut upper = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(&value.as_bytes().to_ascii_uppercase());
        upper.append(name, value.unwrap_or_else(|_| HeaderValue::from_static("")));
    }
    upper
}

fn read_back(said: &Directives) -> Directives {
    one("cache-control", written(said).as_bytes())
        .map_or_else(Directives::default, |headers| Directives::of_response(&headers))
}

/// Directives as a careful origin would write them.
fn written(said: &Directives) -> String {
    let mut members: Vec<String> = Vec::new();
    let spans = [
        ("max-age", said.max_age),
        ("s-maxage", said.s_maxage),
        ("min-fresh", said.min_fresh),
        ("max-stale", said.max_stale),
        ("stale-while-revalidate", said.stale_while_revalidate),
        ("stale-if-error", said.stale_if_error),
    ];
    for (name, span) in spans {
        members.extend(span.map(|span| match span {
            Duration::MAX => name.to_owned(),
            span => format!("{name}={}", span.as_secs()),
        }));
    }
    for (name, scope) in [("no-cache", &said.no_cache), ("private", &said.private)] {
        members.extend(scope.as_ref().map(|scope| match scope {
            Scope::Whole => name.to_owned(),
            Scope::Fields(names) => {
                let names: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
                format!("{name}=\"{}\"", names.join(", "))
            }
        }));
    }
    let said = flags(said).into_iter().filter(|(_, is_said)| *is_said);
    members.extend(said.map(|(name, _)| name.to_owned()));
    members.join(", ")
}

const fn flags(said: &Directives) -> [(&'static str, bool); 8] {
    [
        ("no-store", said.no_store),
        ("no-transform", said.no_transform),
        ("only-if-cached", said.only_if_cached),
        ("must-revalidate", said.must_revalidate),
        ("proxy-revalidate", said.proxy_revalidate),
        ("must-understand", said.must_understand),
        ("public", said.public),
        ("immutable", said.immutable),
    ]
}

fn mark(said: &Directives) -> impl std::hash::Hash {
    let span = |span: Option<Duration>| span.map(|span| span.as_secs().min(1));
    let scope = |scope: &Option<Scope>| match scope {
        None => 0,
        Some(Scope::Whole) => 1,
        Some(Scope::Fields(names)) => 2 + names.len().min(2),
    };
    let spans = [span(said.max_age), span(said.s_maxage), span(said.max_stale)];
    let flags = flags(said).iter().filter(|(_, is_said)| *is_said).count();
    (spans, scope(&said.no_cache), scope(&said.private), flags.min(3))
}

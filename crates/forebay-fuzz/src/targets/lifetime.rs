//! Target: freshness lifetime and age, from dates, `Age`, `Expires` and directives.

use std::time::Duration;

use forebay_core::{Lifetime, Stale, WallTime};
use forebay_semantics::policy::Policy;
use forebay_semantics::storable::{Unstorable, storable};
use forebay_semantics::validate::validator;
use forebay_semantics::{Directives, Selects, initial_age, lifetime, selects};
use forebay_semantics::{RequestRef, ResponseRef, Rules};
use http::{HeaderMap, HeaderValue, Method};

use super::directives::SPAN_MAX;
use crate::block::{Block, backwards};
use crate::run::{Outcome, Target};

/// Fuzz target for freshness lifetime, age and storability of a response.
pub const TARGET: Target = Target { check, outcomes_min: 11 };

fn check(input: &[u8]) -> Outcome {
    let (request, answer) = Block::pair(input);
    let answered = ResponseRef { status: answer.status(), headers: &answer.headers };
    let received = WallTime::from_secs(answer.number("received").unwrap_or(784_111_777));
    let delay = Duration::from_millis(answer.number("delay").unwrap_or_default());
    let default_ttl = answer.number("default-ttl").unwrap_or_default().min(1 << 31);
    let default_ttl = Duration::from_secs(default_ttl);
    let rules = Rules { default_ttl, ..Rules::default() };

    assert_age(&answer.headers, received, delay);
    let span = lifetime(answered, &rules, received);
    assert_lifetime(&span, answered);
    let turned = ResponseRef { headers: &backwards(&answer.headers), ..answered };
    assert_eq!(lifetime(turned, &rules, received).stale, span.stale, "lines in another order");
    if Policy::of(&answer.headers).said.max_age.is_some() {
        let later = lifetime(answered, &rules, WallTime::from_secs(u64::MAX));
        assert_eq!(later, span, "an explicit span does not depend on any clock");
    }
    let asked = RequestRef { method: &Method::GET, headers: &request.headers };
    let verdict = storable(asked, answered, &rules);
    if verdict.is_ok() {
        assert_storable(asked, answered, &rules);
    }
    let reason = verdict.err().map(Unstorable::code);
    Outcome::of((reason, span.fresh.is_zero(), span.stale == Stale::Forbidden, windows(&span)))
}

fn assert_age(headers: &HeaderMap, received: WallTime, delay: Duration) {
    let age = initial_age(headers, received, delay);
    assert!(age <= SPAN_MAX && age >= delay.min(SPAN_MAX), "{age:?}");
    let later = WallTime::from_secs(received.as_secs().saturating_add(10));
    assert!(initial_age(headers, later, delay) >= age, "it grows with the time of receipt");
    let slower = delay.saturating_add(Duration::from_secs(10));
    assert!(initial_age(headers, received, slower) >= age, "it grows with the delay");
    let mut older = headers.clone();
    older.insert("age", HeaderValue::from_static("99999999999999999999"));
    assert_eq!(initial_age(&older, received, delay), SPAN_MAX, "an Age beyond all bounds");
}

fn assert_lifetime(span: &Lifetime, answered: ResponseRef<'_>) {
    assert!(span.fresh <= SPAN_MAX && span.stale_if_error <= SPAN_MAX, "{span:?}");
    assert!(span.stale_while_revalidate <= SPAN_MAX, "{span:?}");
    let said = Policy::of(answered.headers).said;
    assert!(said.no_cache.is_none() || span.fresh.is_zero(), "no-cache, yet {span:?}");
    let strict = said.must_revalidate || said.proxy_revalidate || said.no_cache.is_some();
    let strict = strict || said.s_maxage.is_some();
    assert_eq!(span.stale == Stale::Forbidden, strict, "{said:?}");
    if strict {
        assert_eq!(windows(span), [true, true], "never stale, yet {span:?}");
    }
    if let (Some(shared), None) = (said.s_maxage, &said.no_cache) {
        assert_eq!(span.fresh, shared, "s-maxage comes first");
    }
}

/// Asserts that a storable response is shareable and can be reused.
fn assert_storable(asked: RequestRef<'_>, answered: ResponseRef<'_>, rules: &Rules) {
    let said = Policy::of(answered.headers).said;
    assert!(said.private.is_none(), "private");
    assert!(!said.no_store || said.must_understand, "no-store");
    assert!(!Directives::of_request(asked.headers).no_store, "no-store in the request");
    assert_ne!(selects(answered.headers), Selects::Everything, "Vary: *");
    assert!(said.public || !answered.headers.contains_key("set-cookie"), "Set-Cookie");
    let is_shared = said.public || said.must_revalidate || said.s_maxage.is_some();
    assert!(is_shared || !asked.headers.contains_key("authorization"), "Authorization");
    let span = lifetime(answered, rules, WallTime::default());
    let is_useful = !span.fresh.is_zero() || windows(&span) != [true, true];
    assert!(is_useful || validator(answered.headers).is_some(), "of no use to anybody");
}

/// Returns whether the stale-while-revalidate and the stale-if-error window are empty.
const fn windows(span: &Lifetime) -> [bool; 2] {
    [span.stale_while_revalidate.is_zero(), span.stale_if_error.is_zero()]
}

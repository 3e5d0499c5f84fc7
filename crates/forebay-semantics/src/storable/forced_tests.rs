//! Values that rules set for a response.

use super::*;
use crate::freshness::lifetime::lifetime;
use crate::samples::headers;
use forebay_core::{Lifetime, Stale, WallTime};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn with(forced: Forced) -> Rules {
    Rules { forced, ..Rules::default() }
}

fn judged(rules: &Rules, request: &[&str], response: &[&str]) -> Result<(), Unstorable> {
    let (request, response) = (headers(request), headers(response));
    let asked = RequestRef { method: &Method::GET, headers: &request };
    storable(asked, ResponseRef { status: StatusCode::OK, headers: &response }, rules)
}

fn lifetime_with(forced: Forced, response: &[&str]) -> Lifetime {
    let response = headers(response);
    let answered = ResponseRef { status: StatusCode::OK, headers: &response };
    lifetime(answered, &with(forced), WallTime::default())
}

#[test]
fn a_forced_lifetime_replaces_what_the_response_states() {
    let ttl = Forced { ttl: Some(MINUTE), ..Forced::default() };
    let stated = ["max-age=1", "s-maxage=1", "no-cache", "max-age=9999", "x"];
    for line in stated {
        let line = format!("cache-control: {line}");
        assert_eq!(lifetime_with(ttl, &[&line]).fresh, MINUTE, "{line}");
        assert_eq!(judged(&with(ttl), &[], &[&line]), Ok(()), "{line}");
    }
    let least = Forced { min_ttl: Some(MINUTE), ..Forced::default() };
    let most = Forced { max_ttl: Some(MINUTE), ..Forced::default() };
    let rows = [
        (least, "cache-control: max-age=1", 60),
        (least, "cache-control: max-age=99", 99),
        (least, "cache-control: max-age=0", 0),
        (least, "cache-control: no-cache, max-age=9", 0),
        (most, "cache-control: max-age=1", 1),
        (most, "cache-control: max-age=99", 60),
    ];
    for (forced, line, expected) in rows {
        assert_eq!(lifetime_with(forced, &[line]).fresh.as_secs(), expected, "{line}");
    }
    let default = Forced { default_ttl: Some(MINUTE), ..Forced::default() };
    assert_eq!(lifetime_with(default, &["cache-control: max-age=1"]).fresh.as_secs(), 1);
    assert_eq!(lifetime_with(default, &[]).fresh, MINUTE);
}

#[test]
fn windows_never_lift_a_prohibition_of_stale_responses() {
    let forced = Forced {
        stale_while_revalidate: Some(MINUTE),
        stale_if_error: Some(MINUTE),
        ..Forced::default()
    };
    let free = lifetime_with(forced, &["cache-control: max-age=1, stale-if-error=5"]);
    assert_eq!((free.stale_while_revalidate, free.stale_if_error), (MINUTE, MINUTE));
    for word in ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=1"] {
        let line = format!("cache-control: max-age=1, {word}");
        let bound = lifetime_with(forced, &[&line]);
        assert_eq!(
            (bound.stale, bound.stale_if_error),
            (Stale::Forbidden, Duration::ZERO),
            "{word}"
        );
    }
}

#[test]
fn forced_sharing_needs_an_anonymous_fetch_or_a_stated_lifetime() {
    // Guarantee G3.
    let removed = SetCookieRemoval::Removed;
    let shares = [
        Forced { ttl: Some(MINUTE), ..Forced::default() },
        Forced { default_ttl: Some(MINUTE), ..Forced::default() },
        Forced { set_cookie: removed, default_ttl: Some(MINUTE), ..Forced::default() },
    ];
    for forced in shares {
        let rules = with(forced);
        assert_eq!(judged(&rules, &[], &[]), Ok(()));
        for credentials in ["cookie: a=1", "authorization: x"] {
            let public = ["cache-control: public"];
            let refused = Err(Unstorable::UnkeyedCredentials);
            assert_eq!(judged(&rules, &[credentials], &public), refused, "{credentials}");
            let stated = ["cache-control: public, max-age=5"];
            assert_eq!(judged(&rules, &[credentials], &stated), Ok(()), "{credentials}");
        }
    }
}

#[test]
fn only_an_ignored_prohibition_is_lifted() {
    // Guarantee G4: every combination of directives and ignored words.
    let words = [
        (Ignored::PRIVATE, "cache-control: private", Unstorable::Private),
        (Ignored::NO_STORE, "cache-control: no-store", Unstorable::NoStore),
        (Ignored::SET_COOKIE, "set-cookie: a=1", Unstorable::SetCookie),
    ];
    let credentials =
        [(Ignored::AUTHORIZATION, "authorization: x"), (Ignored::COOKIE, "cookie: a=1")];
    let count = words.len() + credentials.len();
    for present in 0..1_u32 << count {
        for lifted in 0..1_u32 << count {
            let has = |set: u32, n: usize| set >> n & 1 == 1;
            let all = words.iter().map(|row| row.0).chain(credentials.iter().map(|row| row.0));
            let ignored = all
                .enumerate()
                .filter(|(n, _)| has(lifted, *n))
                .fold(Ignored::default(), |ignored, (_, word)| ignored.with(word));
            let rules = with(Forced { ttl: Some(MINUTE), ignored, ..Forced::default() });
            let lines = |range: std::ops::Range<usize>, all: &[&'static str]| {
                range.clone().filter(|n| has(present, *n)).map(|n| all[n - range.start]).collect()
            };
            let response: Vec<&str> = lines(0..words.len(), &words.map(|row| row.1));
            let request: Vec<&str> = lines(words.len()..count, &credentials.map(|row| row.1));
            let expected = present & !lifted == 0;
            let found = judged(&rules, &request, &response);
            assert_eq!(found.is_ok(), expected, "{request:?} {response:?} {ignored:?}: {found:?}");
        }
    }
}

//! Guarantees G4 and G7, and the proof behind the warning `shadowed`.

use std::time::Duration;

use forebay_semantics::storable::storable;
use forebay_semantics::{
    Forced, Ignored, PeerAddress, RequestRef, ResponseRef, Rules, Scheme, SetCookieRemoval,
    Unstorable,
};
use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::cases;
use super::naive::{case, rule as random_rule};
use super::sets::{path, rule, set, ttl};
use crate::check::{Topic, warnings};
use crate::compile::{RuleSet, SiteFacts};
use crate::request::Request;
use crate::setting::Setting;

/// One spelling of `/account/x` that some server reads as this path.
fn spelling() -> impl Strategy<Value = String> {
    let slash = select(vec!["/", "//", "/./", "/y/../", "/%2e/", "/y/%2E%2e/", r"\", "%2f", "%5C"]);
    let letters = |word: &'static str| {
        let spelled = prop::collection::vec(any::<bool>(), word.len());
        spelled.prop_map(move |encoded| {
            let letter = |(byte, is_encoded): (u8, bool)| match is_encoded {
                true => format!("%{byte:02x}"),
                false => char::from(byte).to_string(),
            };
            word.bytes().zip(encoded).map(letter).collect::<String>()
        })
    };
    let parameter = || select(vec!["", ";", ";a", ";a=b", "%3bx"]);
    (slash, letters("account"), parameter(), letters("x.css"), parameter()).prop_map(
        |(slash, account, first, file, second)| {
            // A target begins with a slash.
            let start = if slash.starts_with('/') { "" } else { "/" };
            format!("{start}{slash}{account}{first}/{file}{second}")
        },
    )
}

fn prohibitions() -> impl Strategy<Value = Vec<&'static str>> {
    let all = vec!["private", "no-store", "set-cookie", "authorization", "cookie"];
    subsequence(all, 0..=5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Guarantee G7: no encoding of a bypassed path is looked up.
    #[test]
    fn every_spelling_of_a_bypassed_path_is_bypassed(target in spelling()) {
        let set = set(vec![
            rule("files", vec![path("/**.css")], vec![ttl(60), Setting::Bypass(false)]),
            rule("account", vec![path("/account/**")], vec![Setting::Bypass(true)]),
        ]);
        let headers = HeaderMap::new();
        let request = Request {
            method: &Method::GET,
            scheme: Scheme::Http,
            host: "h",
            target: &target,
            headers: &headers,
            client: PeerAddress::Unix,
            operation: None,
        };
        let matched = set.evaluate(&request);
        prop_assert!(set.outcome(&matched).bypasses(), "{}", target);
    }

    /// Guarantee G4: only `unsafe_ignore` makes a prohibited response stored.
    #[test]
    fn only_ignored_prohibitions_are_stored(
        prohibited in prohibitions(),
        ignored in prohibitions(),
        (ttl, default_ttl, min_ttl) in (0_u64..3, 0_u64..3, 0_u64..3),
        (is_stripped, is_public) in (any::<bool>(), any::<bool>()),
    ) {
        let (mut asked, mut answered) = (HeaderMap::new(), HeaderMap::new());
        let value = HeaderValue::from_static;
        for word in &prohibited {
            match *word {
                "set-cookie" => drop(answered.insert(SET_COOKIE, value("a=1"))),
                "authorization" => drop(asked.insert(AUTHORIZATION, value("Bearer x"))),
                "cookie" => drop(asked.insert(COOKIE, value("a=1"))),
                directive => drop(answered.append(CACHE_CONTROL, value(directive))),
            }
        }
        if is_public {
            answered.append(CACHE_CONTROL, value("public, max-age=60"));
        }
        let seconds = |n: u64| (n > 0).then(|| Duration::from_secs(n * 60));
        let flag = |word: &&str| match *word {
            "private" => Ignored::PRIVATE,
            "no-store" => Ignored::NO_STORE,
            "set-cookie" => Ignored::SET_COOKIE,
            "authorization" => Ignored::AUTHORIZATION,
            _ => Ignored::COOKIE,
        };
        let ignores = ignored.iter().fold(Ignored::default(), |all, word| all.with(flag(word)));
        let removal =
            if is_stripped { SetCookieRemoval::Removed } else { SetCookieRemoval::None };
        if is_stripped {
            answered.remove(SET_COOKIE);
        }
        let forced = Forced {
            ttl: seconds(ttl),
            default_ttl: seconds(default_ttl),
            min_ttl: seconds(min_ttl),
            set_cookie: removal,
            ignored: ignores,
            ..Forced::default()
        };
        let asked = RequestRef { method: &Method::GET, headers: &asked };
        let answered = ResponseRef { status: StatusCode::OK, headers: &answered };
        let judged = |forced| {
            let rules = Rules { forced, ..Rules::default() };
            storable(asked, answered, &rules)
        };
        let result = judged(forced);
        let has = |word: &str| prohibited.contains(&word) && !ignored.contains(&word);
        if has("private") || has("no-store") {
            prop_assert!(result.is_err(), "{:?}", result);
        }
        if has("set-cookie") && !is_stripped {
            prop_assert!(result.is_err(), "{:?}", result);
        }
        if has("authorization") && !is_public {
            prop_assert!(result.is_err(), "{:?}", result);
        }
        // Guarantee G3: the origin must state a lifetime, if the request had credentials.
        if has("cookie") && !is_public {
            prop_assert!(result.is_err(), "{:?}", result);
        }
        // What is forced stores nothing that a prohibition keeps out without it.
        let plain = judged(Forced { ignored: ignores, ..Forced::default() });
        let is_about_lifetime = matches!(plain, Err(Unstorable::NoFreshness | Unstorable::Cookie));
        if plain.is_err() && !is_about_lifetime {
            prop_assert!(result.is_err(), "{:?} {:?}", plain, result);
        }
    }

    /// Requests that a shadowed rule matches are matched by the rule that shadows it.
    #[test]
    fn a_shadowed_rule_matches_no_request_of_its_own(
        one in random_rule(),
        other in random_rule(),
        requests in prop::collection::vec(case(), 20),
    ) {
        let set = RuleSet::new(vec![one, other], SiteFacts::default()).unwrap();
        let is_shadowed =
            warnings(&set).iter().any(|w| w.topic == Topic::Shadowed && w.rule == 0);
        if is_shadowed {
            for request in &requests {
                let matched = set.evaluate(&request.request());
                let rules: Vec<usize> = set.outcome(&matched).rules().collect();
                prop_assert!(!rules.contains(&0) || rules.contains(&1), "{:?}", request);
            }
        }
    }
}

//! Values that apply, key parts, and effects on target and cookies.

use std::borrow::Cow;
use std::time::Duration;

use forebay_semantics::{PeerAddress, Scheme};
use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use proptest::prelude::*;

use super::cases;
use super::naive::case;
use crate::apply::{filter_cookies, origin_target, redirect_target, target};
use crate::compile::{CompileError, RULES_MAX, RuleSet, SiteFacts};
use crate::edit::{Edits, Value};
use crate::glob::{NamePattern, PathGlob};
use crate::key::{KeyParts, Keyed, KeyedFields};
use crate::outcome::Ended;
use crate::pattern::Pattern;
use crate::request::Request;
use crate::rule::{Condition, Rule, Tests};
use crate::setting::{
    ByStatus, Kind, OriginParameter, Redirect, Respond, Rewrite, Setting, StatusTest,
};
use crate::template::{Placeholder, Placeholders, Template};

pub(super) fn path(glob: &str) -> Condition {
    Condition::Path(vec![PathGlob::parse(glob).unwrap()])
}

pub(super) fn names(texts: &[&str]) -> Vec<NamePattern> {
    texts.iter().map(|text| NamePattern::parse(text).unwrap()).collect()
}

pub(super) fn ttl(seconds: u64) -> Setting {
    Setting::Ttl(ByStatus::Plain(Duration::from_secs(seconds)))
}

pub(super) fn rule(name: &str, when: Vec<Condition>, settings: Vec<Setting>) -> Rule {
    let when = if when.is_empty() { Vec::new() } else { vec![when] };
    Rule { name: name.into(), when, unless: Vec::new(), settings }
}

pub(super) fn set(rules: Vec<Rule>) -> RuleSet {
    RuleSet::new(rules, SiteFacts::default()).unwrap()
}

fn get<'a>(target: &'a str, headers: &'a HeaderMap) -> Request<'a, HeaderMap> {
    Request {
        method: &Method::GET,
        scheme: Scheme::Http,
        host: "h",
        target,
        headers,
        client: PeerAddress::Unix,
        operation: None,
    }
}

fn cookie(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(COOKIE, HeaderValue::from_static(value))])
}

#[test]
fn the_last_value_wins_and_lists_add_up() {
    let set = set(vec![
        rule("all", vec![], vec![ttl(1), Setting::KeepCookies(names(&["a"]))]),
        rule("p", vec![path("/p/**")], vec![ttl(2), Setting::KeepCookies(names(&["b"]))]),
        rule("q", vec![path("/q/**")], vec![ttl(3)]),
    ]);
    let headers = HeaderMap::new();
    for (target, expected, lists) in [("/x", 1, 1), ("/p/x", 2, 2), ("/q", 3, 1)] {
        let matched = set.evaluate(&get(target, &headers));
        let outcome = set.outcome(&matched);
        assert_eq!(outcome.last(Kind::Ttl), Some(&ttl(expected)), "{target}");
        assert_eq!(outcome.all(Kind::KeepCookies).count(), lists, "{target}");
    }
}

#[test]
fn a_bypass_holds_for_every_encoding_of_its_path() {
    let set = set(vec![
        rule("account", vec![path("/account/**")], vec![Setting::Bypass(true)]),
        rule("static", vec![path("/static/**")], vec![Setting::Bypass(false), ttl(9)]),
    ]);
    let headers = HeaderMap::new();
    let bypassed = [
        "/account",
        "/account/x.css",
        "/%61ccount",
        "/account%2fx.css",
        "/static/../account",
        "/static/..%2faccount/x",
        "/a%63count;x/y",
        "//account",
        "/./account",
        r"/\account",
        "/account;x.css",
        "/x/%2e%2e/account",
        "/static/%2e%2e%2faccount",
        "/account/%2e",
    ];
    for target in bypassed {
        let outcome = set.evaluate(&get(target, &headers));
        let outcome = set.outcome(&outcome);
        assert!(outcome.bypasses(), "{target}");
        assert_eq!(outcome.last(Kind::Ttl), None, "{target}: widens only if both readings match");
    }
    let matched = set.evaluate(&get("/static/x", &headers));
    assert_eq!(set.outcome(&matched).last(Kind::Ttl), Some(&ttl(9)));
}

#[test]
fn bypass_is_undone_by_a_later_rule() {
    let undo = |glob| rule("undo", vec![path(glob)], vec![Setting::Bypass(false)]);
    let set = set(vec![rule("all", vec![], vec![Setting::Bypass(true)]), undo("/a/**")]);
    let headers = HeaderMap::new();
    for (target, expected) in [("/x", true), ("/a/x", false), ("/a/..%2fx", true)] {
        let matched = set.evaluate(&get(target, &headers));
        assert_eq!(set.outcome(&matched).bypasses(), expected, "{target}");
    }
}

#[test]
fn rules_may_shape_what_other_requests_with_the_key_store() {
    let edits = || Setting::ClientResponse(Edits::default());
    let header = Condition::Header(Tests::Any(names(&["x-a"])));
    let post = Condition::Method(vec![Method::POST]);
    let mut unless = rule("unless", vec![path("/u/**")], vec![ttl(1)]);
    unless.unless = vec![path("/x/**")];
    let set = set(vec![
        rule("all", vec![], vec![edits()]),
        rule("header", vec![path("/h/**"), header], vec![edits(), Setting::Bypass(true)]),
        rule("late", vec![path("/l/**"), Condition::Status(vec![])], vec![ttl(1)]),
        rule("post", vec![path("/p"), post], vec![ttl(1)]),
        unless,
    ]);
    let headers = HeaderMap::new();
    let cases = [("/", false), ("/h/1", true), ("/l/1", true), ("/p", false), ("/x/1", false)];
    for (target, expected) in cases {
        let matched = set.evaluate(&get(target, &headers));
        assert_eq!(set.may_shape(&matched), expected, "{target}");
    }
    assert!(!RuleSet::empty().may_shape(&RuleSet::empty().evaluate(&get("/", &headers))));
}

#[test]
fn a_scheme_outside_of_the_key_is_not_stored() {
    let value = Value::parse("{scheme}").unwrap();
    let set = vec![(HeaderName::from_static("x-scheme"), value)];
    let edits = Edits { set, ..Edits::default() };
    let facts = |ignore_scheme| SiteFacts { ignore_scheme, ..SiteFacts::default() };
    let compiled = |setting: Setting, ignore_scheme| {
        RuleSet::new(vec![rule("r", vec![], vec![setting])], facts(ignore_scheme)).err()
    };
    for setting in [Setting::OriginRequest(edits.clone()), Setting::OriginResponse(edits.clone())] {
        let refused = CompileError::UnkeyedScheme { rule: 0 };
        assert_eq!(compiled(setting.clone(), true), Some(refused));
        assert_eq!(compiled(setting, false), None);
    }
    assert_eq!(compiled(Setting::ClientResponse(edits), true), None);
}

#[test]
fn rules_with_response_conditions_apply_to_matching_responses_only() {
    let missing = vec![path("/a/**"), Condition::Status(vec![StatusTest::Exact(404)])];
    let mut fine = rule("fine", vec![], vec![Setting::MaxTtl(Duration::ZERO)]);
    fine.unless = vec![Condition::Status(vec![StatusTest::Class(2)])];
    let set = set(vec![rule("missing", missing, vec![ttl(1)]), fine]);
    let headers = HeaderMap::new();
    let matched = set.evaluate(&get("/a/x", &headers));
    assert!(set.outcome(&matched).is_empty());
    let ttl_of = |status| {
        let outcome = set.response_outcome(&matched, status, &headers);
        (outcome.last(Kind::Ttl).is_some(), outcome.last(Kind::MaxTtl).is_some())
    };
    assert_eq!(ttl_of(StatusCode::NOT_FOUND), (true, true));
    assert_eq!(ttl_of(StatusCode::OK), (false, false));
    assert_eq!(ttl_of(StatusCode::BAD_GATEWAY), (false, true));
}

fn parts(set: &RuleSet, target: &str, headers: &HeaderMap) -> Vec<Vec<u8>> {
    let matched = set.evaluate(&get(target, headers));
    let mut parts = Vec::new();
    set.key_parts(&matched, false, |part| parts.push(part.to_vec()));
    parts
}

#[test]
fn an_unkeyed_condition_of_a_stored_setting_is_a_key_part() {
    let has_cookie = Condition::Cookie(Tests::Any(names(&["a"])));
    let split = rule("split", vec![path("/p/**"), has_cookie.clone()], vec![ttl(1)]);
    let set = set(vec![split, rule("narrow", vec![has_cookie], vec![Setting::Bypass(true)])]);
    assert_eq!(set.splits().collect::<Vec<_>>(), [0]);
    let (with, without) = (cookie("a=1"), HeaderMap::new());
    assert_eq!(parts(&set, "/q", &with), parts(&set, "/q", &without));
    let (one, two) = (parts(&set, "/p/x", &with), parts(&set, "/p/x", &without));
    assert_eq!((one.len(), two.len()), (1, 1));
    assert_ne!(one, two);
}

#[test]
fn a_removed_parameter_is_not_keyed() {
    let preview = || Condition::Query(Tests::Any(names(&["preview"])));
    let ignores = |texts| rule("i", vec![], vec![Setting::IgnoreQuery(names(texts))]);
    let splits =
        |removing| set(vec![removing, rule("p", vec![preview()], vec![ttl(1)])]).splits().count();
    assert_eq!(splits(ignores(&["utm_*"])), 0);
    assert_eq!(splits(ignores(&["pre*"])), 1);
    assert_eq!(splits(ignores(&["%70*"])), 1);
    assert_eq!(splits(rule("k", vec![], vec![Setting::KeepQuery(names(&["preview"]))])), 1);
}

#[test]
fn too_many_rules_are_refused() {
    let many = (0..=RULES_MAX).map(|n| rule(&n.to_string(), vec![], vec![ttl(1)])).collect();
    assert_eq!(RuleSet::new(many, SiteFacts::default()), Err(CompileError::TooMany));
    let split = |n: usize| {
        rule(&n.to_string(), vec![Condition::Cookie(Tests::Any(names(&["a"])))], vec![ttl(1)])
    };
    let error = RuleSet::new((0..9).map(split).collect(), SiteFacts::default());
    assert_eq!(error, Err(CompileError::TooManySplits { rule: 8 }));
}

#[test]
fn paths_that_do_not_fit_together_run_alone() {
    let glob = |n: usize| format!("/**/{n}*/**/x{n}*/**");
    let rules = (0..16).map(|n| rule(&n.to_string(), vec![path(&glob(n))], vec![ttl(1)])).collect();
    let set = set(rules);
    assert!(set.automata_size() <= 512 << 10);
    let headers = HeaderMap::new();
    let matched = set.evaluate(&get("/a/7b/c/x7/d", &headers));
    assert_eq!(set.outcome(&matched).rules().collect::<Vec<_>>(), [7]);
}

fn edited(set: &RuleSet, facts: &SiteFacts, text: &str) -> Result<String, ()> {
    let headers = HeaderMap::new();
    let matched = set.evaluate(&get(text, &headers));
    let outcome = set.outcome(&matched);
    target(facts, &outcome, Cow::Borrowed(text)).map(Cow::into_owned).map_err(|_| ())
}

#[test]
fn targets_lose_and_sort_parameters() {
    let facts = SiteFacts { ignore_query: names(&["fbclid"]), ..SiteFacts::default() };
    let set = set(vec![
        rule("u", vec![], vec![Setting::IgnoreQuery(names(&["utm_*"]))]),
        rule(
            "s",
            vec![path("/s")],
            vec![Setting::KeepQuery(names(&["q", "p"])), Setting::SortQuery(true)],
        ),
        rule("none", vec![path("/n")], vec![Setting::KeepQuery(Vec::new())]),
    ]);
    let rows = [
        ("/a?utm_x=1&b=2&fbclid=3", "/a?b=2"),
        ("/a?utm_x", "/a"),
        ("/s?q=1&x=2&p=3&utm_p=4", "/s?p=3&q=1"),
        ("/n?a=1", "/n"),
        ("/a?b=1&&a", "/a?b=1&&a"),
    ];
    for (text, expected) in rows {
        assert_eq!(edited(&set, &facts, text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn rewritten_paths_stay_paths() {
    let rewrite = |from: Option<&str>, to: &str| {
        let from = from.map(|from| Pattern::new(from).unwrap());
        set(vec![rule("r", vec![], vec![Setting::Rewrite(Rewrite { from, to: to.into() })])])
    };
    let facts = SiteFacts::default();
    let old = rewrite(Some("^/old/(.*)$"), "/new/$1");
    assert_eq!(edited(&old, &facts, "/old/x?a=1").as_deref(), Ok("/new/x?a=1"));
    assert_eq!(edited(&old, &facts, "/other").as_deref(), Ok("/other"));
    let bare = rewrite(Some("^/x(.*)$"), "$1");
    for text in ["/x", "/x//evil", "/xevil", r"/x/\evil"] {
        assert_eq!(edited(&bare, &facts, text), Err(()), "{text}");
    }
}

/// The path is the only value.
struct PathOnly<'a>(&'a str);

impl Placeholders for PathOnly<'_> {
    fn append(&self, placeholder: &Placeholder, to: &mut Vec<u8>) {
        if *placeholder == Placeholder::Path {
            to.extend_from_slice(self.0.as_bytes());
        }
    }
}

#[test]
fn redirects_do_not_leave_the_host_by_accident() {
    let of = |from: Option<&str>, to: &str, path: &str| {
        let redirect = Redirect {
            from: from.map(|from| Pattern::new(from).unwrap()),
            to: Template::parse(to).unwrap(),
            status: StatusCode::FOUND,
        };
        let target = redirect_target(&redirect, path, &PathOnly(path)).ok()?;
        Some(target.to_str().unwrap().to_owned())
    };
    assert_eq!(of(None, "https://b.example{path}", "/x").as_deref(), Some("https://b.example/x"));
    assert_eq!(of(Some("^/a(/.*)$"), "$1", "/a/b").as_deref(), Some("/b"));
    for path in ["/a//evil.example", r"/a/\evil.example"] {
        assert_eq!(of(Some("^/a(/.*)$"), "$1", path), None, "{path}");
    }
    assert_eq!(of(None, "{path}", "//evil"), None);
    assert_eq!(of(None, "/a b", "/"), None);
}

#[test]
fn the_first_rule_that_ends_the_request_wins() {
    let respond = |status| {
        let status = StatusCode::from_u16(status).unwrap();
        Setting::Respond(Respond { status, body: Box::default(), content_type: None })
    };
    let set = set(vec![
        rule("gone", vec![path("/gone/**")], vec![respond(410)]),
        rule("ok", vec![path("/ok/**")], vec![respond(200)]),
        rule("all", vec![path("/gone/x")], vec![respond(200)]),
    ]);
    let headers = HeaderMap::new();
    let status = |target: &str| {
        let matched = set.evaluate(&get(target, &headers));
        match set.outcome(&matched).ended(target)? {
            Ended::Respond(respond) => Some(respond.status.as_u16()),
            Ended::Redirect(_) => None,
        }
    };
    let rows = [("/gone/x", Some(410)), ("/ok/x", Some(200)), ("/y", None)];
    for (target, expected) in rows {
        assert_eq!(status(target), expected, "{target}");
    }
    assert_eq!(status("/ok/..%2fgone/x"), Some(410), "an error applies to one reading");
    assert_eq!(status("/y/..%2fok"), None, "other responses need both");
}

#[test]
fn cookies_are_filtered() {
    let keep = |texts| rule("k", vec![], vec![Setting::KeepCookies(names(texts))]);
    let drop = rule("d", vec![], vec![Setting::DropCookies(names(&["_ga*"]))]);
    let rows = [
        (set(vec![keep(&[])]), "a=1; b=2", None),
        (set(vec![keep(&["a"])]), "a=1; b=2;a=3", Some("a=1; a=3")),
        (set(vec![drop.clone()]), "_ga=1; a=1; _gat", Some("a=1")),
        (set(vec![keep(&["_ga", "a"]), drop]), "_ga=1; a=1", Some("a=1")),
        (set(vec![keep(&["a"])]), "a=1;  a=2", Some("a=1;  a=2")),
    ];
    for (set, line, expected) in rows {
        let mut headers = cookie(line);
        let matched = set.evaluate(&get("/", &headers));
        let is_removed = filter_cookies(&set.outcome(&matched), &mut headers);
        let left = headers.get(COOKIE).map(|value| value.to_str().unwrap());
        assert_eq!((left, is_removed), (expected, expected != Some(line)), "{line}");
    }
}

#[test]
fn parameters_for_the_origin_replace_those_of_the_client() {
    let one = |name: &str, value: &str| OriginParameter {
        name: name.into(),
        value: value.into(),
        is_secret: true,
    };
    let set = set(vec![rule("o", vec![], vec![Setting::OriginQuery(vec![one("key", "s3")])])]);
    let headers = HeaderMap::new();
    let matched = set.evaluate(&get("/", &headers));
    let outcome = set.outcome(&matched);
    for (text, expected) in [("/a", "/a?key=s3"), ("/a?key=1&b&%6bey=2", "/a?b&key=s3")] {
        assert_eq!(origin_target(&outcome, text).as_deref(), Some(expected));
    }
    assert!(!format!("{set:?}").contains("s3"), "secrets are not printed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn no_target_makes_the_evaluation_panic(text in "\\PC{0,60}", cookie in "[ -~]{0,40}") {
        let named = Condition::Cookie(Tests::Any(names(&["a"])));
        let asked = Condition::Query(Tests::Any(names(&["a*"])));
        let set = set(vec![
            rule("p", vec![path("/**/x"), asked], vec![Setting::SortQuery(true)]),
            rule("c", vec![named], vec![Setting::KeepCookies(names(&["b"]))]),
            rule("q", vec![], vec![Setting::KeepQuery(names(&["b"])), Setting::SortQuery(true)]),
        ]);
        let value = HeaderValue::from_str(&cookie).unwrap();
        let mut headers = HeaderMap::from_iter([(COOKIE, value)]);
        let matched = set.evaluate(&get(&text, &headers));
        let outcome = set.outcome(&matched);
        filter_cookies(&outcome, &mut headers);
        let facts = SiteFacts::default();
        let after = target(&facts, &outcome, Cow::Borrowed(&text)).unwrap();
        // Guarantee G2: only the kept parameter is left.
        let left: Vec<_> = crate::request::Target::new(&after).parameters().collect();
        prop_assert!(left.iter().all(|(name, _)| *name == "b"), "{}", after);
    }

    /// Guarantees G1 and G2: with equal key parts, the origin gets equal fields and cookies.
    #[test]
    fn equal_key_parts_have_equal_requests(one in case(), other in case()) {
        let keyed = |name: &str, values: &[&str]| Keyed {
            name: name.into(),
            values: values.iter().map(|value| (*value).into()).collect(),
        };
        let parts = KeyParts {
            headers: vec![keyed("a", &["1", "z"]), keyed("u-x", &[])],
            cookies: vec![keyed("u", &[]), keyed("b", &["2"])],
            device: true,
            ..KeyParts::default()
        };
        let set = set(vec![
            rule("k", vec![], vec![Setting::Key(parts), Setting::KeepCookies(Vec::new())]),
            rule("h", vec![Condition::Header(Tests::Any(names(&["u-x"])))], vec![ttl(1)]),
        ]);
        let of = |request: &Request<'_, HeaderMap>| {
            let matched = set.evaluate(request);
            let outcome = set.outcome(&matched);
            let keyed = KeyedFields::of(&outcome).unwrap();
            let mut headers = request.headers.clone();
            keyed.normalise(&mut headers).unwrap();
            filter_cookies(&outcome, &mut headers);
            assert!(keyed.covers_cookies(&headers));
            let mut key = Vec::new();
            keyed.parts(&headers, |part| key.push(part.to_vec()));
            set.key_parts(&matched, false, |part| key.push(part.to_vec()));
            let sent = |name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
            let cookies: Vec<_> = crate::request::cookies(&headers)
                .map(|(name, value)| (name.to_owned(), value.to_vec()))
                .collect();
            (key, (sent("a"), sent("u-x"), sent("x-device"), outcome.last(Kind::Ttl)), cookies)
        };
        let (mut one, mut other) = (of(&one.request()), of(&other.request()));
        if one.0 == other.0 {
            one.2.sort();
            other.2.sort();
            prop_assert_eq!((one.1, one.2), (other.1, other.2));
        }
    }

    /// Guarantee G1: equal keys, equal stored policy.
    #[test]
    fn equal_keys_have_equal_stored_policies(one in case(), other in case()) {
        let has = |name: &str| Condition::Header(Tests::Any(names(&[name])));
        let with_query = Condition::Query(Tests::Any(names(&["a"])));
        let set = set(vec![
            rule("c", vec![Condition::Cookie(Tests::Any(names(&["a", "u*"])))], vec![ttl(1)]),
            rule("h", vec![path("/a/**"), has("a")], vec![ttl(2)]),
            rule("q", vec![with_query], vec![ttl(3)]),
            rule("p", vec![path("/**/x")], vec![ttl(4)]),
            rule("i", vec![], vec![Setting::IgnoreQuery(names(&["a", "utm_*"]))]),
        ]);
        let of = |request: &Request<'_, HeaderMap>| {
            let matched = set.evaluate(request);
            let outcome = set.outcome(&matched);
            let facts = SiteFacts::default();
            let target = target(&facts, &outcome, Cow::Borrowed(request.target)).unwrap();
            let mut key = vec![target.as_bytes().to_vec(), request.host.as_bytes().to_vec()];
            key.push(request.scheme.as_str().as_bytes().to_vec());
            set.key_parts(&matched, false, |part| key.push(part.to_vec()));
            (key, outcome.last(Kind::Ttl))
        };
        let ((key, ttl), (other_key, other_ttl)) = (of(&one.request()), of(&other.request()));
        if key == other_key {
            prop_assert_eq!(ttl, other_ttl);
        }
    }
}

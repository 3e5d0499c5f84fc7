//! Compiled rules match what a direct interpretation of the rules matches.

use std::net::IpAddr;
use std::time::Duration;

use forebay_semantics::{Networks, Scheme};
use http::header::{COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use proptest::sample::select;

use super::cases;
use crate::compile::{RuleSet, SiteFacts};
use crate::glob::{NamePattern, PathGlob, TextGlob};
use crate::pattern::Pattern;
use crate::reading::{normalised, second_reading};
use crate::request::{Request, Target, cookies, device, extension, unescaped};
use crate::rule::{Condition, Device, Extension, HostName, Rule, Tests, ValueTest};
use crate::setting::{Kind, Setting};

const GLOBS: [&str; 9] =
    ["/", "/a/**", "/a/*", "/**", "/*.css", "/b/%61/**", "/a/b", "/**/x", "/c;d/*"];
const PATHS: [&str; 14] = [
    "/",
    "/a",
    "/a/b",
    "/a/b/c.css",
    "/x.css",
    "/b/a/x",
    "/b/%61/x",
    "/a%2fb",
    "/q/../a/b",
    "/c;d/e",
    "/c/e",
    "//a",
    "/a/x.CSS",
    "/a%3fb/b",
];
const QUERIES: [&str; 6] = ["", "?a=1", "?a=2&b", "?%61=1", "?utm_x=1&a", "?b=x+y"];
const REGEXES: [&str; 5] = ["^/a", "b$", "^/[a-c]+/", "x", "^/$"];

fn condition() -> impl Strategy<Value = Condition> {
    let globs = prop::collection::vec(select(&GLOBS[..]), 1..3);
    let regexes = || prop::collection::vec(select(&REGEXES[..]), 1..3);
    let compiled = |texts: Vec<&str>| texts.iter().map(|t| Pattern::new(t).unwrap()).collect();
    prop_oneof![
        4 => globs.prop_map(|texts| {
            Condition::Path(texts.iter().map(|text| PathGlob::parse(text).unwrap()).collect())
        }),
        2 => regexes().prop_map(move |texts| Condition::PathRegex(compiled(texts))),
        1 => regexes().prop_map(move |texts| Condition::UrlRegex(compiled(texts))),
        1 => select(vec!["css", "js", "*"]).prop_map(|name| Condition::Extension(vec![match name {
            "*" => Extension::Any,
            name => Extension::Exact(name.into()),
        }])),
        1 => select(vec!["h", "*.h"]).prop_map(|host| Condition::Host(vec![match host {
            "h" => HostName::Exact("h".into()),
            _ => HostName::Below("h".into()),
        }])),
        1 => select(vec![Scheme::Http, Scheme::Https]).prop_map(|s| Condition::Scheme(vec![s])),
        1 => select(vec![Method::GET, Method::HEAD, Method::POST])
            .prop_map(|method| Condition::Method(vec![method])),
        1 => tests().prop_map(Condition::Query),
        1 => tests().prop_map(Condition::Cookie),
        1 => tests().prop_map(Condition::Header),
        1 => select(vec!["10.0.0.0/8", "192.0.2.1"]).prop_map(|text| {
            let mut networks = Networks::default();
            networks.add(text).unwrap();
            Condition::Client(networks)
        }),
        1 => select(Device::ALL.to_vec()).prop_map(|device| Condition::Device(vec![device])),
    ]
}

fn tests() -> impl Strategy<Value = Tests> {
    let name = || select(vec!["a", "b", "u*"]).prop_map(|text| NamePattern::parse(text).unwrap());
    let value = select(vec![
        ValueTest::Present,
        ValueTest::Absent,
        ValueTest::Globs(vec![TextGlob::new("1*"), TextGlob::new("X y")]),
        ValueTest::Regex(Pattern::new("^[12]").unwrap()),
    ]);
    prop_oneof![
        prop::collection::vec(name(), 1..3).prop_map(Tests::Any),
        prop::collection::vec((name(), value), 1..3).prop_map(Tests::All),
    ]
}

pub(super) fn rule() -> impl Strategy<Value = Rule> {
    let when = prop::collection::vec(prop::collection::vec(condition(), 0..4), 0..3);
    let unless = prop::collection::vec(condition(), 0..2);
    // A setting that narrows applies if one reading of the path matches.
    let setting = select(vec![
        Setting::MaxTtl(Duration::from_secs(1)),
        Setting::SoftTimeout(Duration::from_secs(1)),
    ]);
    (when, unless, setting).prop_map(|(when, unless, setting)| {
        let when = when.into_iter().map(without_repeats).collect();
        Rule { name: "r".into(), when, unless, settings: vec![setting] }
    })
}

/// A table has each condition once.
fn without_repeats(conditions: Vec<Condition>) -> Vec<Condition> {
    let mut kept: Vec<Condition> = Vec::new();
    for condition in conditions {
        if kept.iter().all(|known| known.name() != condition.name()) {
            kept.push(condition);
        }
    }
    kept
}

/// Owned request.
#[derive(Clone, Debug)]
pub(super) struct Case {
    method: Method,
    scheme: Scheme,
    host: &'static str,
    target: String,
    headers: HeaderMap,
    client: IpAddr,
}

impl Case {
    pub(super) fn request(&self) -> Request<'_, HeaderMap> {
        Request {
            method: &self.method,
            scheme: self.scheme,
            host: self.host,
            target: &self.target,
            headers: &self.headers,
            client: self.client.into(),
            operation: None,
        }
    }
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let line = prop_oneof![
        select(vec!["a=1; u=x", "b=2", "u1=1;a"]).prop_map(|value| (COOKIE, value)),
        select(vec!["curl", "Googlebot", "iPhone Mobile"]).prop_map(|value| (USER_AGENT, value)),
        select(vec!["1", "X Y", "z"]).prop_map(|value| (HeaderName::from_static("a"), value)),
        select(vec!["1", ""]).prop_map(|value| (HeaderName::from_static("u-x"), value)),
    ];
    (
        select(vec![Method::GET, Method::HEAD, Method::POST, Method::PUT]),
        select(vec![Scheme::Http, Scheme::Https]),
        select(vec!["h", "a.h", "ah"]),
        (select(&PATHS[..]), select(&QUERIES[..])),
        prop::collection::vec(line, 0..4),
        select(vec!["10.1.1.1", "192.0.2.1", "::1"]),
    )
        .prop_map(|(method, scheme, host, (path, query), lines, client)| Case {
            method,
            scheme,
            host,
            target: format!("{path}{query}"),
            headers: lines
                .into_iter()
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .collect(),
            client: client.parse().unwrap(),
        })
}

/// One reading of a request.
struct Read<'a> {
    request: Request<'a, HeaderMap>,
    path: &'a str,
    /// Path and query.
    url: &'a str,
    is_second: bool,
}

impl Read<'_> {
    fn matches(&self, rule: &Rule) -> bool {
        let all = |conditions: &Vec<Condition>| conditions.iter().all(|c| self.holds(c));
        (rule.when.is_empty() || rule.when.iter().any(all))
            && !rule.unless.iter().any(|condition| self.holds(condition))
    }

    fn holds(&self, condition: &Condition) -> bool {
        let Request { method, scheme, host, target, headers, client, .. } = self.request;
        match condition {
            Condition::Path(globs) => globs.iter().any(|glob| self.glob(glob)),
            Condition::PathRegex(all) => all.iter().any(|p| p.is_match(self.path.as_bytes())),
            Condition::UrlRegex(all) => all.iter().any(|p| p.is_match(self.url.as_bytes())),
            Condition::Extension(all) => all.iter().any(|one| match (one, extension(self.path)) {
                (Extension::Any, its) => its.is_some(),
                (Extension::Exact(name), its) => {
                    its.is_some_and(|its| its.eq_ignore_ascii_case(name))
                }
            }),
            Condition::Host(all) => all.iter().any(|pattern| pattern.matches(host)),
            Condition::Scheme(all) => all.contains(&scheme),
            Condition::Method(all) => {
                let same = |m: &Method| if *m == Method::HEAD { Method::GET } else { m.clone() };
                all.iter().any(|one| same(one) == same(method))
            }
            Condition::Query(tests) => {
                let parameters = Target::new(target).parameters();
                let decoded = |(name, value)| {
                    (unescaped(name).into_owned(), unescaped(value).as_bytes().to_vec())
                };
                tests_hold(tests, &parameters.map(decoded).collect::<Vec<_>>(), false)
            }
            Condition::Cookie(tests) => {
                let all = cookies(headers).map(|(name, value)| (name.to_owned(), value.to_vec()));
                tests_hold(tests, &all.collect::<Vec<_>>(), false)
            }
            Condition::Header(tests) => {
                let lines = headers.iter();
                let all = lines.map(|(name, v)| (name.as_str().to_owned(), v.as_bytes().to_vec()));
                tests_hold(tests, &all.collect::<Vec<_>>(), true)
            }
            Condition::Client(networks) => networks.contains(client),
            Condition::Device(all) => all.contains(&device(headers)),
            _ => panic!("{condition:?} is of the response"),
        }
    }

    fn glob(&self, glob: &PathGlob) -> bool {
        let read = normalised(glob.as_str().as_bytes());
        let glob = if self.is_second { PathGlob::parse(&read).unwrap() } else { glob.clone() };
        Pattern::new(&glob.to_regex()).unwrap().is_match(self.path.as_bytes())
    }
}

fn tests_hold(tests: &Tests, values: &[(String, Vec<u8>)], ignore_case: bool) -> bool {
    let some = |name: &NamePattern, check: &dyn Fn(&[u8]) -> bool| {
        values.iter().any(|(its, value)| name.matches(its) && check(value))
    };
    match tests {
        Tests::Any(names) => names.iter().any(|name| some(name, &|_| true)),
        Tests::All(tests) => tests.iter().all(|(name, test)| match test {
            ValueTest::Present => some(name, &|_| true),
            ValueTest::Absent => !some(name, &|_| true),
            ValueTest::Globs(globs) => {
                some(name, &|v| globs.iter().any(|glob| glob.matches(v, ignore_case)))
            }
            ValueTest::Regex(pattern) => some(name, &|value| pattern.is_match(value)),
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn compiled_rules_match_what_they_say(
        rules in prop::collection::vec(rule(), 1..12),
        case in case(),
    ) {
        let set = RuleSet::new(rules.clone(), SiteFacts::default()).unwrap();
        let request = case.request();
        let target = Target::new(&case.target);
        let first = Read { request, path: target.path, url: &case.target, is_second: false };
        let path = second_reading(target.path);
        let query = case.target.split_once('?').map_or(String::new(), |(_, q)| format!("?{q}"));
        let read = path.as_deref().map(|path| format!("{path}{query}"));
        let second = Read {
            request,
            url: read.as_deref().unwrap_or(&case.target),
            path: path.as_deref().unwrap_or(target.path),
            is_second: path.is_some(),
        };
        let matched = set.evaluate(&request);
        let outcome = set.outcome(&matched);
        let both: Vec<usize> = outcome.rules().collect();
        for (n, rule) in rules.iter().enumerate() {
            let (one, two) = (first.matches(rule), second.matches(rule));
            prop_assert_eq!(both.contains(&n), one && two, "rule {}", n);
        }
        let narrows = |rule: &Rule| rule.setting(Kind::MaxTtl).is_some();
        let either = rules.iter().any(|r| narrows(r) && (first.matches(r) || second.matches(r)));
        prop_assert_eq!(outcome.has_any(&[Kind::MaxTtl]), either);
    }

    /// Guarantee G1: a request that no rule may shape stands for all that differ from it in values
    /// outside of path, method, host and scheme.
    #[test]
    fn what_no_rule_may_shape_none_shapes(
        rules in prop::collection::vec(rule(), 1..4),
        one in case(),
        other in case(),
    ) {
        let set = RuleSet::new(rules, SiteFacts::default()).unwrap();
        let matched = set.evaluate(&one.request());
        if !set.may_shape(&matched) {
            let query = other.target.split_once('?').map_or("", |(_, query)| query);
            let target = format!("{}?{query}", Target::new(&one.target).path);
            let other = Case { target, headers: other.headers, client: other.client, ..one };
            let matched = set.evaluate(&other.request());
            prop_assert!(!set.outcome(&matched).has_any(&[Kind::MaxTtl]), "{:?}", other);
        }
    }
}

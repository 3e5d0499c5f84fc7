//! Benchmarks of rules: matching and merging for one request.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use forebay_rules::compile::SiteFacts;
use forebay_rules::rule::{Condition, Tests, ValueTest};
use forebay_rules::setting::ByStatus;
use forebay_rules::{
    Kind, NamePattern, PathGlob, Pattern, Request, Rule, RuleSet, Setting, TextGlob,
};
use forebay_semantics::{PeerAddress, Scheme};
use http::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};

use crate::{Run, measured};

const TARGET: &str = "/products/0042/images/large.webp?lang=en&page=2";

/// Case: a site without rules.
pub(crate) fn none(times: usize) -> Result<Run> {
    matched(times, 0, 0)
}

/// Case: 4 rules.
pub(crate) fn four(times: usize) -> Result<Run> {
    matched(times, 4, 0)
}

/// Case: 100 rules, 40 of them with regular expressions.
pub(crate) fn hundred(times: usize) -> Result<Run> {
    matched(times, 100, 40)
}

/// Case: 250 rules, 40 of them with regular expressions.
pub(crate) fn many(times: usize) -> Result<Run> {
    matched(times, 250, 40)
}

/// Rules of the reference mix: 100, 40 of them with regular expressions.
pub(crate) fn reference() -> Result<RuleSet> {
    rules(100, 40)
}

/// Three of the rules match: a tree of paths, a method, and a cookie that is absent.
fn rules(count: usize, regexes: usize) -> Result<RuleSet> {
    let path = |glob: &str| PathGlob::parse(glob).map(|glob| Condition::Path(vec![glob]));
    let name = |name: &str| NamePattern::parse(name);
    let rule = |n: usize| {
        let conditions = match n {
            0 => vec![path("/products/**")?],
            1 => vec![Condition::Method(vec![Method::GET]), path("/products/*/images/**")?],
            2 => vec![Condition::Cookie(Tests::All(vec![(name("sid")?, ValueTest::Absent)]))],
            n if n < 3 + regexes => {
                let pattern = Pattern::new(&format!("^/r{n}/[0-9]+/(a|b)+\\.html$"))?;
                vec![Condition::PathRegex(vec![pattern])]
            }
            n if n.is_multiple_of(10) => {
                let test = ValueTest::Globs(vec![TextGlob::new("1*")]);
                vec![Condition::Header(Tests::All(vec![(name(&format!("x-{n}"))?, test)]))]
            }
            n if n.is_multiple_of(3) => vec![path(&format!("/section-{n}/*.html"))?],
            n => vec![path(&format!("/section-{n}/**"))?],
        };
        let setting = if n.is_multiple_of(2) {
            Setting::Ttl(ByStatus::Plain(Duration::from_secs(60 + n as u64)))
        } else {
            Setting::SoftTimeout(Duration::from_secs(1))
        };
        // A rule with an unkeyed condition does not shape stored responses.
        let is_keyed = matches!(conditions[0], Condition::Path(_) | Condition::PathRegex(_));
        let setting = if is_keyed { setting } else { Setting::SoftTimeout(Duration::from_secs(2)) };
        let settings = vec![setting, Setting::Bypass(false)];
        let (when, unless) = (vec![conditions], Vec::new());
        Ok(Rule { name: format!("r{n}").into(), when, unless, settings })
    };
    let rules = (0..count).map(rule).collect::<Result<Vec<_>, String>>();
    let rules = rules.map_err(anyhow::Error::msg)?;
    Ok(RuleSet::new(rules, SiteFacts::default())?)
}

fn matched(times: usize, count: usize, regexes: usize) -> Result<Run> {
    let set = rules(count, regexes)?;
    let headers = HeaderMap::from_iter([
        (USER_AGENT, HeaderValue::from_static("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101")),
        (ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8")),
        (ACCEPT_LANGUAGE, HeaderValue::from_static("en-GB,en;q=0.5")),
        (COOKIE, HeaderValue::from_static("currency=EUR; _ga=GA1.1.1")),
    ]);
    let wanted = count.min(3);
    Ok(Box::new(move || {
        let is_matched = |_: &usize| {
            let request = Request {
                method: &Method::GET,
                scheme: Scheme::Http,
                host: "shop.example",
                target: black_box(TARGET),
                headers: &headers,
                client: PeerAddress::Unix,
                operation: None,
            };
            let matched = set.evaluate(&request);
            let outcome = set.outcome(&matched);
            black_box((
                outcome.bypasses(),
                outcome.last(Kind::Ttl),
                outcome.last(Kind::SoftTimeout),
            ));
            outcome.rules().count() == wanted
        };
        measured(|| (0..times).filter(is_matched).count())
    }))
}

//! Reference mix of rules, for benchmarks: `hit_path` counts its instructions, forebay-bench measures
//! its time.

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

/// Target of the request.
pub(crate) const TARGET: &str = "/products/0042/images/large.webp?lang=en&page=2";

/// Request of a browser.
pub(crate) struct Asked(pub(crate) HeaderMap);

impl Asked {
    pub(crate) fn new() -> Self {
        let agent = "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101";
        Self(HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(agent)),
            (ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8")),
            (ACCEPT_LANGUAGE, HeaderValue::from_static("en-GB,en;q=0.5")),
            (COOKIE, HeaderValue::from_static("currency=EUR; _ga=GA1.1.1")),
        ]))
    }

    /// Matches the rules, merges three settings, and returns the number of rules that match.
    pub(crate) fn matches(&self, set: &RuleSet) -> usize {
        let matched = set.evaluate(&Request {
            method: &Method::GET,
            scheme: Scheme::Http,
            host: "shop.example",
            target: black_box(TARGET),
            headers: &self.0,
            client: PeerAddress::Unix,
            operation: None,
        });
        let outcome = set.outcome(&matched);
        black_box((outcome.bypasses(), outcome.last(Kind::Ttl), outcome.last(Kind::SoftTimeout)));
        outcome.rules().count()
    }
}

/// Compiles rules of which three match: a tree of paths, a method, and a cookie that is absent.
pub(crate) fn rules(count: usize, regexes: usize) -> Result<RuleSet> {
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

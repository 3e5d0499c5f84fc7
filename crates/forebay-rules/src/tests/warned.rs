//! Warnings, and their absence.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::sets::{names, path, rule, set, ttl};
use crate::check::{Topic, warnings};
use crate::edit::{Edits, Value};
use crate::pattern::Pattern;
use crate::rule::{Condition, Extension, Rule, Tests};
use crate::setting::{Respond, Setting, UnsafeWord};

fn topics(rules: Vec<Rule>) -> Vec<(usize, Topic)> {
    warnings(&set(rules)).into_iter().map(|warning| (warning.rule, warning.topic)).collect()
}

fn soft(name: &str, when: Vec<Condition>) -> Rule {
    rule(name, when, vec![Setting::SoftTimeout(Duration::from_secs(name.len() as u64))])
}

fn unless(mut rule: Rule, condition: Condition) -> Rule {
    rule.unless.push(condition);
    rule
}

fn ends(when: Vec<Condition>) -> Rule {
    let respond = Respond { status: StatusCode::GONE, body: Box::default(), content_type: None };
    rule("end", when, vec![Setting::Respond(respond)])
}

#[test]
fn planted_mistakes_are_found() {
    let get = || Condition::Method(vec![Method::GET]);
    let css = || Condition::Extension(vec![Extension::Exact("css".into())]);
    let regex = |text: &str| Condition::PathRegex(vec![Pattern::new(text).unwrap()]);
    let secret = Edits {
        set: vec![(HeaderName::from_static("x"), Value::Secret(HeaderValue::from_static("s")))],
        ..Edits::default()
    };
    let with_cookie = || Condition::Cookie(Tests::Any(names(&["a"])));
    let keep = || Setting::KeepCookies(Vec::new());
    type Row = (Vec<Rule>, Vec<(usize, Topic)>);
    let rows: Vec<Row> = vec![
        (
            vec![soft("a", vec![path("/a/b/**")]), soft("bb", vec![path("/a/**")])],
            vec![(0, Topic::Shadowed)],
        ),
        (
            vec![soft("a", vec![regex("^/a/[0-9]+$")]), soft("bb", vec![])],
            vec![(0, Topic::Shadowed)],
        ),
        (
            vec![soft("a", vec![path("/a/**"), get()]), soft("bb", vec![get()])],
            vec![(0, Topic::Shadowed)],
        ),
        (vec![soft("a", vec![path("/a/**")]), soft("bb", vec![path("/a/b/**")])], vec![]),
        (vec![soft("a", vec![css(), path("/a/*.html")])], vec![(0, Topic::Never)]),
        (vec![unless(soft("a", vec![path("/a/b")]), path("/a/**"))], vec![(0, Topic::Never)]),
        (vec![unless(soft("a", vec![path("/a/**")]), path("/a/b"))], vec![]),
        (
            vec![ends(vec![path("/a/**")]), soft("a", vec![path("/a/b")])],
            vec![(1, Topic::AfterEnd)],
        ),
        (vec![ends(vec![path("/a/**")]), soft("a", vec![path("/b")])], vec![]),
        (
            vec![soft("a", vec![path("/a/*")]), soft("bb", vec![path("/*/b")])],
            vec![(0, Topic::Overlap)],
        ),
        (vec![soft("a", vec![path("/a/*")]), soft("bb", vec![path("/b/*")])], vec![]),
        (vec![soft("a", vec![path("/a/*")]), soft("b", vec![path("/*/b")])], vec![]),
        (
            vec![rule("s", vec![path("/a"), with_cookie()], vec![ttl(1), keep()])],
            vec![(0, Topic::Splits)],
        ),
        (vec![rule("w", vec![], vec![ttl(1), keep()])], vec![(0, Topic::Wide)]),
        (vec![rule("c", vec![path("/a")], vec![ttl(1)])], vec![(0, Topic::Cookies)]),
        (vec![rule("o", vec![], vec![Setting::OriginRequest(secret)])], vec![(0, Topic::Opens)]),
        (
            vec![rule(
                "u",
                vec![path("/a")],
                vec![Setting::UnsafeIgnore(vec![UnsafeWord::Private])],
            )],
            vec![(0, Topic::Unsafe)],
        ),
    ];
    for (n, (rules, expected)) in rows.into_iter().enumerate() {
        assert_eq!(topics(rules), expected, "row {n}");
    }
    let search = |n: usize| soft(&"x".repeat(n + 1), vec![regex(&format!("a{n}b"))]);
    let found = topics((0..9).map(search).collect());
    assert!(found.contains(&(8, Topic::SearchRegex)), "{found:?}");
}

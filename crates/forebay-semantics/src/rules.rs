//! Rules of HTTP for a shared cache, with the implementation and the test of each. [`render`]
//! produces `docs/http.md` from them.

mod freshness;
mod messages;
mod ranges;
mod requests;
mod storing;
mod targeted;
mod validation;
mod variants;

/// One requirement of an RFC for a shared cache, with its implementation and its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the RFC and of the section.
    pub section: &'static str,
    /// Requirement, in the words of this project.
    pub sentence: &'static str,
    /// Behaviour of forebay.
    pub does: &'static str,
    /// Reason for the behaviour where the RFC leaves a choice; empty elsewhere.
    pub why: &'static str,
    /// Test that fails if the rule is not implemented: `file::name` in this crate, `core
    /// file::name` in `forebay-core`, or `scenario name`.
    pub test: &'static str,
}

/// Rules about one subject.
#[derive(Clone, Copy, Debug)]
pub struct Chapter {
    /// Heading of the chapter.
    pub title: &'static str,
    /// Rules of the chapter, one for each requirement.
    pub rules: &'static [Rule],
}

/// All chapters of `docs/http.md`, in the order of the page.
pub const RULES: &[Chapter] = &[
    Chapter { title: "Storage", rules: storing::RULES },
    Chapter { title: "Freshness", rules: freshness::RULES },
    Chapter { title: "Targeted fields", rules: targeted::RULES },
    Chapter { title: "Request directives", rules: requests::RULES },
    Chapter { title: "Variants", rules: variants::RULES },
    Chapter { title: "Validation", rules: validation::RULES },
    Chapter { title: "Ranges", rules: ranges::RULES },
    Chapter { title: "Invalidation", rules: messages::INVALIDATION },
    Chapter { title: "Messages", rules: messages::RULES },
];

const fn rule(
    section: &'static str,
    sentence: &'static str,
    does: &'static str,
    test: &'static str,
) -> Rule {
    Rule { section, sentence, does, why: "", test }
}

impl Rule {
    const fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }
}

/// Text of `docs/http.md` before the tables.
const OPENING: &str = "\
# HTTP caching, rule by rule

Requirements of the RFCs for a shared cache, the behaviour of forebay, and the reason where an RFC
leaves a choice. 9110 is HTTP Semantics, 9111 HTTP Caching, 9112 HTTP/1.1, 5861 stale responses,
8246 `immutable`, 9211 `Cache-Status`, 9213 targeted cache control, 9651 structured fields, 9875
cache groups, 10008 `QUERY`.

A malformed caching field never causes an error response; framing errors and Host give 400. If a
field can mean both \"store\" and \"do not store\", it means \"do not store\"; a malformed lifetime is
zero, so the response is stale.

The tables describe a site without `[[site.rule]]`. Settings of [rules](rules.md), such as `ttl`,
`strip_set_cookie` and `unsafe_ignore`, deviate from them where the operator orders it.

The last column names the test that fails if the rule is not implemented: a test of
`forebay-semantics`, a test of `forebay-core` where it says so, or a scenario of
`crates/forebay-http/tests/scenarios`. `cargo xtask mutate` checks this for rules of every chapter.

This page is rendered from the list of rules in `crates/forebay-semantics/src/rules.rs`.
";

/// Renders `docs/http.md`.
#[must_use]
pub fn render() -> String {
    let mut page = OPENING.to_owned();
    for chapter in RULES {
        page.push_str(&format!("\n## {}\n\n", chapter.title));
        page.push_str("| section | the rule | what forebay does | why | test |\n");
        page.push_str("|---|---|---|---|---|\n");
        chapter.rules.iter().for_each(|rule| page.push_str(&row(rule)));
    }
    page
}

fn row(rule: &Rule) -> String {
    let test = format!("`{}`", rule.test);
    let cells = [rule.section, rule.sentence, rule.does, rule.why, &test];
    // A vertical bar would end the table cell.
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests;

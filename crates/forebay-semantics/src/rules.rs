//! Every rule of HTTP that binds a shared cache, what is done about it, and what would notice if
//! it were not. `docs/http.md` is rendered from it.

mod freshness;
mod messages;
mod ranges;
mod requests;
mod storing;
mod targeted;
mod validation;
mod variants;

/// One sentence of a standard that binds a cache, in our own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it stands: the number of the RFC and of the section.
    pub section: &'static str,
    /// What it says.
    pub sentence: &'static str,
    /// What is done.
    pub does: &'static str,
    /// Why, where the standard leaves a choice; empty where it does not.
    pub why: &'static str,
    /// What fails when the rule is taken out: `file::name` of a test of this crate, `core
    /// file::name` of one of `forebay-core`, or `scenario name`.
    pub test: &'static str,
}

/// Rules about one thing.
#[derive(Clone, Copy, Debug)]
pub struct Chapter {
    /// What they are about.
    pub title: &'static str,
    /// One rule for each sentence.
    pub rules: &'static [Rule],
}

/// All of them, in the order in which a response meets them.
pub const RULES: &[Chapter] = &[
    Chapter { title: "What is stored", rules: storing::RULES },
    Chapter { title: "How long it is fresh", rules: freshness::RULES },
    Chapter { title: "Fields for caches like this one", rules: targeted::RULES },
    Chapter { title: "What a request may ask for", rules: requests::RULES },
    Chapter { title: "Variants", rules: variants::RULES },
    Chapter { title: "Validation", rules: validation::RULES },
    Chapter { title: "Parts of a body", rules: ranges::RULES },
    Chapter { title: "Invalidation", rules: messages::INVALIDATION },
    Chapter { title: "Messages on their way", rules: messages::RULES },
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

/// What stands above the tables.
const OPENING: &str = "\
# HTTP caching, rule by rule

Each sentence of the standards that binds a shared cache, what forebay does about it, and why
where the standard leaves a choice. 9110 is HTTP Semantics, 9111 HTTP Caching; 5861 is about stale
answers, 8246 about `immutable`, 9211 about `Cache-Status`, 9213 about fields for certain caches,
9651 about structured fields, 9875 about groups, 10008 about `QUERY`.

A malformed field is never an error to a client. Where it can be read as \"keep this\" or as \"do
not\", it means \"do not\"; a lifetime that is malformed is none, so the answer is stale.

The last column names what fails when the rule is taken out: a test of `forebay-semantics`, a test
of `forebay-core` where it says so, or a scenario of `crates/forebay-http/tests/scenarios`. For
rules of every chapter `cargo xtask mutate` shows it.

This page is rendered from the list of rules in `crates/forebay-semantics/src/rules.rs`.
";

/// The page `docs/http.md`.
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
    // A bar would end its cell.
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests;

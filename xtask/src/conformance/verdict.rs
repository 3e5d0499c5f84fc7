//! What became of each case, counted as the suite's own site does.
//!
//! A case passes when its own assertions held and everything it depends on passed, all the way
//! down. `Setup` and `Other` say that the question could not be put.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// How far a chain of prerequisites is followed; the suite's longest has four links.
const CHAIN_MAX: u32 = 32;

/// How much the suite makes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Required,
    Optimal,
    /// A question about behaviour that is free; never scored.
    Check,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Pass,
    /// Its own assertion did not hold: a violation where the case is required.
    Fail,
    /// The suite could not bring about what the case is about.
    Setup,
    /// Something it depends on did not pass.
    Dependency,
    /// The origin was asked twice for one request, or the suite gave up, or cannot ask this.
    Other,
}

/// A case and what became of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) file: String,
    pub(super) kind: Kind,
    pub(super) depends_on: Vec<String>,
    /// Without regard to what it depends on.
    pub(super) own: Verdict,
    pub(super) verdict: Verdict,
    /// What the suite said; empty when its assertions held.
    pub(super) says: String,
}

/// What the driver writes.
#[derive(Debug, Deserialize)]
struct Report {
    cases: Vec<Case>,
    results: BTreeMap<String, Said>,
}

#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    file: String,
    kind: Kind,
    depends_on: Vec<String>,
    browser_only: bool,
}

/// What the suite says of one case: true, or the name of what went wrong and a message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Held(bool),
    Broke(String, Option<String>),
}

/// Reads what the driver wrote: each case that applies to a shared cache, by its id.
pub(super) fn read(json: &str) -> Result<BTreeMap<String, Outcome>> {
    let report: Report = serde_json::from_str(json).context("read what the suite reported")?;
    let by_id: BTreeMap<&str, &Case> =
        report.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let of = |case: &Case| Outcome {
        file: case.file.clone(),
        kind: case.kind,
        depends_on: case.depends_on.clone(),
        own: own(report.results.get(&case.id)),
        verdict: verdict(&by_id, &report.results, case),
        says: says(report.results.get(&case.id)),
    };
    let applies = report.cases.iter().filter(|case| !case.browser_only);
    Ok(applies.map(|case| (case.id.clone(), of(case))).collect())
}

fn verdict(
    cases: &BTreeMap<&str, &Case>,
    results: &BTreeMap<String, Said>,
    case: &Case,
) -> Verdict {
    let leads_to_pass = |id: &String| passes(cases, results, (id, CHAIN_MAX));
    match case.depends_on.iter().all(leads_to_pass) {
        true => own(results.get(&case.id)),
        false => Verdict::Dependency,
    }
}

/// Whether a case and all it depends on passed; a chain that does not end does not pass.
fn passes(
    cases: &BTreeMap<&str, &Case>,
    results: &BTreeMap<String, Said>,
    (id, links_left): (&str, u32),
) -> bool {
    let Some(case) = cases.get(id).filter(|_| links_left > 0) else { return false };
    own(results.get(id)) == Verdict::Pass
        && case.depends_on.iter().all(|next| passes(cases, results, (next, links_left - 1)))
}

fn own(said: Option<&Said>) -> Verdict {
    match said {
        Some(Said::Held(true)) => Verdict::Pass,
        Some(Said::Broke(name, _)) if name == "Assertion" => Verdict::Fail,
        // A retry is nobody's setup: the cache asked the origin twice for one request.
        Some(Said::Broke(name, message))
            if name == "Setup" && message.as_deref() != Some("retry") =>
        {
            Verdict::Setup
        }
        _ => Verdict::Other,
    }
}

fn says(said: Option<&Said>) -> String {
    match said {
        Some(Said::Held(true)) => String::new(),
        Some(Said::Held(false)) => "no reason given".to_owned(),
        Some(Said::Broke(name, message)) => {
            format!("{name}: {}", message.as_deref().unwrap_or("no message"))
        }
        None => "not run".to_owned(),
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "required",
            Self::Optimal => "optimal",
            Self::Check => "check",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Setup => "setup",
            Self::Dependency => "dependency",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn case(id: &str, depends_on: &[&str]) -> Value {
        json!({ "id": id, "file": "f", "kind": "required", "depends_on": depends_on,
                "browser_only": false })
    }

    fn verdict_of(cases: &[Value], results: Value, id: &str) -> Verdict {
        let report = json!({ "cases": cases, "results": results }).to_string();
        read(&report).unwrap()[id].verdict
    }

    #[test]
    fn what_the_suite_says_of_a_case_alone() {
        for (said, expected) in [
            (json!(true), Verdict::Pass),
            (json!(["Assertion", "Response 2 comes from cache"]), Verdict::Fail),
            (json!(["Setup", "Response 1 status is 502, not 200"]), Verdict::Setup),
            (json!(["Setup", "retry"]), Verdict::Other),
            (json!(["FetchError", "socket hang up"]), Verdict::Other),
            (json!(["TypeError", null]), Verdict::Other),
            (json!(["Beyond", "the engine knows no x"]), Verdict::Other),
            (json!(false), Verdict::Other),
        ] {
            assert_eq!(verdict_of(&[case("a", &[])], json!({ "a": said }), "a"), expected);
        }
        assert_eq!(verdict_of(&[case("a", &[])], json!({}), "a"), Verdict::Other);
    }

    #[test]
    fn a_case_counts_only_with_its_whole_chain() {
        let chain = [case("a", &[]), case("b", &["a"]), case("c", &["b"])];
        let no = json!(["Assertion", "no"]);
        let all = json!({ "a": true, "b": true, "c": true });
        assert_eq!(verdict_of(&chain, all, "c"), Verdict::Pass);
        let below = json!({ "a": no, "b": true, "c": true });
        assert_eq!(verdict_of(&chain, below, "c"), Verdict::Dependency);
        let above = json!({ "a": true, "b": true, "c": no });
        assert_eq!(verdict_of(&chain, above.clone(), "c"), Verdict::Fail);
        assert_eq!(verdict_of(&chain, above, "b"), Verdict::Pass);
    }

    #[test]
    fn a_prerequisite_that_was_not_run_or_is_not_there_did_not_pass() {
        let cases = [case("a", &[]), case("b", &["a"]), case("c", &["nowhere"])];
        assert_eq!(verdict_of(&cases, json!({ "b": true }), "b"), Verdict::Dependency);
        assert_eq!(verdict_of(&cases, json!({ "c": true }), "c"), Verdict::Dependency);
    }

    #[test]
    fn a_circle_ends() {
        let circle = [case("a", &["b"]), case("b", &["a"])];
        let all = json!({ "a": true, "b": true });
        assert_eq!(verdict_of(&circle, all, "a"), Verdict::Dependency);
    }

    #[test]
    fn cases_for_browsers_are_left_out() {
        let mut browser = case("a", &[]);
        browser["browser_only"] = json!(true);
        let report = json!({ "cases": [browser, case("b", &[])], "results": {} }).to_string();
        assert_eq!(read(&report).unwrap().into_keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_report_of_another_form_is_an_error() {
        assert!(read("{}").is_err());
        assert!(read("Listening on").is_err());
    }
}

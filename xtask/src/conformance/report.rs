//! Results of the cases, counted as the suite's own site counts them, and their record.
//!
//! A case passes when its own assertions held and every case that it depends on passed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::Edition;
use crate::workspace;

/// Longest chain of dependencies that is followed; the suite's longest has four links.
const CHAIN_MAX: u32 = 32;

/// Weight of a case in the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Required,
    Optimal,
    /// A question about behaviour that HTTP leaves free; never scored.
    Check,
}

/// Result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Pass,
    /// An assertion did not hold: a violation where the case is required.
    Fail,
    /// The suite could not set the case up.
    Setup,
    /// A case that it depends on did not pass.
    Dependency,
    /// The suite gave up, or the cache sent one request twice to the origin.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// A case in the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) file: String,
    pub(super) kind: Kind,
    pub(super) result: Verdict,
}

/// A case after a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) row: Row,
    pub(super) depends_on: Vec<String>,
    /// Result without regard to its dependencies.
    pub(super) own: Verdict,
    /// Message of the suite; empty when its assertions held.
    pub(super) says: String,
}

/// Results of a run by case id.
pub(super) type Outcomes = BTreeMap<String, Outcome>;

/// Output of the driver, xtask/conformance/drive.mjs.
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

/// Result of one case as the suite reports it: true, or the name of an error and its message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Held(bool),
    Broke(String, Option<String>),
}

/// Evaluates the output of the driver; cases for browsers are left out.
pub(super) fn read(json: &str) -> Result<Outcomes> {
    let report: Report = serde_json::from_str(json).context("cannot read the suite's report")?;
    let mut outcomes = Outcomes::new();
    for case in report.cases.iter().filter(|case| !case.browser_only) {
        let said = report.results.get(&case.id);
        let has_passed = case.depends_on.iter().all(|id| report.passes(id, CHAIN_MAX));
        let result = if has_passed { own(said) } else { Verdict::Dependency };
        let outcome = Outcome {
            row: Row { file: case.file.clone(), kind: case.kind, result },
            depends_on: case.depends_on.clone(),
            own: own(said),
            says: match said {
                Some(Said::Held(true)) => String::new(),
                Some(said) => format!("{said:?}"),
                None => "not run".to_owned(),
            },
        };
        outcomes.insert(case.id.clone(), outcome);
    }
    Ok(outcomes)
}

impl Report {
    /// Returns true if a case and its dependencies passed; a cycle of dependencies does not pass.
    fn passes(&self, id: &str, links_left: u32) -> bool {
        let case = self.cases.iter().find(|case| case.id == id && links_left > 0);
        case.is_some_and(|case| {
            own(self.results.get(id)) == Verdict::Pass
                && case.depends_on.iter().all(|next| self.passes(next, links_left - 1))
        })
    }
}

fn own(said: Option<&Said>) -> Verdict {
    match said {
        Some(Said::Held(true)) => Verdict::Pass,
        Some(Said::Broke(name, _)) if name == "Assertion" => Verdict::Fail,
        // `retry`: the cache sent one request twice to the origin.
        Some(Said::Broke(name, why)) if name == "Setup" && why.as_deref() != Some("retry") => {
            Verdict::Setup
        }
        _ => Verdict::Other,
    }
}

/// Results of every case, as docs/conformance.json keeps them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) suite: String,
    pub(super) cases: BTreeMap<String, Row>,
}

impl Record {
    pub(super) fn of(suite: &str, outcomes: &Outcomes) -> Self {
        let cases = outcomes.iter().map(|(id, outcome)| (id.clone(), outcome.row.clone()));
        Self { suite: suite.to_owned(), cases: cases.collect() }
    }

    pub(super) fn read(edition: &Edition) -> Result<Self> {
        let text = std::fs::read_to_string(workspace::root().join(edition.record));
        serde_json::from_str(&text.context("cannot read the recorded results")?)
            .context("cannot read the recorded results")
    }

    /// Writes one line per case, so that a change of one case is a change of one line.
    pub(super) fn write(&self, edition: &Edition) -> Result<()> {
        let mut text = format!("{{\n  \"suite\": {:?},\n  \"cases\": {{", self.suite);
        for (nth, (id, row)) in self.cases.iter().enumerate() {
            let (comma, id) = (if nth == 0 { "" } else { "," }, serde_json::to_string(id)?);
            write!(text, "{comma}\n    {id}: {}", serde_json::to_string(row)?)?;
        }
        text.push_str("\n  }\n}\n");
        std::fs::write(workspace::root().join(edition.record), text)
            .context("cannot write the recorded results")
    }

    /// Number of cases of a kind, in one file of the suite or in all, with this result; and of all.
    pub(super) fn count(&self, file: Option<&str>, kind: Kind, result: Verdict) -> (usize, usize) {
        let is_meant = |row: &&Row| row.kind == kind && file.is_none_or(|file| row.file == file);
        let rows: Vec<&Row> = self.cases.values().filter(is_meant).collect();
        (rows.iter().filter(|row| row.result == result).count(), rows.len())
    }

    /// `required X/157, optimal Y/86, violations N (checks answered yes: Z/104)`
    pub(super) fn headline(&self) -> String {
        let share = |kind| {
            let (passed, all) = self.count(None, kind, Verdict::Pass);
            format!("{passed}/{all}")
        };
        let (violations, _) = self.count(None, Kind::Required, Verdict::Fail);
        let [required, optimal, checks] = [Kind::Required, Kind::Optimal, Kind::Check].map(share);
        format!(
            "required {required}, optimal {optimal}, violations {violations} \
             (checks answered yes: {checks})"
        )
    }

    /// Scored cases that pass here and not in `other`.
    pub(super) fn better_than<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let passes = |row: &Row| row.kind != Kind::Check && row.result == Verdict::Pass;
        let is_better = |(id, row): &(&String, &Row)| {
            passes(row) && other.cases.get(*id).is_none_or(|row| row.result != Verdict::Pass)
        };
        self.cases.iter().filter(is_better).map(|(id, _)| id.as_str()).collect()
    }

    /// Cases with another result in `other`.
    pub(super) fn differing<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let differs = |(id, row): &(&String, &Row)| other.cases.get(*id) != Some(row);
        self.cases.iter().filter(differs).map(|(id, _)| id.as_str()).collect()
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
        read(&report).unwrap()[id].row.result
    }

    #[test]
    fn each_answer_of_the_suite_has_a_verdict() {
        for (said, expected) in [
            (json!(true), Verdict::Pass),
            (json!(["Assertion", "Response 2 comes from cache"]), Verdict::Fail),
            (json!(["Setup", "Response 1 status is 502, not 200"]), Verdict::Setup),
            (json!(["Setup", "retry"]), Verdict::Other),
            (json!(["TypeError", null]), Verdict::Other),
            (json!(false), Verdict::Other),
        ] {
            assert_eq!(verdict_of(&[case("a", &[])], json!({ "a": said }), "a"), expected);
        }
        assert_eq!(verdict_of(&[case("a", &[])], json!({}), "a"), Verdict::Other);
    }

    #[test]
    fn a_case_passes_only_with_its_whole_chain() {
        let chain = [case("a", &[]), case("b", &["a"]), case("c", &["b"])];
        let (no, yes) = (json!(["Assertion", "no"]), json!({ "a": true, "b": true, "c": true }));
        assert_eq!(verdict_of(&chain, yes, "c"), Verdict::Pass);
        let below = json!({ "a": no, "b": true, "c": true });
        assert_eq!(verdict_of(&chain, below, "c"), Verdict::Dependency);
        let circle = [case("a", &["b"]), case("b", &["a"])];
        assert_eq!(verdict_of(&circle, json!({ "a": true, "b": true }), "a"), Verdict::Dependency);
    }
}

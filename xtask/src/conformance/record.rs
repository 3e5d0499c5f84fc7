//! What came out of a run, as it is kept and compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::verdict::{Kind, Outcome, Verdict};

/// Every case of a suite, by its id.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) suite: String,
    pub(super) cases: BTreeMap<String, Row>,
}

/// What is kept of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) file: String,
    pub(super) kind: Kind,
    pub(super) result: Verdict,
}

/// How many cases of which kind ended how.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<(Kind, Verdict), usize>);

impl Record {
    pub(super) fn of(suite: &str, outcomes: &BTreeMap<String, Outcome>) -> Self {
        let row = |outcome: &Outcome| Row {
            file: outcome.file.clone(),
            kind: outcome.kind,
            result: outcome.verdict,
        };
        let cases = outcomes.iter().map(|(id, outcome)| (id.clone(), row(outcome))).collect();
        Self { suite: suite.to_owned(), cases }
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("read {name}"))?;
        serde_json::from_str(&text).with_context(|| format!("understand {name}"))
    }

    /// One line for each case, so that a change of one shows as a change of one line.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let quoted = |text: &str| serde_json::to_string(text).context("write a name as JSON");
        let mut text = format!("{{\n  \"suite\": {},\n  \"cases\": {{", quoted(&self.suite)?);
        for (nth, (id, row)) in self.cases.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            let row = serde_json::to_string(row).context("write a case as JSON")?;
            write!(text, "{comma}\n    {}: {row}", quoted(id)?)?;
        }
        text.push_str("\n  }\n}\n");
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally_of(|_| true)
    }

    pub(super) fn tally_of(&self, wanted: impl Fn(&Row) -> bool) -> Tally {
        let mut tally = Tally::default();
        for row in self.cases.values().filter(|row| wanted(row)) {
            *tally.0.entry((row.kind, row.result)).or_default() += 1;
        }
        tally
    }

    /// The scored cases that pass here and do not there.
    pub(super) fn better_than<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let passes_there =
            |id: &String| other.cases.get(id).is_some_and(|row| row.result == Verdict::Pass);
        self.cases
            .iter()
            .filter(|(_, row)| row.kind != Kind::Check && row.result == Verdict::Pass)
            .filter(|(id, _)| !passes_there(id))
            .map(|(id, _)| id.as_str())
            .collect()
    }

    /// The cases of either kind of which the two do not say the same.
    pub(super) fn differing<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let ids = self.cases.keys().chain(other.cases.keys());
        let mut differing: Vec<&str> = ids
            .filter(|id| self.cases.get(*id) != other.cases.get(*id))
            .map(String::as_str)
            .collect();
        differing.sort_unstable();
        differing.dedup();
        differing
    }
}

impl Tally {
    pub(super) fn count(&self, kind: Kind, result: Verdict) -> usize {
        self.0.get(&(kind, result)).copied().unwrap_or(0)
    }

    pub(super) fn all(&self, kind: Kind) -> usize {
        self.0.iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| count).sum()
    }

    /// `required X/157, optimal Y/86, violations N`, and how many questions were answered yes.
    pub(super) fn headline(&self) -> String {
        let share = |kind| format!("{}/{}", self.count(kind, Verdict::Pass), self.all(kind));
        format!(
            "required {}, optimal {}, violations {} (checks answered yes: {})",
            share(Kind::Required),
            share(Kind::Optimal),
            self.count(Kind::Required, Verdict::Fail),
            share(Kind::Check)
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scratch::Scratch;

    pub(in crate::conformance) fn record(rows: &[(&str, Kind, Verdict)]) -> Record {
        let row = |&(id, kind, result): &(&str, Kind, Verdict)| {
            (id.to_owned(), Row { file: "f".to_owned(), kind, result })
        };
        Record { suite: "a suite".to_owned(), cases: rows.iter().map(row).collect() }
    }

    #[test]
    fn what_is_written_is_read_again_a_line_for_each_case() {
        let kept = record(&[
            ("a=\"1\"", Kind::Required, Verdict::Pass),
            ("b", Kind::Check, Verdict::Dependency),
        ]);
        let scratch = Scratch::new("record").unwrap();
        let file = scratch.path().join("kept.json");
        kept.write(&file).unwrap();
        assert_eq!(Record::read(&file).unwrap(), kept);
        let lines = std::fs::read_to_string(&file).unwrap();
        assert_eq!(lines.lines().filter(|line| line.contains("\"kind\"")).count(), 2);
    }

    #[test]
    fn only_what_passed_can_become_worse() {
        let before = record(&[
            ("a", Kind::Required, Verdict::Pass),
            ("b", Kind::Required, Verdict::Dependency),
            ("c", Kind::Check, Verdict::Pass),
            ("gone", Kind::Optimal, Verdict::Pass),
        ]);
        let after = record(&[
            ("a", Kind::Required, Verdict::Setup),
            ("b", Kind::Required, Verdict::Fail),
            ("c", Kind::Check, Verdict::Fail),
            ("new", Kind::Optimal, Verdict::Pass),
        ]);
        assert_eq!(before.better_than(&after), ["a", "gone"]);
        assert_eq!(after.better_than(&before), ["new"]);
        assert_eq!(before.differing(&after), ["a", "b", "c", "gone", "new"]);
        assert_eq!(before.differing(&before), [""; 0]);
    }

    #[test]
    fn a_headline_counts_violations_of_required_cases_alone() {
        let rows = record(&[
            ("a", Kind::Required, Verdict::Pass),
            ("b", Kind::Required, Verdict::Fail),
            ("c", Kind::Required, Verdict::Setup),
            ("d", Kind::Optimal, Verdict::Fail),
            ("e", Kind::Check, Verdict::Pass),
        ]);
        assert_eq!(
            rows.tally().headline(),
            "required 1/3, optimal 0/1, violations 1 (checks answered yes: 1/1)"
        );
    }
}

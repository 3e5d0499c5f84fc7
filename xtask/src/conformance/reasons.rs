//! Why a case does not pass: one sentence for the cases that share it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::record::{Record, Row};
use super::verdict::{Kind, Verdict};

/// The sentence for each case that has one.
#[derive(Debug, Default)]
pub(super) struct Reasons(BTreeMap<String, String>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    reason: Vec<Reason>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    why: String,
    cases: Vec<String>,
}

impl Reasons {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("read {name}"))?;
        Self::parse(&text).with_context(|| format!("understand {name}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).context("it is not as it should be")?;
        let mut reasons = BTreeMap::new();
        for Reason { why, cases } in file.reason {
            let is_a_line = !why.trim().is_empty() && !why.contains(['\n', '|']);
            ensure!(is_a_line, "a reason is one line without a bar: {why:?}");
            for id in cases {
                let earlier = reasons.insert(id.clone(), why.clone());
                ensure!(earlier.is_none(), "`{id}` has two reasons");
            }
        }
        Ok(Self(reasons))
    }

    pub(super) fn of(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// Scored cases that do not pass and have no reason; reasons that no longer hold.
    pub(super) fn complaints(&self, record: &Record) -> Vec<String> {
        let unexplained = record.cases.iter().filter(|(id, row)| {
            row.kind != Kind::Check && row.result != Verdict::Pass && self.of(id).is_none()
        });
        let idle = self.0.keys().filter(|id| record.cases.get(*id).is_none_or(passed));
        unexplained
            .map(|(id, row)| format!("{id} ({}: {}) has no reason", row.kind, row.result))
            .chain(idle.map(|id| format!("{id} has a reason and needs none: remove it")))
            .collect()
    }
}

fn passed(row: &Row) -> bool {
    row.result == Verdict::Pass
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    fn reasons(text: &str) -> Result<Reasons> {
        Reasons::parse(text)
    }

    #[test]
    fn cases_share_a_reason() {
        let read = reasons("[[reason]]\nwhy = \"on purpose\"\ncases = [\"a\", \"b\"]").unwrap();
        assert_eq!(read.of("a"), Some("on purpose"));
        assert_eq!(read.of("b"), Some("on purpose"));
        assert_eq!(read.of("c"), None);
    }

    #[test]
    fn a_reason_is_one_line_and_a_case_has_one() {
        for text in [
            "[[reason]]\nwhy = \"\"\ncases = [\"a\"]",
            "[[reason]]\nwhy = \"two\\nlines\"\ncases = [\"a\"]",
            "[[reason]]\nwhy = \"x\"\ncases = [\"a\", \"a\"]",
            "[[reason]]\nwhy = \"x\"\ncase = [\"a\"]",
        ] {
            assert!(reasons(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_scored_case_needs_a_reason_and_a_passed_one_must_have_none() {
        let kept = record(&[
            ("explained", Kind::Required, Verdict::Dependency),
            ("forgotten", Kind::Optimal, Verdict::Fail),
            ("passed", Kind::Required, Verdict::Pass),
            ("question", Kind::Check, Verdict::Fail),
        ]);
        let told = "[[reason]]\nwhy = \"x\"\ncases = [\"explained\", \"passed\", \"unheard of\"]";
        assert_eq!(
            reasons(told).unwrap().complaints(&kept),
            [
                "forgotten (optimal: fail) has no reason",
                "passed has a reason and needs none: remove it",
                "unheard of has a reason and needs none: remove it",
            ]
        );
    }
}

//! docs/conformance.md, and the reasons for the cases that do not pass.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::REASONS;
use super::report::{Kind, Record, Verdict};
use crate::workspace;

/// Reason by case id.
#[derive(Debug, Default)]
pub(super) struct Reasons(BTreeMap<String, String>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    reason: Vec<Reason>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    why: String,
    cases: Vec<String>,
}

impl Reasons {
    pub(super) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(workspace::root().join(REASONS)).context(REASONS)?;
        let list: List = toml::from_str(&text).context(REASONS)?;
        let mut reasons = BTreeMap::new();
        for Reason { why, cases } in list.reason {
            let is_a_line = !why.trim().is_empty() && !why.contains(['\n', '|']);
            ensure!(is_a_line, "{REASONS}: expected one line without a bar, found {why:?}");
            for id in cases {
                let earlier = reasons.insert(id.clone(), why.clone());
                ensure!(earlier.is_none(), "{REASONS}: `{id}` has two reasons");
            }
        }
        Ok(Self(reasons))
    }

    /// Scored cases that do not pass and have no reason; reasons of cases that pass.
    pub(super) fn complaints(&self, record: &Record) -> Vec<String> {
        let passes = |id: &str| record.cases.get(id).is_none_or(|row| row.result == Verdict::Pass);
        let scored = record.cases.iter().filter(|(_, row)| row.kind != Kind::Check);
        let unexplained = scored.filter(|(id, _)| !passes(id) && !self.0.contains_key(*id));
        let idle = self.0.keys().filter(|id| passes(id));
        unexplained
            .map(|(id, row)| {
                format!("{id} ({}: {}) has no reason in {REASONS}", row.kind, row.result)
            })
            .chain(idle.map(|id| format!("{id} needs no reason: remove it from {REASONS}")))
            .collect()
    }
}

/// Text of the page.
pub(super) fn render(record: &Record, reasons: &Reasons) -> String {
    let mut page = format!(
        "# Conformance\n\n\
         <!-- Written by `cargo xtask conformance --bless`; edit xtask/conformance/reasons.toml. \
         -->\n\n\
         **{headline}**\n\n\
         The cases are those of the [public suite for HTTP caches](https://cache-tests.fyi/), \
         {suite}, run\n\
         against `forebay serve` in its default configuration. Counted as the suite's site \
         counts: a case\npasses when its own assertion held and everything that it depends on \
         passed.\n\n\
         - `fail`: an assertion did not hold; a violation where the case is required\n\
         - `setup`: the case could not be set up through this cache\n\
         - `dependency`: something it depends on did not pass\n\
         - `other`: the suite gave up, or saw the origin asked twice for one request\n\n\
         What the suite calls a check is a question about behaviour that is free; checks are \
         told, and not\nscored. `cargo xtask conformance` runs the suite, and fails when a case \
         that passed does not any\nmore.\n\n\
         | file of the suite | required | optimal | checks answered yes |\n|---|---|---|---|\n",
        headline = record.headline(),
        suite = record.suite,
    );
    let files: BTreeSet<&str> = record.cases.values().map(|row| row.file.as_str()).collect();
    for file in files {
        page.push_str(&counts(record, file, Some(file)));
    }
    page.push_str(&counts(record, "**all**", None));
    page.push('\n');
    for (kind, title) in [(Kind::Required, "Required"), (Kind::Optimal, "Optimal")] {
        page.push_str(&format!("## {title}, not passed\n\n"));
        let rows = rows(record, kind, |id, result| {
            let why = reasons.0.get(id).map_or("no reason is given", String::as_str);
            format!("| `{id}` | {result} | {why} |\n")
        });
        match rows.is_empty() {
            true => page.push_str("None.\n\n"),
            false => page.push_str(&format!("| case | result | why |\n|---|---|---|\n{rows}\n")),
        }
    }
    page.push_str("## Checks not answered yes\n\n");
    page.push_str(&rows(record, Kind::Check, |id, result| {
        let why = reasons.0.get(id).map(|why| format!(": {why}")).unwrap_or_default();
        let answer = if result == Verdict::Fail { "no".to_owned() } else { result.to_string() };
        format!("- `{id}` ({answer}){why}\n")
    }));
    page
}

fn counts(record: &Record, name: &str, file: Option<&str>) -> String {
    let share = |kind| match record.count(file, kind, Verdict::Pass) {
        (_, 0) => String::new(),
        (passed, all) => format!("{passed}/{all}"),
    };
    let [required, optimal, check] = [Kind::Required, Kind::Optimal, Kind::Check].map(share);
    format!("| {name} | {required} | {optimal} | {check} |\n")
}

/// A line for each case of this kind that did not pass.
fn rows(record: &Record, kind: Kind, line: impl Fn(&str, Verdict) -> String) -> String {
    let cases = record.cases.iter().filter(|(_, row)| row.kind == kind);
    let failed = cases.filter(|(_, row)| row.result != Verdict::Pass);
    failed.map(|(id, row)| line(id, row.result)).collect()
}

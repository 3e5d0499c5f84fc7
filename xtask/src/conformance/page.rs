//! docs/conformance.md, and the reasons for the cases that do not pass.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::Edition;
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
    pub(super) fn read(edition: &Edition) -> Result<Self> {
        let file = edition.reasons;
        let text = std::fs::read_to_string(workspace::root().join(file)).context(file)?;
        let list: List = toml::from_str(&text).context(file)?;
        let mut reasons = BTreeMap::new();
        for Reason { why, cases } in list.reason {
            let is_a_line = !why.trim().is_empty() && !why.contains(['\n', '|']);
            ensure!(is_a_line, "{file}: expected one line without a bar, found {why:?}");
            for id in cases {
                let earlier = reasons.insert(id.clone(), why.clone());
                ensure!(earlier.is_none(), "{file}: `{id}` has two reasons");
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
            .map(|(id, row)| format!("{id} ({}: {}) has no reason", row.kind, row.result))
            .chain(idle.map(|id| format!("{id} passes: remove its reason")))
            .collect()
    }
}

/// Text of the page: the head of the suite, then the outdated edition of the registry.
pub(super) fn render(
    head: &Record,
    reasons: &Reasons,
    registry: &Record,
    outdated: &Reasons,
) -> String {
    let mut page = format!(
        "# Conformance\n\n\
         <!-- Written by `cargo xtask conformance --bless`; edit xtask/conformance/reasons.toml. \
         -->\n\n\
         **{headline}**\n\n\
         The [public suite for HTTP caches](https://cache-tests.fyi/), {suite}, runs against\n\
         `forebay serve` in its default configuration. A case passes if its own assertion holds \
         and every\ncase that it depends on passes, as on the suite's site.\n\n\
         - `fail`: an assertion does not hold; a violation if the case is required\n\
         - `setup`: the case cannot be set up through this cache\n\
         - `dependency`: a case that it depends on does not pass\n\
         - `other`: the suite gave up, or the origin received two requests for one\n\n\
         A check asks about optional behaviour and is not scored. With a checkout of the suite,\n\
         `cargo xtask conformance --suite DIR` runs these cases.\n\n\
         | file of the suite | required | optimal | checks answered yes |\n|---|---|---|---|\n",
        headline = head.headline(),
        suite = head.suite,
    );
    let files: BTreeSet<&str> = head.cases.values().map(|row| row.file.as_str()).collect();
    for file in files {
        page.push_str(&counts(head, file, Some(file)));
    }
    page.push_str(&counts(head, "**all**", None));
    page.push('\n');
    for (kind, title) in [(Kind::Required, "Required"), (Kind::Optimal, "Optimal")] {
        page.push_str(&format!("## {title}, not passed\n\n{}\n", reasoned(head, kind, reasons)));
    }
    page.push_str("## Checks not answered yes\n\n");
    page.push_str(&rows(head, Kind::Check, |id, result| {
        let answer = if result == Verdict::Fail { "no".to_owned() } else { result.to_string() };
        format!("- `{id}` ({answer})\n")
    }));
    page.push_str(&format!(
        "\n## The outdated edition in the package registry\n\n\
         **{headline}**\n\n\
         The package registry has {suite}, of 2021. It is installed and run by \
         `cargo xtask conformance`,\nwhich gates every change. Several of its required cases \
         contradict RFC 9110 and RFC 9111 of 2022; the\nhead of the suite corrects or drops \
         them.\n\n{required}\n{optimal}",
        headline = registry.headline(),
        suite = registry.suite,
        required = reasoned(registry, Kind::Required, outdated),
        optimal = reasoned(registry, Kind::Optimal, outdated),
    ));
    page
}

/// Table of the cases of this kind that do not pass, with their reasons.
fn reasoned(record: &Record, kind: Kind, reasons: &Reasons) -> String {
    let rows = rows(record, kind, |id, result| {
        let why = reasons.0.get(id).map_or("no reason is given", String::as_str);
        format!("| `{id}` | {result} | {why} |\n")
    });
    if rows.is_empty() {
        return "None.\n".to_owned();
    }
    format!("| {} case | result | why |\n|---|---|---|\n{rows}", kind.to_string().to_lowercase())
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

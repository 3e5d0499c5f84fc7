//! `docs/conformance.md`: what came out, for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::reasons::Reasons;
use super::record::{Record, Tally};
use super::verdict::{Kind, Verdict};

/// Where the suite is described; its cases are looked up by their ids there.
const SITE: &str = "https://cache-tests.fyi/";

/// The whole page. The same record and reasons give the same text.
pub(super) fn render(record: &Record, reasons: &Reasons) -> String {
    let mut page = opening(record);
    page.push_str(&by_file(record));
    for (kind, title) in
        [(Kind::Required, "Required, not passed"), (Kind::Optimal, "Optimal, not passed")]
    {
        page.push_str(&not_passed((record, reasons), kind, title));
    }
    page.push_str(&questions(record, reasons));
    page
}

fn opening(record: &Record) -> String {
    let headline = record.tally().headline();
    format!(
        "# Conformance\n\n\
         <!-- Written by `cargo xtask conformance --bless`; edit xtask/conformance/reasons.toml. \
         -->\n\n\
         **{headline}**\n\n\
         The cases are those of the [public suite for HTTP caches]({SITE}), {suite}, run\n\
         against `forebay serve` in its default configuration. Counted as the suite's site \
         counts: a case\npasses when its own assertion held and everything that it depends on \
         passed.\n\n\
         - `fail`: an assertion did not hold; a violation where the case is required\n\
         - `setup`: the case could not be set up through this cache\n\
         - `dependency`: something it depends on did not pass\n\
         - `other`: the suite gave up, or saw the origin asked twice for one request\n\n\
         What the suite calls a check is a question about behaviour that is free; checks are \
         told, and not\nscored. `cargo xtask conformance` runs the suite, and fails when a case \
         that passed does not any\nmore.\n\n",
        suite = record.suite,
    )
}

fn by_file(record: &Record) -> String {
    let files: BTreeSet<&str> = record.cases.values().map(|row| row.file.as_str()).collect();
    let mut table = "| file of the suite | required | optimal | checks answered yes |\n\
                     |---|---|---|---|\n"
        .to_owned();
    for file in files {
        table.push_str(&line(file, &record.tally_of(|row| row.file == file)));
    }
    table.push_str(&line("**all**", &record.tally()));
    table.push('\n');
    table
}

fn line(name: &str, tally: &Tally) -> String {
    let share = |kind| match tally.all(kind) {
        0 => String::new(),
        all => format!("{}/{all}", tally.count(kind, Verdict::Pass)),
    };
    let [required, optimal, check] = [Kind::Required, Kind::Optimal, Kind::Check].map(share);
    format!("| {name} | {required} | {optimal} | {check} |\n")
}

fn not_passed((record, reasons): (&Record, &Reasons), kind: Kind, title: &str) -> String {
    let mut rows = String::new();
    for (id, row) in &record.cases {
        if row.kind == kind && row.result != Verdict::Pass {
            let why = reasons.of(id).unwrap_or("no reason is given");
            rows.push_str(&format!("| `{id}` | {} | {why} |\n", row.result));
        }
    }
    match rows.is_empty() {
        true => format!("## {title}\n\nNone.\n\n"),
        false => format!("## {title}\n\n| case | result | why |\n|---|---|---|\n{rows}\n"),
    }
}

/// Checks whose answer is not yes; a reason is told where there is one.
fn questions(record: &Record, reasons: &Reasons) -> String {
    let mut text = "## Checks not answered yes\n\n".to_owned();
    for (id, row) in &record.cases {
        if row.kind == Kind::Check && row.result != Verdict::Pass {
            let why = reasons.of(id).map(|why| format!(": {why}")).unwrap_or_default();
            let answer = match row.result {
                Verdict::Fail => "no",
                Verdict::Setup => "setup",
                Verdict::Dependency => "dependency",
                Verdict::Pass | Verdict::Other => "other",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- `{id}` ({answer}){why}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn a_page_has_the_headline_a_row_for_each_file_and_a_line_for_each_case_not_passed() {
        let kept = record(&[
            ("good", Kind::Required, Verdict::Pass),
            ("bad", Kind::Required, Verdict::Fail),
            ("slow", Kind::Optimal, Verdict::Dependency),
            ("asked", Kind::Check, Verdict::Fail),
        ]);
        let page = render(&kept, &Reasons::default());
        assert!(page.contains("**required 1/2, optimal 0/1, violations 1 (checks"), "{page}");
        assert!(page.contains("| f | 1/2 | 0/1 | 0/1 |"), "{page}");
        assert!(page.contains("| `bad` | fail | no reason is given |"), "{page}");
        assert!(page.contains("| `slow` | dependency |"), "{page}");
        assert!(page.contains("- `asked` (no)\n"), "{page}");
        assert!(!page.contains("`good`"), "{page}");
    }

    #[test]
    fn nothing_to_explain_is_said() {
        let page = render(&record(&[("good", Kind::Required, Verdict::Pass)]), &Reasons::default());
        assert!(page.contains("## Required, not passed\n\nNone.\n"), "{page}");
    }
}

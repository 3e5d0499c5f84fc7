//! docs/benchmarks.md and the table of README.md, made from docs/benchmarks.json.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::workspace;

/// Record that a run writes into the target folder.
const MEASURED: &str = "benchmarks.json";
/// The published record and its page.
const RECORD: &str = "docs/benchmarks.json";
const PAGE: &str = "docs/benchmarks.md";
const README: &str = "README.md";

/// Heading of the README above the table, and the beginning of the line below it.
const ABOVE: &str = "## Benchmarks\n\n";
const BELOW: &str = "\nAll tables, ";

const HEAD: &str = "# Benchmarks

<!-- Written by `cargo xtask bench --bless`. -->

Each table compares published figures, rivals and forebay; rivals and forebay were measured in one run
on one machine. Ratios within a table are comparable with other machines; absolute times are not.
Published figures come from the named source and from its machine. Benchmarks in which a rival is ahead
in some row come first, and those rows say by how much; a difference below 2 % counts as none. A bound
that needs a core for each process is not judged on a machine with fewer.

`cargo xtask bench --list` names every benchmark, `--quick` shortens them, and `--report DIR` writes a
record and an HTML page with plots. The settings of each rival are in
[benchmarks.json](benchmarks.json).
";

/// Rows of the README: benchmark, beginning of the row, and the text that names it.
const SHOWN: &[(&str, &str, &str)] = &[
    ("stampede", "cold: origin requests", "origin requests for 500 clients of a cold page"),
    ("stampede", "100 callers over 4 processes: loads", "loads for 100 callers in 4 processes"),
    ("early-refresh", "hits", "hits with 860 requests/s, fresh for 5 s"),
];

/// Publishes the measured record, and writes page and README.
pub(super) fn bless() -> Result<()> {
    let mut record = record()?;
    let measured = workspace::target_dir()?.join(MEASURED);
    if measured.exists() {
        let measured: Value =
            serde_json::from_slice(&std::fs::read(measured)?).context(MEASURED)?;
        // Those that were not measured here keep their published figures.
        for (name, benchmark) in benchmarks(&measured) {
            record["benchmarks"][name] = benchmark.clone();
        }
        std::fs::write(workspace::root().join(RECORD), format!("{record:#}\n")).context(RECORD)?;
    }
    std::fs::write(workspace::root().join(PAGE), page(&record)).context(PAGE)?;
    let readme = read(README)?;
    std::fs::write(workspace::root().join(README), with_table(&readme, &record)?)
        .context(README)?;
    println!("written: {RECORD}, {PAGE}, {README}");
    Ok(())
}

/// Fails if the pages are not made from the record, or the record is older than the release.
pub(super) fn check() -> Result<()> {
    let record = record()?;
    let run = "run `cargo xtask bench --bless`";
    ensure!(read(PAGE)? == page(&record), "{PAGE} is not made from {RECORD}: {run}");
    let readme = read(README)?;
    let renewed = with_table(&readme, &record)?;
    ensure!(readme == renewed, "the table of {README} is not made from {RECORD}: {run}");
    let manifest = read("Cargo.toml")?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = version.and_then(|line| line.split('"').next()).context("no version")?;
    let outdated: Vec<&str> = benchmarks(&record)
        .filter(|(_, one)| one["version"] != version)
        .map(|(name, _)| name.as_str())
        .collect();
    ensure!(
        outdated.is_empty(),
        "{RECORD} has figures of another release than {version}: {}; run `cargo xtask bench {} \
         --bless`",
        outdated.join(", "),
        outdated.join(" ")
    );
    println!("{PAGE} shows {} benchmarks of {version}", benchmarks(&record).count());
    Ok(())
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(workspace::root().join(file)).context(file.to_owned())
}

fn record() -> Result<Value> {
    serde_json::from_str(&read(RECORD)?).context(RECORD)
}

fn benchmarks(record: &Value) -> impl Iterator<Item = (&String, &Value)> {
    record["benchmarks"].as_object().into_iter().flatten()
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    of[name].as_array().into_iter().flatten()
}

/// Text of a cell of a table in Markdown.
fn cell(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('|', "\\|").replace('\n', " ")
}

fn page(record: &Value) -> String {
    let mut page = HEAD.to_owned();
    let mut order: Vec<_> = benchmarks(record).collect();
    order.sort_by_key(|(_, one)| !list(one, "tables").any(|table| table["lost"] == true));
    for (name, benchmark) in order {
        let _ = write!(page, "\n## {name}: {}\n", cell(&benchmark["shows"]));
        let _ = write!(
            page,
            "\n```sh no-run it takes minutes, and installs rivals\n$ cargo xtask bench {name}\n```\n\n\
             Measured on {} at {} in {} s by `{}`: {}.\n",
            cell(&benchmark["date"]),
            cell(&benchmark["commit"]),
            benchmark["seconds"],
            cell(&benchmark["command"]),
            cell(&benchmark["machine"]),
        );
        list(benchmark, "tables").for_each(|table| write_table(&mut page, table));
    }
    page
}

fn write_table(page: &mut String, table: &Value) {
    let _ = write!(page, "\n{}:\n\n|", cell(&table["title"]));
    let columns: Vec<String> = list(table, "columns").map(cell).collect();
    let is_bounded = list(table, "rows").any(|row| row["bound"] != "");
    let more: &[&str] = if is_bounded { &["bound", "holds"] } else { &[] };
    for column in columns.iter().map(String::as_str).chain(more.iter().copied()) {
        let _ = write!(page, " {column} |");
    }
    let _ = write!(page, "\n|{}\n", "---|".repeat(columns.len() + more.len()));
    for row in list(table, "rows") {
        page.push('|');
        for text in list(row, "cells") {
            let _ = write!(page, " {} |", cell(text));
        }
        for name in more.iter() {
            let _ = write!(page, " {} |", cell(&row[*name]));
        }
        page.push('\n');
    }
    if let Some(note) = table["note"].as_str().filter(|note| !note.is_empty()) {
        let _ = write!(page, "\n{note}\n");
    }
    write_rivals(page, table);
}

fn write_rivals(page: &mut String, table: &Value) {
    let rivals: Vec<&Value> = list(table, "rivals").collect();
    if !rivals.is_empty() {
        page.push('\n');
    }
    for rival in rivals {
        let name = cell(&rival["name"]);
        let _ = match rival["missing"].as_str() {
            Some(reason) => writeln!(page, "- {name}: not measured: {reason}"),
            None => writeln!(
                page,
                "- {name} ({}): {}. See {}.",
                cell(&rival["version"]),
                cell(&rival["why"]),
                cell(&rival["documentation"])
            ),
        };
    }
}

/// The README with its table renewed.
fn with_table(readme: &str, record: &Value) -> Result<String> {
    let (before, rest) = readme.split_once(ABOVE).context("README.md has no benchmarks")?;
    let (_, after) = rest.split_once(BELOW).context("README.md has no line below the table")?;
    let mut table = "| | forebay | compared with |\n|---|---|---|\n".to_owned();
    for (benchmark, begins, label) in SHOWN {
        let tables = list(&record["benchmarks"][benchmark], "tables");
        let mut rows = tables.flat_map(|table| list(table, "rows"));
        let found = rows.find(|row| row["cells"][0].as_str().is_some_and(|it| it == *begins));
        let Some(row) = found else { bail!("{RECORD}: {benchmark} has no row `{begins}`") };
        let _ = writeln!(
            table,
            "| {label} | {} | {} |",
            cell(&row["cells"][3]),
            cell(&row["cells"][2])
        );
    }
    Ok(format!("{before}{ABOVE}{table}{BELOW}{after}"))
}

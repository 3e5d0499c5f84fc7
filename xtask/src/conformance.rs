//! `cargo xtask conformance`: the public suite for HTTP caches against the binary.
//!
//! The suite has an origin and a client; `forebay serve` runs between them in its default
//! configuration. The results are compared with docs/conformance.json. A case that passed and no
//! longer does is red, and so is a case that does not pass without a reason in
//! xtask/conformance/reasons.toml.
//!
//! [`run`] installs and runs the suite, [`report`] evaluates and keeps the results, [`page`] writes
//! docs/conformance.md.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{needs, workspace};

mod page;
mod report;
mod run;

use page::Reasons;
use report::{Record, Verdict};

const RECORD: &str = "docs/conformance.json";
const PAGE: &str = "docs/conformance.md";
const REASONS: &str = "xtask/conformance/reasons.toml";

/// Arguments of `cargo xtask conformance`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Runs the suite twice and compares the results.
    #[arg(long, conflicts_with = "only")]
    twice: bool,
    /// Writes the results to docs/conformance.json and docs/conformance.md.
    #[arg(long, conflicts_with_all = ["only", "suite", "store_set_cookie", "redis"])]
    bless: bool,
    /// Runs one case and prints what was sent and received.
    #[arg(long, value_name = "ID")]
    only: Option<String>,
    /// Folder with other cases: a checkout of the suite, or any folder with tests/index.mjs.
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// Binary to test instead of a new build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Sets the option `store_set_cookie`.
    #[arg(long)]
    store_set_cookie: bool,
    /// Stores everything in Redis and next to nothing in memory.
    #[arg(long)]
    redis: bool,
}

/// Runs the suite, prints the results, and fails when a case has become worse.
pub(crate) fn run(options: &Options) -> Result<()> {
    needs::ensure_for("conformance")?;
    let suite = run::Suite::install(options.suite.as_deref())?;
    let binary = match &options.binary {
        Some(path) => path.canonicalize().with_context(|| format!("find {}", path.display()))?,
        None => workspace::build_forebay("dev")?,
    };
    let outcomes = run::drive(options, &suite, &binary)?;
    if let Some(id) = &options.only {
        let outcome = outcomes.get(id).with_context(|| format!("no case `{id}`"))?;
        println!("== {id} ==\n{} ({}): {}", outcome.own, outcome.row.kind, outcome.says);
        println!("depends on: {}", outcome.depends_on.join(", "));
        return Ok(());
    }
    let record = Record::of(&suite.name, &outcomes);
    println!("{}", record.headline());
    if options.twice {
        let second = Record::of(&suite.name, &run::drive(options, &suite, &binary)?);
        ensure!(record == second, "a second run differs: {:?}", record.differing(&second));
        println!("a second run has the same results");
    }
    if options.suite.is_some() || options.store_set_cookie {
        // The record holds the pinned suite in the default configuration.
        for (id, one) in outcomes.iter().filter(|(_, one)| one.row.result != Verdict::Pass) {
            println!("{} {} {} {id}: {}", one.row.kind, one.row.result, one.row.file, one.says);
        }
        return Ok(());
    }
    let root = workspace::root();
    let reasons = Reasons::read()?;
    let mut wrong = reasons.complaints(&record);
    if options.bless {
        record.write()?;
        std::fs::write(root.join(PAGE), page::render(&record, &reasons))
            .context("write the page")?;
        println!("written: {RECORD}, {PAGE}");
    } else {
        let kept = Record::read()?;
        for id in record.better_than(&kept) {
            println!("better than {RECORD}: {id}");
        }
        for id in kept.better_than(&record) {
            let says = outcomes.get(id).map_or("missing", |outcome| outcome.says.as_str());
            wrong.push(format!("{id} passed before, now: {says}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{}; no case is worse than in {RECORD}", record.headline());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_record_and_the_reasons() {
        let (record, reasons) = (Record::read().unwrap(), Reasons::read().unwrap());
        assert_eq!(reasons.complaints(&record), [""; 0]);
        let page = std::fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        assert_eq!(page, page::render(&record, &reasons), "run `cargo xtask conformance --bless`");
    }
}

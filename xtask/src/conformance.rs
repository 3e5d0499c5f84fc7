//! `cargo xtask conformance`: the public suite for HTTP caches against the binary.
//!
//! The suite has an origin and a client; `forebay serve` runs between them in its default
//! configuration. The results are compared with the record of the edition. A case that passed and no
//! longer does is red, and so is a case that does not pass without a reason.
//!
//! There are two editions: the one of the package registry, which anyone can install and which gates
//! a change, and the head of the suite's repository, a checkout of which `--suite` names.
//!
//! [`mod@run`] installs and runs the suite, [`report`] evaluates and keeps the results, [`mod@page`] writes
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

const PAGE: &str = "docs/conformance.md";

/// Files of one edition of the suite, relative to the root of the repository.
#[derive(Debug)]
struct Edition {
    record: &'static str,
    reasons: &'static str,
}

/// The head of the suite's repository.
const HEAD: Edition =
    Edition { record: "docs/conformance.json", reasons: "xtask/conformance/reasons.toml" };

/// The package in the registry, of 2021.
const REGISTRY: Edition = Edition {
    record: "docs/conformance-registry.json",
    reasons: "xtask/conformance/reasons-registry.toml",
};

/// Arguments of `cargo xtask conformance`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Runs the suite twice and compares the results.
    #[arg(long, conflicts_with = "only")]
    twice: bool,
    /// Writes the results to the record of the edition and to docs/conformance.md.
    #[arg(long, conflicts_with_all = ["only", "store_set_cookie", "redis", "rules"])]
    bless: bool,
    /// Runs one case and prints what was sent and received.
    #[arg(long, value_name = "ID")]
    only: Option<String>,
    /// Checkout of the head of the suite, to run instead of the edition in the registry.
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// Date of the checkout, for the record.
    #[arg(long, value_name = "DATE", requires = "suite", requires = "bless")]
    date: Option<String>,
    /// Binary to test instead of a new build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Sets the option `store_set_cookie`.
    #[arg(long)]
    store_set_cookie: bool,
    /// Adds 100 rules that match no request, and one that adds a field to every response: the results
    /// must not change.
    #[arg(long)]
    rules: bool,
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
        None => workspace::build_forebay()?,
    };
    let outcomes = run::drive(options, &suite, &binary)?;
    if let Some(id) = &options.only {
        let outcome = outcomes
            .get(id)
            .with_context(|| format!("the conformance suite has no case `{id}`"))?;
        println!("== {id} ==\n{} ({}): {}", outcome.own, outcome.row.kind, outcome.says);
        println!("depends on: {}", outcome.depends_on.join(", "));
        return Ok(());
    }
    let edition = if options.suite.is_some() { &HEAD } else { &REGISTRY };
    let name = match (&options.suite, &options.date) {
        (None, _) => suite.name.clone(),
        (Some(_), Some(date)) => format!("its head of {date}"),
        (Some(_), None) => "its head".to_owned(),
    };
    let record = Record::of(&name, &outcomes);
    println!("{}", record.headline());
    if options.twice {
        let second = Record::of(&name, &run::drive(options, &suite, &binary)?);
        ensure!(
            record == second,
            "a second run of the conformance suite has other results: {:?}",
            record.differing(&second)
        );
        println!("a second run has the same results");
    }
    if options.store_set_cookie {
        // The records hold results of the default configuration.
        for (id, one) in outcomes.iter().filter(|(_, one)| one.row.result != Verdict::Pass) {
            println!("{} {} {} {id}: {}", one.row.kind, one.row.result, one.row.file, one.says);
        }
        return Ok(());
    }
    let root = workspace::root();
    let reasons = Reasons::read(edition)?;
    let mut wrong = reasons.complaints(&record);
    if options.bless {
        record.write(edition)?;
        std::fs::write(root.join(PAGE), page()?).context("cannot write the page")?;
        println!("written: {}, {PAGE}", edition.record);
    } else {
        let kept = Record::read(edition)?;
        for id in record.better_than(&kept) {
            println!("better than {}: {id}", edition.record);
        }
        if options.rules {
            let changed = kept.differing(&record);
            wrong.extend(changed.iter().map(|id| format!("{id} has another result with rules")));
        }
        for id in kept.better_than(&record) {
            let says = outcomes.get(id).map_or("missing", |outcome| outcome.says.as_str());
            wrong.push(format!("{id} passed before, now: {says}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{}; no case is worse than in {}", record.headline(), edition.record);
    Ok(())
}

/// Text of docs/conformance.md, from the records of both editions.
fn page() -> Result<String> {
    let [head, registry] = [&HEAD, &REGISTRY]
        .map(|edition| Ok::<_, anyhow::Error>((Record::read(edition)?, Reasons::read(edition)?)));
    let ((head, reasons), (registry, outdated)) = (head?, registry?);
    Ok(page::render(&head, &reasons, &registry, &outdated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_record_and_the_reasons() {
        for edition in [&HEAD, &REGISTRY] {
            let (record, reasons) =
                (Record::read(edition).unwrap(), Reasons::read(edition).unwrap());
            assert_eq!(reasons.complaints(&record), [""; 0], "{}", edition.reasons);
        }
        let written = std::fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        assert_eq!(written, page().unwrap(), "run `cargo xtask conformance --bless`");
    }
}

//! `cargo xtask conformance`: the public suite for HTTP caches, against the real binary.
//!
//! The suite has an origin and a client; `forebay serve` stands between them in its default
//! configuration, or with `--redis` with all it stores in a `redis-server` and next to nothing in
//! memory. What came out is compared with `docs/conformance.json`: a case that passed and
//! no longer does fails the command, and so does one that does not pass and has no reason in
//! `xtask/conformance/reasons.toml`.
//!
//! [`suite`] installs the suite, `run` runs it, [`verdict`] counts as the suite's own site does,
//! [`record`] is what is kept, [`reasons`] is why a case does not pass, [`page`] is both for
//! people.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::{Usage, needs, workspace};

mod page;
mod reasons;
mod record;
mod run;
mod suite;
mod verdict;

use reasons::Reasons;
use record::Record;
use run::Ground;
use suite::Suite;
use verdict::{Outcome, Verdict};

/// What is kept for programs, and what for people; both are written by `--bless` alone.
const RECORD: &str = "docs/conformance.json";
const PAGE: &str = "docs/conformance.md";
const REASONS: &str = "xtask/conformance/reasons.toml";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    twice: bool,
    bless: bool,
    only: Option<String>,
    suite: Option<PathBuf>,
    binary: Option<PathBuf>,
    store_set_cookie: bool,
    redis: bool,
}

/// Runs the suite, prints what came out, and fails when it is worse than it was.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let plan = Plan::parse(arguments)?;
    needs::ensure_for("conformance")?;
    let suite = Suite::install(plan.suite.as_deref())?;
    let store_set_cookie = plan.store_set_cookie;
    let forebay = binary(&plan)?;
    let ground = Ground { suite: &suite, forebay, store_set_cookie, redis: plan.redis };
    if let Some(id) = &plan.only {
        return one(&ground, id);
    }
    let outcomes = run::all(&ground)?;
    let record = Record::of(&suite.name, &outcomes);
    println!("{}", record.tally().headline());
    if plan.twice {
        alike(&record, &Record::of(&suite.name, &run::all(&ground)?))?;
        println!("a second run came out the same");
    }
    match plan {
        // What is kept is the pinned suite in the default configuration.
        Plan { suite: Some(_), .. } | Plan { store_set_cookie: true, .. } => {
            print!("{}", listing(&outcomes));
            Ok(())
        }
        Plan { bless: true, .. } => bless(&record),
        _ => hold(&record, &outcomes),
    }
}

/// The binary that was named, or else the one that the tests run, built anew.
fn binary(plan: &Plan) -> Result<PathBuf> {
    match &plan.binary {
        Some(path) => path.canonicalize().with_context(|| format!("find {}", path.display())),
        None => run::build(),
    }
}

/// One case, with all that was sent and received.
fn one(ground: &Ground<'_>, id: &str) -> Result<()> {
    let outcomes = run::only(ground, id)?;
    let outcome = outcomes.get(id).with_context(|| format!("no case `{id}` for a shared cache"))?;
    // Nothing else was run, so what the case depends on does not count here.
    println!("== {id} ==\n{} ({}): {}", outcome.own, outcome.kind, outcome.says);
    if !outcome.depends_on.is_empty() {
        println!("counts only if these pass: {}", outcome.depends_on.join(", "));
    }
    Ok(())
}

fn alike(first: &Record, second: &Record) -> Result<()> {
    let other: Vec<&str> = first.differing(second);
    ensure!(other.is_empty(), "a second run came out otherwise in: {}", other.join(", "));
    Ok(())
}

/// Compares with what is kept. Improvements are told, and kept by `--bless`.
fn hold(record: &Record, outcomes: &BTreeMap<String, Outcome>) -> Result<()> {
    let root = workspace::root();
    let kept = Record::read(&root.join(RECORD))?;
    let reasons = Reasons::read(&root.join(REASONS))?;
    for id in record.better_than(&kept) {
        println!("better than {RECORD}: {id}");
    }
    let mut wrong = Vec::new();
    for id in kept.better_than(record) {
        let says = outcomes.get(id).map_or("it is gone", |outcome| outcome.says.as_str());
        wrong.push(format!("{id} passed, and does not any more: {says}"));
    }
    wrong.extend(reasons.complaints(record));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("no case is worse than in {RECORD}");
    Ok(())
}

/// Writes what came out over what is kept.
fn bless(record: &Record) -> Result<()> {
    let root = workspace::root();
    let reasons = Reasons::read(&root.join(REASONS))?;
    record.write(&root.join(RECORD))?;
    let text = page::render(record, &reasons);
    std::fs::write(root.join(PAGE), text).with_context(|| format!("write {PAGE}"))?;
    println!("written: {RECORD}, {PAGE}");
    let wrong = reasons.complaints(record);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Every case that did not pass, with what the suite said.
fn listing(outcomes: &BTreeMap<String, Outcome>) -> String {
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.verdict != Verdict::Pass);
    let line = |(id, outcome): (&String, &Outcome)| {
        format!("{} {} {} {id}: {}\n", outcome.kind, outcome.verdict, outcome.file, outcome.says)
    };
    failed.map(line).collect()
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self::default();
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            match flag.as_str() {
                "--twice" => plan.twice = true,
                "--bless" => plan.bless = true,
                "--redis" => plan.redis = true,
                "--only" => plan.only = Some(value(flag, rest.next())?),
                "--suite" => plan.suite = Some(value(flag, rest.next())?.into()),
                "--store-set-cookie" => plan.store_set_cookie = true,
                "--binary" => plan.binary = Some(value(flag, rest.next())?.into()),
                _ => return Err(Usage(format!("`conformance` knows no `{flag}`")).into()),
            }
        }
        let is_part = plan.only.is_some();
        let is_other = plan.suite.is_some() || plan.store_set_cookie || plan.redis;
        let wrong = match plan {
            Self { bless: true, .. } if is_part || is_other => {
                Some("`--bless` keeps a whole run of the pinned suite without an option, no other")
            }
            Self { twice: true, .. } if is_part => Some("`--only` runs one case, and once"),
            _ => None,
        };
        wrong.map_or(Ok(plan), |says| Err(Usage(says.to_owned()).into()))
    }
}

fn value(flag: &str, value: Option<&String>) -> Result<String> {
    let missing = || Usage(format!("`{flag}` needs a value")).into();
    value.filter(|value| !value.is_empty()).cloned().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan> {
        Plan::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read() {
        assert_eq!(plan("").unwrap(), Plan::default());
        let told = plan("--twice --bless --binary a/b").unwrap();
        let expected = Plan { twice: true, bless: true, ..Plan::default() };
        assert_eq!(told, Plan { binary: Some("a/b".into()), ..expected });
        assert_eq!(plan("--only stale-503").unwrap().only.as_deref(), Some("stale-503"));
        assert!(plan("--twice --store-set-cookie").unwrap().store_set_cookie);
        assert_eq!(plan("--suite dir").unwrap().suite, Some("dir".into()));
    }

    #[test]
    fn wrong_flags_are_wrong_usage() {
        for line in [
            "--fast",
            "--only",
            "--suite",
            "--bless --only a",
            "--bless --suite a",
            "--bless --store-set-cookie",
            "--bless --redis",
            "--twice --only a",
        ] {
            assert!(plan(line).unwrap_err().is::<Usage>(), "{line}");
        }
    }

    /// What is kept, the reasons and the page are one: none is edited without the others.
    #[test]
    fn the_page_is_what_the_record_and_the_reasons_say() {
        let root = workspace::root();
        let record = Record::read(&root.join(RECORD)).unwrap();
        let reasons = Reasons::read(&root.join(REASONS)).unwrap();
        assert_eq!(reasons.complaints(&record), [""; 0]);
        let page = std::fs::read_to_string(root.join(PAGE)).unwrap();
        assert_eq!(page, page::render(&record, &reasons), "run `cargo xtask conformance --bless`");
    }
}

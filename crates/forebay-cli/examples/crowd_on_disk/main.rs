//! What the disk tier is worth through the binary: a large body that a crowd reads while it is
//! written, and the hits that are left after a kill.
//!
//! `cargo xtask bench-disk` builds the binary and runs this; alone it is
//! `cargo run --release -p forebay-cli --example crowd_on_disk -- --binary PATH`, with
//! `--json FILE` to write the figures too, `--quick` for less of everything that takes time, and
//! `--only film` or `--only kill` for one of the two.
//!
//! The cache is another process; origin and clients are in this one. The exit code is 1 if a bound
//! is missed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod film;
mod origin;
#[path = "../memory/process.rs"]
mod process;
mod report;
mod warmth;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use report::Report;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    let mut report = Report::default();
    let is_wanted = |name| plan.only.as_ref().is_none_or(|only| only == name);
    if is_wanted("film") {
        eprintln!("measuring: a large body and its followers");
        film::measure(&plan, &mut report).await?;
    }
    if is_wanted("kill") {
        eprintln!("measuring: hits before and after a kill");
        warmth::measure(&plan, &mut report).await?;
    }
    print!("{report}");
    if let Some(file) = &plan.json {
        std::fs::write(file, report.json()?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What to measure, and where to write it.
struct Plan {
    binary: PathBuf,
    json: Option<PathBuf>,
    is_quick: bool,
    only: Option<String>,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut binary, mut json, mut is_quick, mut only) = (None, None, false, None);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--binary" => binary = arguments.next().map(PathBuf::from),
                "--json" => json = arguments.next().map(PathBuf::from),
                "--quick" => is_quick = true,
                "--only" => only = arguments.next(),
                _ => bail!("there is no flag {flag}; known are --binary, --json, --quick, --only"),
            }
        }
        let binary = binary.context("--binary PATH names the forebay to measure")?;
        Ok(Self { binary, json, is_quick, only })
    }
}

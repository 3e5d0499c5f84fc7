//! What early refresh spares: the same requests at the same moments against two caches, of which
//! one refreshes early and the other never does.
//!
//! `cargo xtask bench-early` builds and runs this; alone it is
//! `cargo run --release -p forebay-cli --example early`, with `--json FILE` to write the figures
//! too, and `--quick` for a third of the time.
//!
//! The requests come in an open loop, with gaps as between strangers; their keys are drawn from a
//! normal distribution, so that a few are asked for a hundred times a second and some hardly ever.
//! The engine, its clock and its waits are real; only the origin's work is a sleep. The very first
//! load of a key can be spared by nobody: what is counted begins one lifetime after the start.
//! The exit code is 1 if a bound is missed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod experiment;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use forebay_engine::SystemClock;

use report::Report;

/// For how long requests are counted.
const MEASURED: Duration = Duration::from_secs(60);

/// The same for a first look.
const MEASURED_QUICK: Duration = Duration::from_secs(20);

/// What the requests are drawn from, unless told otherwise. What the caches throw is chance.
const SEED: u64 = 1;

fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    eprintln!("measuring: {} s", (experiment::WARM_UP + plan.measured).as_secs());
    let clock = Arc::new(SystemClock);
    let experiment = experiment::run((plan.seed, plan.measured), clock);
    let report = Report::new(&plan, runtime.block_on(experiment)?);
    print!("{report}");
    if let Some(file) = &plan.json {
        std::fs::write(file, report.json()?)
            .with_context(|| format!("write {}", file.display()))?;
        println!("written to {}", file.display());
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What to measure, and where to write it.
struct Plan {
    seed: u64,
    measured: Duration,
    json: Option<PathBuf>,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut plan = Self { seed: SEED, measured: MEASURED, json: None };
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--json" => plan.json = arguments.next().map(PathBuf::from),
                "--quick" => plan.measured = MEASURED_QUICK,
                "--seed" => {
                    let seed = arguments.next().context("--seed NUMBER")?;
                    plan.seed = seed.parse().context("--seed NUMBER")?;
                }
                _ => bail!("there is no flag {flag}; known are --json, --quick and --seed"),
            }
        }
        Ok(plan)
    }
}

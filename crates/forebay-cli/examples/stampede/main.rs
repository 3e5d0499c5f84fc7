//! What a crowd of 500 costs: the fetches it causes, the bodies it gets, and how long it waits. And
//! what it gets when the origin is broken.
//!
//! `cargo xtask bench-stampede` builds the binary and runs this; alone it is
//! `cargo run --release -p forebay-cli --example stampede -- --binary PATH`, with `--json FILE` to
//! write the figures too, and `--quick` for one round of each case instead of three.
//!
//! Every case meets a cache of its own with its default configuration. All connections are opened
//! first, then all requests are sent at once; the origin takes half a second for each answer.
//! Clients, origin and cache share the machine, so what the clients and the origin cost is in the
//! times. The exit code is 1 if a bound is missed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod broken;
mod broken_report;
mod crowd;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use broken::Broken;
use broken_report::BrokenReport;
use crowd::Case;
use report::{Report, Round};

/// How often each case is played; the worst round is the one that counts.
const ROUNDS: usize = 3;

fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let report = runtime.block_on(measure(&plan))?;
    let broken = runtime.block_on(measure_broken(&plan))?;
    print!("{report}{broken}");
    if let Some(file) = &plan.json {
        let mut figures = report.json();
        figures["broken"] = broken.json();
        std::fs::write(file, format!("{figures:#}"))
            .with_context(|| format!("write {}", file.display()))?;
        println!("written to {}", file.display());
    }
    Ok(if report.holds() && broken.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new(plan.rounds);
    for case in Case::ALL {
        eprintln!("measuring: {}", report::name(case));
        for _ in 0..plan.rounds {
            let outcome = case.play(&plan.binary).await;
            let outcome = outcome.with_context(|| report::name(case))?;
            report.add(case, Round::of(case, &outcome));
        }
    }
    Ok(report)
}

async fn measure_broken(plan: &Plan) -> anyhow::Result<BrokenReport> {
    let mut report = BrokenReport::new();
    for broken in Broken::all() {
        let name = broken_report::name(broken);
        eprintln!("measuring: {name}");
        for _ in 0..plan.rounds {
            let got = broken.play(&plan.binary).await;
            report.add(broken, got.with_context(|| name.clone())?);
        }
    }
    Ok(report)
}

/// What to measure, and where to write it.
struct Plan {
    binary: PathBuf,
    json: Option<PathBuf>,
    rounds: usize,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut binary, mut json, mut rounds) = (None, None, ROUNDS);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--binary" => binary = arguments.next().map(PathBuf::from),
                "--json" => json = arguments.next().map(PathBuf::from),
                "--quick" => rounds = 1,
                _ => bail!("there is no flag {flag}; known are --binary, --json and --quick"),
            }
        }
        let binary = binary.context("--binary PATH names the forebay to measure")?;
        Ok(Self { binary, json, rounds })
    }
}

/// Both ends of a thousand connections are here.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it stays too low, a connection fails and says why.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

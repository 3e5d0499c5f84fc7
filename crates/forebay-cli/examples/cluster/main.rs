//! What several caches of one Redis cost an origin, and how long their clients wait: the promises
//! of `docs/cluster.md`, each with its bound and what was measured.
//!
//! `cargo xtask bench-cluster` builds the binary and runs this; alone it is
//! `cargo run --release -p forebay-cli --example cluster -- --binary PATH`, with `--json FILE` to
//! write the figures too, and `--quick` for a tenth of the rounds.
//!
//! Caches, Redis, origin and all clients share one machine, and with it its cores: a crowd of two
//! thousand is served by as few as run it. Counts do not depend on that; times do, and their bounds
//! are those of a machine with a core for each process: with fewer, a miss is shown and not
//! counted. The exit code is 1 if any other bound is missed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod fleet;
mod play;
mod report;
mod tap;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use report::Report;

/// How often a crowd comes.
const ROUNDS: usize = 100;

/// The same where somebody wants to see it at once.
const ROUNDS_QUICK: usize = 10;

fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let report = runtime.block_on(measure(&plan))?;
    print!("{report}");
    if let Some(file) = &plan.json {
        std::fs::write(file, format!("{:#}", report.json()))
            .with_context(|| format!("write {}", file.display()))?;
        println!("written to {}", file.display());
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for crowd in [play::LARGE, play::SMALL] {
        eprintln!("measuring: {} × {}", crowd.caches, crowd.callers);
        play::crowds(crowd, plan, &mut report).await?;
    }
    eprintln!("measuring: who waits for another instance");
    play::followers(plan, &mut report).await?;
    eprintln!("measuring: what is sent to Redis");
    play::commands(plan, &mut report).await?;
    eprintln!("measuring: the holder of a lease is killed");
    play::killed(plan, &mut report).await?;
    eprintln!("measuring: written here, read there");
    play::written(plan, &mut report).await?;
    eprintln!("measuring: without Redis");
    play::unreachable(plan, &mut report).await?;
    Ok(report)
}

/// What to measure, and where to write it.
pub(crate) struct Plan {
    pub(crate) binary: PathBuf,
    json: Option<PathBuf>,
    pub(crate) rounds: usize,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut binary, mut json, mut rounds) = (None, None, ROUNDS);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--binary" => binary = arguments.next().map(PathBuf::from),
                "--json" => json = arguments.next().map(PathBuf::from),
                "--quick" => rounds = ROUNDS_QUICK,
                _ => bail!("there is no flag {flag}; known are --binary, --json and --quick"),
            }
        }
        let binary = binary.context("--binary PATH names the forebay to measure")?;
        Ok(Self { binary, json, rounds })
    }
}

/// Both ends of two thousand connections are here.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it stays too low, a connection fails and says why.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

//! What a bounded memory costs: how much of the machine's the process takes, at its worst.
//!
//! `cargo xtask bench-memory` builds the binary and runs this; alone it is
//! `cargo run --release -p forebay-cli --example memory -- --binary PATH`, with `--json FILE` to
//! write the figures too, and `--quick` for less of everything that takes time.
//!
//! One cache of 64 MiB goes through four loads, one after another: a churn of objects from 1 byte
//! to 4 MiB, clients that ask for large bodies and do not read them, such that were stored and such
//! that are loaded for them, and idle connections. Clients and
//! origin are other processes; the resident size is what the kernel says. The exit code is 1 if a
//! bound is missed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod client;
mod load;
mod process;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use forebay_testkit::launch::{Launch, Launched};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use load::Origin;
use process::Watch;
use report::{Phase, Report};

/// The configured bound, in MiB.
const MEMORY_MIB: u64 = 64;

/// How long the churn takes; the quick one fills the memory a few hundred times still.
const CHURN: Duration = Duration::from_secs(180);
const CHURN_QUICK: Duration = Duration::from_secs(15);

/// How many clients stand still.
const STILL: usize = 60;
const STILL_QUICK: usize = 20;

fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(measure(&plan))?;
    print!("{report}");
    if let Some(file) = &plan.json {
        std::fs::write(file, report.json()?)
            .with_context(|| format!("write {}", file.display()))?;
        println!("written to {}", file.display());
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let (_origin, cache) = start(plan).await?;
    let at = Origin { cache: cache.address() };
    let mut report = Report::new(MEMORY_MIB << 20);
    eprintln!("measuring: churn");
    let watch = Watch::start(cache.pid());
    let answers = load::churn(at, plan.churn).await?;
    report.add(Phase::Churn, (watch.stop().await?, answers, 0));

    eprintln!("measuring: clients that do not read what was stored");
    let watch = Watch::start(cache.pid());
    let answers = load::hold_hits(at, plan.still).await?;
    report.add(Phase::Hits, (watch.stop().await?, answers, 0));

    eprintln!("measuring: clients that do not read what is loaded");
    let watch = Watch::start(cache.pid());
    let answers = load::hold_misses(at, STILL).await?;
    report.add(Phase::Misses, (watch.stop().await?, answers, 0));

    eprintln!("measuring: idle connections");
    let watch = Watch::start(cache.pid());
    let (answers, idle) = load::idle(at).await?;
    report.add(Phase::Idle, (watch.stop().await?, answers, idle));
    Ok(report)
}

/// The sample origin, and a cache in front of it.
async fn start(plan: &Plan) -> anyhow::Result<(Launched, Launched)> {
    let origin = Launch::binary(&plan.binary).args(["origin", "--listen", "127.0.0.1:0"]);
    let origin = origin.start().await.context("start the origin")?;
    let (url, memory) = (format!("http://{}", origin.address()), format!("{MEMORY_MIB}MiB"));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let cache = Launch::binary(&plan.binary).args(serve).args(["--memory", &memory]);
    let cache = cache.args(["--origin", &url]).start().await.context("start the cache")?;
    Ok((origin, cache))
}

/// What to measure, and where to write it.
struct Plan {
    binary: PathBuf,
    json: Option<PathBuf>,
    churn: Duration,
    still: usize,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut binary, mut json, mut quick) = (None, None, false);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--binary" => binary = arguments.next().map(PathBuf::from),
                "--json" => json = arguments.next().map(PathBuf::from),
                "--quick" => quick = true,
                _ => bail!("there is no flag {flag}; known are --binary, --json and --quick"),
            }
        }
        let binary = binary.context("--binary PATH names the forebay to measure")?;
        let (churn, still) = if quick { (CHURN_QUICK, STILL_QUICK) } else { (CHURN, STILL) };
        Ok(Self { binary, json, churn, still })
    }
}

/// Ten thousand connections are opened here, and as many in the cache.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it stays too low, a connection fails and says why.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

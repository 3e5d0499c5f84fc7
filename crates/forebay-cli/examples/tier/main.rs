//! What a Redis that is slow, frozen, gone or full of lies costs: line by line, with its bound.
//!
//! `cargo xtask bench-tier` builds the binary and runs this; alone it is
//! `cargo run --release -p forebay-cli --example tier -- --binary PATH`, with `--json FILE` to
//! write the figures too, and `--quick` for one round of each case instead of five.
//!
//! Every case has real `redis-server` processes of its own. Clients, origin, Redis and caches
//! share the machine, so what the others cost is in the times: where times are compared, they are
//! taken in turns, and of several rounds the median counts. The exit code is 1 if a bound is
//! missed.
#![expect(clippy::print_stdout, reason = "a command-line program")]

mod ground;
mod outage;
mod slow;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ground::{Row, Scale};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

const FULL: Scale =
    Scale { rounds: 5, keys: 10_000, traffic: Duration::from_secs(6), patience: WRITES };
/// What is prepared is there, however long it takes; reading has its usual time.
const WRITES: &str = "write_timeout = \"2s\"\n";

const QUICK: Scale = Scale { rounds: 1, keys: 2_000, traffic: Duration::from_secs(3), ..FULL };

fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    raise_open_files();
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let rows = runtime.block_on(measure(&plan))?;
    if let Some(file) = &plan.json {
        let all: Vec<_> = rows.iter().map(shown).collect();
        std::fs::write(file, format!("{:#}", json!(all)))
            .with_context(|| format!("write {}", file.display()))?;
        println!("written to {}", file.display());
    }
    let holds = rows.iter().all(|row| row.counted && row.timed);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let (binary, scale) = (&plan.binary, plan.scale);
    println!("{:<46} {:<62} {:<34} holds", "case", "measured", "bound");
    let mut all = Vec::new();
    all.extend(printed(outage::frozen(binary, scale).await?));
    all.extend(printed(slow::misses(binary, scale).await?));
    all.extend(printed(slow::hits(binary, scale).await?));
    all.extend(printed(slow::far_hits(binary, scale).await?));
    let (restarted, without_memory) = outage::restarted(binary, scale).await?;
    all.extend(printed(vec![restarted]));
    // It decides nothing: see there.
    printed(vec![without_memory]);
    all.extend(printed(outage::fallback(binary, scale).await?));
    all.extend(printed(values::evicted(binary, scale).await?));
    all.extend(printed(values::hostile(binary, scale).await?));
    Ok(all)
}

fn printed(rows: Vec<Row>) -> Vec<Row> {
    for row in &rows {
        let holds = match (row.counted, row.timed) {
            (true, true) => "yes",
            (false, _) => "NO (counts)",
            (true, false) => "NO",
        };
        println!("{:<46} {:<62} {:<34} {holds}", row.case, row.measured, row.bound);
    }
    rows
}

fn shown(row: &Row) -> serde_json::Value {
    json!({
        "case": row.case, "measured": row.measured, "bound": row.bound,
        "counts_hold": row.counted, "times_hold": row.timed,
    })
}

/// What to measure, and where to write it.
struct Plan {
    binary: PathBuf,
    json: Option<PathBuf>,
    scale: Scale,
}

impl Plan {
    fn parse(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut binary, mut json, mut scale) = (None, None, FULL);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--binary" => binary = arguments.next().map(PathBuf::from),
                "--json" => json = arguments.next().map(PathBuf::from),
                "--quick" => scale = QUICK,
                _ => bail!("there is no flag {flag}; known are --binary, --json and --quick"),
            }
        }
        let binary = binary.context("--binary PATH names the forebay to measure")?;
        Ok(Self { binary, json, scale })
    }
}

/// Both ends of a thousand connections are here.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it stays too low, a connection fails and says why.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

//! What typed caches in several processes cost who they load from, and how long their callers wait:
//! the promises for many instances, through the library's door, each with its bound.
//!
//! `cargo xtask bench-cluster` runs this behind the same for the proxy; alone it is
//! `cargo run --release -p forebay --example processes`, with `--json FILE` to write the figures
//! too, and `--quick` for a tenth of the rounds. The processes are this program, told to be
//! [peers](peer).
//!
//! All of them share one machine with their Redis. Counts do not depend on that; times do, and
//! their bounds are those of a machine with a core for each process: with fewer, a miss is shown
//! and not counted. The exit code is 1 if any other bound is missed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod filled;
mod floor;
#[path = "../../tests/it/processes/peer.rs"]
mod peer;
#[path = "../../tests/it/processes/peers.rs"]
mod peers;
mod play;
#[path = "../../../forebay-cli/examples/cluster/report.rs"]
mod report;

use std::process::ExitCode;

use anyhow::{Context as _, bail};

use peer::SharedNotes;
use play::Crowd;
use report::Report;

/// How often a crowd comes, or something is written.
const ROUNDS: usize = 100;

/// The same where somebody wants to see it at once.
const ROUNDS_QUICK: usize = 10;

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let mut arguments = std::env::args().skip(1);
    let (mut json, mut rounds) = (None, ROUNDS);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            play::PEER => {
                let redis = arguments.next().context("a peer of which Redis?")?;
                let noted = SharedNotes::default();
                let cache = || filled::cache(&redis, &noted);
                runtime.block_on(async { peer::run(cache()?, noted.clone()).await })?;
                return Ok(ExitCode::SUCCESS);
            }
            floor::HEARER => {
                floor::hear(&arguments.next().context("a hearer of which Redis?")?)?;
                return Ok(ExitCode::SUCCESS);
            }
            "--json" => json = arguments.next(),
            "--quick" => rounds = ROUNDS_QUICK,
            _ => bail!("there is no flag {argument}; known are --json and --quick"),
        }
    }
    let report = runtime.block_on(measure(rounds))?;
    print!("{report}");
    if let Some(file) = json {
        std::fs::write(&file, format!("{:#}", report.json()))?;
        println!("written to {file}");
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(rounds: usize) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for (processes, callers) in [(2, 25), (4, 25), (4, 250)] {
        eprintln!("measuring: {processes} processes × {callers}");
        play::crowds(Crowd { processes, callers }, rounds, &mut report).await?;
    }
    eprintln!("measuring: who waits for another process");
    play::followers(rounds, &mut report).await?;
    eprintln!("measuring: the same by Redis alone");
    floor::told(rounds, &mut report).await?;
    eprintln!("measuring: the one that loads is killed");
    play::killed(&mut report).await?;
    eprintln!("measuring: written here, read there");
    play::written(rounds, &mut report).await?;
    eprintln!("measuring: without Redis");
    play::unreachable(rounds, &mut report).await?;
    Ok(report)
}

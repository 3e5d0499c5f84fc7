//! The hit path in pieces, each run so many times: what `cargo xtask instructions` counts.
//!
//! `hit_path list` names the cases; `hit_path CASE TIMES` runs one of them. Only what goes through
//! [`measured`] is counted, so filling the memory tier is not; what comes there once, such as a
//! connection's beginning and end, falls out of the difference of two runs of different length.
//!
//! Every piece tells how often it was a hit, so that nothing else is ever taken for one.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

mod bare;
mod front_end;
mod replay;
mod stores;

/// A piece of the hit path.
struct Case {
    name: &'static str,
    prepare: fn(times: usize) -> Result<Run>,
}

/// Runs the piece as often as was asked, and returns how often it found what it should.
type Run = Box<dyn FnMut() -> usize>;

const CASES: &[Case] = &[
    Case { name: "memory-get", prepare: stores::memory_get },
    Case { name: "judge", prepare: stores::judge_fresh },
    Case { name: "look", prepare: stores::look },
    Case { name: "look-variant", prepare: stores::look_variant },
    Case { name: "guard-scan", prepare: front_end::guard_scan },
    Case { name: "key", prepare: front_end::key },
    Case { name: "answer", prepare: front_end::answer },
    Case { name: "connection", prepare: front_end::connection },
    Case { name: "bare-hyper", prepare: bare::connection },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["list"] => {
            CASES.iter().for_each(|case| println!("{}", case.name));
            Ok(())
        }
        [case, times] => run(case, times),
        _ => Err(anyhow::anyhow!("expected `list`, or a case and how many times")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hit_path: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, times: &str) -> Result<()> {
    let case = CASES.iter().find(|case| case.name == name).context("there is no such case")?;
    let times: usize = times.parse().context("how many times?")?;
    let mut run = (case.prepare)(times)?;
    let found = run();
    ensure!(found == times, "{found} of {times} were hits");
    Ok(())
}

/// What `piece` does is counted; callgrind knows this function by its name. The hint keeps the
/// call from being a jump, whose return callgrind would not see.
#[inline(never)]
fn measured<T>(piece: impl FnOnce() -> T) -> T {
    std::hint::black_box(piece())
}

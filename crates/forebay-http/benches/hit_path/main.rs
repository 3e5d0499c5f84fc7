//! Parts of the hit path, each run a given number of times, for `cargo xtask instructions`.
//!
//! `hit_path list` prints the cases; `hit_path CASE TIMES` runs one. Only the code in [`measured`]
//! is counted, so filling the memory tier is not. One-time costs in it, such as the start and end
//! of a connection, cancel out in the difference of two runs of different length.
//!
//! Every case returns its number of hits, so that a miss is never counted as a hit.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

mod bare;
mod front_end;
mod replay;
mod stores;

/// Case: a part of the hit path.
struct Case {
    name: &'static str,
    prepare: fn(times: usize) -> Result<Run>,
}

/// Runs a case and returns the number of successful repetitions.
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

/// Runs the code that is counted; callgrind finds this function by its name. The `black_box`
/// prevents a tail call, whose return callgrind would not see.
#[inline(never)]
fn measured<T>(piece: impl FnOnce() -> T) -> T {
    std::hint::black_box(piece())
}

//! The typed cache beside others, in one run.
//!
//! | command | prints |
//! |---|---|
//! | `hits [--quick] [--json FILE]` | a warm hit: time, two threads, instructions, allocations |
//! | `ratios [--quick]` | what part of the calls are hits, by policy and by library |
//! | `early [--quick]` | what early refresh spares, before a real database |
//! | `one SUBJECT TIMES` | nothing: so many hits, for a profiler |
//!
//! `cargo xtask bench-library` builds and runs this. It stands outside of the workspace, for the
//! libraries that it compares with are nobody's dependencies.

mod callgrind;
mod early;
mod hits;
mod policies;
mod ratios;
mod subjects;
mod tiered;
mod zipf;

use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["hits", ref flags @ ..] => hits::run(flags),
        ["ratios", ref flags @ ..] => ratios::run(flags),
        ["early", ref flags @ ..] => early::run(flags),
        ["one", subject, times] => hits::one(subject, times).map(|()| ExitCode::SUCCESS),
        _ => bail!("expected `hits`, `ratios`, `early`, or `one SUBJECT TIMES`"),
    }
}

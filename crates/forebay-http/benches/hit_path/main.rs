//! Parts of the hit path, and requests that the origin answers, each run a given number of times, for
//! `cargo xtask instructions`.
//!
//! `hit_path CASE TIMES` runs one. Only the code in [`measured`]
//! is counted, so filling the memory tier is not. One-time costs in it, such as the start and end
//! of a connection, cancel out in the difference of two runs of different length.
//!
//! Every case returns the number of requests that were answered as it describes, so that a miss is
//! never counted as a hit.

use anyhow::{Context as _, Result, bail, ensure};

mod bare;
mod front_end;
mod origin_side;
mod replay;
mod rule_mix;
mod rules;
mod stores;

/// Name of a case, and its preparation for so many runs.
type Case = (&'static str, fn(usize) -> Result<Run>);

/// Runs a case and returns the number of successful repetitions.
type Run = Box<dyn FnMut() -> usize>;

const CASES: &[Case] = &[
    ("memory-get", stores::memory_get),
    ("judge", stores::judge_fresh),
    ("look", stores::look),
    ("look-variant", stores::look_variant),
    ("guard-scan", front_end::guard_scan),
    ("key", front_end::key),
    ("answer", front_end::answer),
    ("answer-rules", front_end::answer_rules),
    ("connection", front_end::connection),
    ("connection-purged", front_end::connection_purged),
    ("connection-form", front_end::connection_form),
    ("connection-plain", front_end::connection_plain),
    ("rules-0", rules::none),
    ("rules-4", rules::four),
    ("rules-100", rules::hundred),
    ("rules-250", rules::many),
    ("pass", origin_side::pass),
    ("miss", origin_side::miss),
    ("bare-hyper", bare::connection),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, times] = &arguments[..] else { bail!("expected a case and how many times") };
    let case = CASES.iter().find(|(case, _)| case == name).context("there is no such case")?;
    let times: usize = times.parse().context("how many times?")?;
    let mut run = case.1(times)?;
    let found = run();
    ensure!(found == times, "{found} of {times} were answered as expected");
    Ok(())
}

/// Runs the code that is counted; callgrind finds this function by its name. The `black_box`
/// prevents a tail call, whose return callgrind would not see.
#[inline(never)]
fn measured<T>(piece: impl FnOnce() -> T) -> T {
    std::hint::black_box(piece())
}

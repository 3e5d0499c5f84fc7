//! Loads that early refresh prevents: the same requests at the same times against two caches, one
//! with early refresh and one without.
//!
//! The requests form an open loop with exponential gaps; their keys are drawn from a normal
//! distribution. Engine, clock and waits are real; the work of the origin is a sleep. The first
//! load of each key is not counted: the count begins one lifetime after the start.

pub(crate) mod experiment;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use experiment::{Tallies, Tally, WARM_UP};
use forebay_engine::SystemClock;
use forebay_testkit::traffic::{LIFETIME, LOAD, RATE};

use crate::environment::{Options, millis, percent};
use crate::report::{Table, Verdict};

const MEASURED: Duration = Duration::from_secs(60);
const MEASURED_QUICK: Duration = Duration::from_secs(20);
/// Least share of requests that are answered with a fresh entry.
const HIT_RATIO_MIN: f64 = 0.996;
/// Most foreground loads for each one without early refresh.
const RATIO_MAX: f64 = 0.4;

type Figure = fn(&Tally) -> String;

const FIGURES: [(&str, Figure); 11] = [
    ("requests", |tally| tally.requests.to_string()),
    ("answered with a fresh entry", |tally| percent(tally.hit_ratio())),
    ("  with a refresh behind the answer", |tally| tally.refreshing.to_string()),
    ("  longest of these answers", |tally| millis(tally.fresh_max)),
    ("foreground loads", |tally| tally.foreground().to_string()),
    ("  had to load", |tally| tally.led.to_string()),
    ("  waited for another's load", |tally| tally.followed.to_string()),
    ("  joined a refresh that was late", |tally| tally.joined.to_string()),
    ("    and waited for it (mean, longest)", |tally| {
        let joined = u32::try_from(tally.joined).unwrap_or(u32::MAX);
        let mean = tally.joined_wait.checked_div(joined).unwrap_or_default();
        format!("{}, {}", millis(mean), millis(tally.joined_wait_max))
    }),
    ("loads in all", |tally| tally.loads.to_string()),
    ("learnt cost of a load", |tally| {
        let text = |(least, most)| format!("{} .. {}", millis(least), millis(most));
        tally.learnt.map_or_else(String::new, text)
    }),
];

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let measured = options.pick(MEASURED, MEASURED_QUICK);
    eprintln!("measuring: {} s", (WARM_UP + measured).as_secs());
    let runtime = tokio::runtime::Runtime::new()?;
    let experiment = experiment::run(options.seed, measured, Arc::new(SystemClock));
    let outcome = runtime.block_on(experiment)?;
    let Tallies { early, never, late_max } = &outcome;
    let title = format!(
        "{RATE} requests/s for {measured:?}, keys from N(50, 2), fresh for {LIFETIME:?}, loads of \
         {LOAD:?}; both caches at once, seed {}",
        options.seed
    );
    let mut counts = Table::new(title, &["", "beta 1", "beta 0"])
        .note(format!("the latest request was {} late", millis(*late_max)));
    for (name, figure) in FIGURES {
        counts.row(vec![name.to_owned(), figure(early), figure(never)], "", Verdict::Shown);
    }
    let mut bounds = Table::figures("bounds");
    let hits = Verdict::of(early.hit_ratio() >= HIT_RATIO_MIN);
    bounds.row(vec!["hit ratio".to_owned(), percent(early.hit_ratio())], "≥ 99.6 %", hits);
    let is_less = never.foreground() > 0 && outcome.ratio() <= RATIO_MAX;
    let ratio =
        vec!["foreground loads, to those without".to_owned(), format!("{:.3}", outcome.ratio())];
    bounds.row(ratio, format!("≤ {RATIO_MAX}"), Verdict::of(is_less));
    let sum = |of: fn(&Tally) -> u64| (of(early) + of(never)) as f64;
    bounds.count("waits although an entry is fresh", sum(|tally| tally.fresh_that_waited), 0.0);
    let together = early.loads_of_one_key.max(never.loads_of_one_key);
    bounds.count("loads of one key at a time", together as f64, 1.0);
    bounds.count("errors and stale answers", sum(|tally| tally.other), 0.0);
    Ok(vec![counts, bounds])
}

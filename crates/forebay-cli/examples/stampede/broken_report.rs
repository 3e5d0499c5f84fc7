//! The answers that an origin's breakage leaves, held against what they must be.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::broken::{
    Breakage, Broken, CLIENTS, ERROR_DELAY, FETCH_TIMEOUT, Got, SOFT_TIMEOUT, Said,
};

/// How long what is at hand may take where the origin is gone.
const GONE_MAX: Duration = Duration::from_millis(60);

/// How much later than the soft timeout an old answer may come.
const SOFT_LATE_MAX: Duration = Duration::from_millis(20);

/// How much later than the origin, or than the end of patience with it, an error may come.
const ERROR_LATE_MAX: Duration = Duration::from_millis(100);

/// What a case is called.
pub(crate) fn name(broken: Broken) -> String {
    let breakage = match broken.breakage {
        Breakage::Error => "503",
        Breakage::Refused => "refused",
        Breakage::Hangs => "hangs",
    };
    let said = match broken.said {
        Said::Nothing => "nothing said",
        Said::StaleIfError => "stale-if-error",
        Said::MustRevalidate => "must-revalidate",
    };
    format!("{breakage}, {said}")
}

/// When the last client may be answered at the earliest and at the latest.
fn bounds(broken: Broken) -> (Duration, Duration) {
    match (broken.breakage, broken.status()) {
        (Breakage::Error, _) => (ERROR_DELAY, ERROR_DELAY + ERROR_LATE_MAX),
        (Breakage::Refused, _) => (Duration::ZERO, GONE_MAX),
        (Breakage::Hangs, 200) => (SOFT_TIMEOUT, SOFT_TIMEOUT + SOFT_LATE_MAX),
        (Breakage::Hangs, _) => (FETCH_TIMEOUT, FETCH_TIMEOUT + ERROR_LATE_MAX),
    }
}

/// All rounds of all cases.
pub(crate) struct BrokenReport(Vec<(Broken, Vec<Got>)>);

impl BrokenReport {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, broken: Broken, got: Got) {
        match self.0.last_mut() {
            Some((last, rounds)) if *last == broken => rounds.push(got),
            _ => self.0.push((broken, vec![got])),
        }
    }

    /// Whether everything holds in every round.
    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(|(broken, rounds)| rounds.iter().all(|got| holds(*broken, got)))
    }

    pub(crate) fn json(&self) -> Value {
        let row = |(broken, rounds): &(Broken, Vec<Got>)| {
            let (earliest, latest) = bounds(*broken);
            json!({
                "case": name(*broken),
                "expected": {
                    "status": broken.status(), "stale": broken.status() == 200,
                    "earliest_s": earliest.as_secs_f64(), "latest_s": latest.as_secs_f64(),
                },
                "holds": rounds.iter().all(|got| holds(*broken, got)),
                "rounds": rounds.iter().map(|got| round(*broken, got)).collect::<Vec<_>>(),
            })
        };
        json!({ "clients": CLIENTS, "rows": self.0.iter().map(row).collect::<Vec<_>>() })
    }
}

fn holds(broken: Broken, got: &Got) -> bool {
    let (earliest, latest) = bounds(broken);
    let took = got.times.max();
    got.wrong == 0
        && (1..=broken.fetches_max(took)).contains(&got.fetches)
        && (earliest..=latest).contains(&took)
}

fn round(broken: Broken, got: &Got) -> Value {
    let reply = |((status, cache), count): (&(u16, String), &usize)| {
        let (status, count) = (*status, *count);
        json!({ "status": status, "cache_status": cache, "count": count })
    };
    json!({
        "fetches": got.fetches, "stale": got.stale, "wrong": got.wrong,
        "p50_s": got.times.p50().as_secs_f64(), "wall_s": got.times.max().as_secs_f64(),
        "replies": got.replies.iter().map(reply).collect::<Vec<_>>(),
        "holds": holds(broken, got),
    })
}

impl fmt::Display for BrokenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nan answer that has expired and an origin that is broken, {CLIENTS} clients at once\n"
        )?;
        writeln!(
            f,
            "{:<24} {:>6} {:>6} {:>7} {:>6} {:>8}  {:<20} {:<5} Cache-Status of most",
            "origin, answer", "status", "stale", "fetches", "wrong", "wall", "bound", "holds"
        )?;
        for (broken, rounds) in &self.0 {
            let worst = rounds.iter().max_by_key(|got| (!holds(*broken, got), got.times.max()));
            if let Some(worst) = worst {
                line(f, *broken, worst)?;
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, broken: Broken, got: &Got) -> fmt::Result {
    let (earliest, latest) = bounds(broken);
    let most = got.replies.iter().max_by_key(|(_, count)| **count);
    let (status, cache) = most.map_or((0, ""), |((status, cache), _)| (*status, cache.as_str()));
    writeln!(
        f,
        "{:<24} {status:>6} {:>6} {:>7} {:>6} {:>8}  {:<20} {:<5} {cache}",
        name(broken),
        got.stale,
        got.fetches,
        got.wrong,
        seconds(got.times.max()),
        format!("{} .. {}", seconds(earliest), seconds(latest)),
        if holds(broken, got) { "yes" } else { "NO" }
    )
}

fn seconds(span: Duration) -> String {
    format!("{:.3} s", span.as_secs_f64())
}

//! Simultaneous callers of libraries and clients of HTTP caches, beside rivals.
//!
//! Then 500 clients at once: the fetches that they cause, the bodies that they get, the time that they
//! wait. Then 50 clients with an expired answer and a broken origin.
//!
//! Each case has a cache of its own with the default configuration. All connections are open before
//! the first request. Clients, origin and cache share the machine, and the times include all of
//! them. The worst round of a case is shown.

pub(crate) mod broken;
pub(crate) mod crowd;
pub(crate) mod libraries;
mod servers;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use broken::{Breakage, Broken, CLIENTS, ERROR_DELAY, FETCH_TIMEOUT, Got, SOFT_TIMEOUT, Said};
use crowd::{CROWD, Case, DELAY, Outcome};

use crate::environment::{Options, forebay, seconds};
use crate::report::{Table, Verdict};

const ROUNDS: usize = 3;

/// Limit of the wait for one answer that all clients share.
const SHARED_MAX: Duration = Duration::from_millis(600);
/// Limit where the first answer says that there are variants: the other fetches begin after it.
const SHARED_TWICE_MAX: Duration = Duration::from_millis(1_150);
/// Limit of the wait for a stored, stale answer.
const STORED_MAX: Duration = Duration::from_millis(60);
/// Limit of the time that uncacheable answers cost beyond that of the origin.
const OVERHEAD_MAX: Duration = Duration::from_millis(150);
/// Limit for the first byte of a body that is being received.
const FIRST_BYTE_MAX: Duration = Duration::from_millis(5);
/// Limit for the end of a follower's body after that of the leader's.
const BEHIND_MAX: Duration = Duration::from_millis(50);
/// Limit for a stale answer after the soft timeout.
const SOFT_LATE_MAX: Duration = Duration::from_millis(20);
/// Limit for an error after the origin's answer or its timeout.
const ERROR_LATE_MAX: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let (binary, rounds) = (forebay()?, options.pick(ROUNDS, 1));
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        Ok(vec![
            libraries::measure(options).await?,
            servers::measure(options).await?,
            crowds(&binary, rounds).await?,
            broken_origins(&binary, rounds).await?,
        ])
    })
}

async fn crowds(binary: &Path, rounds: usize) -> Result<Table> {
    let title = format!(
        "{CROWD} clients at once, an origin that takes {}; worst of {rounds}",
        seconds(DELAY)
    );
    let columns = ["case", "fetches", "bodies", "wrong", "p50", "p99", "wall"];
    let mut table = Table::new(title, &columns)
        .note("times: from a client's request to the end of its body; wall: the longest");
    for (case, name) in Case::ALL {
        eprintln!("measuring: {}", name);
        let mut all = Vec::new();
        for _ in 0..rounds {
            all.push(case.play(binary).await.context(name)?);
        }
        let worst = all.iter().max_by_key(|one| (!holds(case, one), one.times.max()));
        let worst = worst.context("no round")?;
        let (fetches, bodies) = case.fetches_and_bodies();
        let conditional = if worst.conditional > 0 { " (304)" } else { "" };
        let times = [worst.times.p50(), worst.times.p99(), worst.times.max()].map(seconds);
        let mut cells = vec![
            name.to_owned(),
            format!("{}/{fetches}{conditional}", worst.fetches),
            format!("{}/{bodies}", worst.distinct),
            worst.wrong.to_string(),
        ];
        cells.extend(times);
        let joined = worst.joined.map_or_else(String::new, |joined| {
            let (first, behind) = (joined.first_byte, joined.behind);
            format!("{:.1} ms, {:.1} ms; ", 1e3 * first.as_secs_f64(), 1e3 * behind.as_secs_f64())
        });
        table.row(cells, joined + &bound(case).1, Verdict::of(holds(case, worst)));
    }
    Ok(table)
}

/// Condition on the times of a round, and its text.
type Bound = (Box<dyn Fn(&Outcome) -> bool>, String);

fn bound(case: Case) -> Bound {
    let p99 = |max: Duration| -> Bound {
        (Box::new(move |one| one.times.p99() <= max), format!("p99 ≤ {}", seconds(max)))
    };
    let wall = |max: Duration| -> Bound {
        (Box::new(move |one| one.times.max() <= max), format!("wall ≤ {}", seconds(max)))
    };
    match case {
        Case::StaleWhileRevalidate => p99(STORED_MAX),
        Case::VariantsCold => p99(SHARED_TWICE_MAX),
        Case::NoStoreMarked => wall(DELAY + OVERHEAD_MAX),
        Case::NoStoreFirst | Case::Private | Case::SetCookie => wall(2 * DELAY + OVERHEAD_MAX),
        Case::SlowBody => (
            Box::new(|one| {
                one.joined.is_some_and(|joined| {
                    joined.first_byte <= FIRST_BYTE_MAX && joined.behind <= BEHIND_MAX
                })
            }),
            format!("first byte ≤ {FIRST_BYTE_MAX:?}, end ≤ {BEHIND_MAX:?} after"),
        ),
        Case::Truncated => (Box::new(|_| true), "none ends whole, none is stored".to_owned()),
        _ => p99(SHARED_MAX),
    }
}

fn holds(case: Case, outcome: &Outcome) -> bool {
    (outcome.fetches, outcome.distinct) == case.fetches_and_bodies()
        && outcome.conditional == case.conditional()
        && outcome.wrong == 0
        && bound(case).0(outcome)
}

async fn broken_origins(binary: &Path, rounds: usize) -> Result<Table> {
    let title = format!("an expired answer and a broken origin, {CLIENTS} clients at once");
    let columns =
        ["origin, answer", "status", "stale", "fetches", "wrong", "wall", "Cache-Status of most"];
    let mut table = Table::new(title, &columns);
    for broken in Broken::all() {
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
        let name = format!("{breakage}, {said}");
        eprintln!("measuring: {name}");
        let mut all = Vec::new();
        for _ in 0..rounds {
            all.push(broken.play(binary).await.with_context(|| name.clone())?);
        }
        let worst = all.iter().max_by_key(|got| (!broken_holds(broken, got), got.times.max()));
        let worst = worst.context("no round")?;
        let most = worst.replies.iter().max_by_key(|(_, count)| **count);
        let (status, cache) = most.map_or((0, ""), |((status, cache), _)| (*status, cache));
        let cells = vec![
            name,
            status.to_string(),
            worst.stale.to_string(),
            worst.fetches.to_string(),
            worst.wrong.to_string(),
            seconds(worst.times.max()),
            cache.to_owned(),
        ];
        let (earliest, latest) = broken_bounds(broken);
        let bound = format!("{} .. {}", seconds(earliest), seconds(latest));
        table.row(cells, bound, Verdict::of(broken_holds(broken, worst)));
    }
    Ok(table)
}

/// Earliest and latest time of the last answer.
fn broken_bounds(broken: Broken) -> (Duration, Duration) {
    match (broken.breakage, broken.status()) {
        (Breakage::Error, _) => (ERROR_DELAY, ERROR_DELAY + ERROR_LATE_MAX),
        (Breakage::Refused, _) => (Duration::ZERO, STORED_MAX),
        (Breakage::Hangs, 200) => (SOFT_TIMEOUT, SOFT_TIMEOUT + SOFT_LATE_MAX),
        (Breakage::Hangs, _) => (FETCH_TIMEOUT, FETCH_TIMEOUT + ERROR_LATE_MAX),
    }
}

fn broken_holds(broken: Broken, got: &Got) -> bool {
    let ((earliest, latest), took) = (broken_bounds(broken), got.times.max());
    got.wrong == 0
        && (1..=broken.fetches_max(took)).contains(&got.fetches)
        && (earliest..=latest).contains(&took)
}

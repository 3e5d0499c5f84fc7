//! Stampedes on libraries: published workloads, beside rivals.
//!
//! Each library runs in processes of its own, and all read the same commands. The load is a pause.

use std::time::Duration;

use anyhow::{Context as _, Result};
use forebay_testkit::redis::RedisLaunch;
use futures_util::future::try_join_all;

use crate::environment::{Options, quantile};
use crate::report::{Better, Bound, Comparison, Table, Unit};
use crate::rivals::Rival;
use crate::rivals::catalog::{
    LIBRARIES, Library, OURS, OURS_SHARED, Runs, UNCOALESCED, unavailable,
};
use crate::rivals::peer::{Loaded, Peer, Setup};

/// Time of a load, except where a source names another one.
const LOAD: Duration = Duration::from_millis(50);
/// Size of a value.
const SIZE: usize = 1 << 10;
/// Lifetime in the case that expires, and the wait for its end. forebay shortens lifetimes by up to
/// 5 % (jitter), no library lengthens them.
const SHORT: Duration = Duration::from_secs(1);
const EXPIRY: Duration = Duration::from_millis(1_100);
/// Maximum wait of the 99th percentile beyond the load, across processes.
const LATE_MAX: f64 = 0.005;
/// Redis and this program.
const OTHERS: usize = 2;

/// Callers in processes, several times.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    processes: usize,
    callers: usize,
    rounds: usize,
    /// True if one key is read again after each expiry; otherwise every round has a cold key.
    expires: bool,
    /// True if only libraries with a Redis take part.
    is_shared: bool,
}

const CASES: [Case; 6] = [
    Case { name: "75 callers of a cold key, 5 rounds, memory", ..SOLO },
    Case { name: "75 callers of a cold key, 5 rounds, memory and Redis", is_shared: true, ..SOLO },
    Case { name: "60 callers over 2 instances", processes: 2, callers: 30, rounds: 1, ..SHARED },
    Case { name: "100 callers over 4 processes", processes: 4, callers: 25, rounds: 1, ..SHARED },
    Case {
        name: "1,000 callers of an expired key",
        callers: 1_000,
        rounds: 1,
        expires: true,
        ..SOLO
    },
    Case { name: "40 callers at an expiry, 5 rounds", callers: 40, expires: true, ..SOLO },
];

const SOLO: Case =
    Case { name: "", processes: 1, callers: 75, rounds: 5, expires: false, is_shared: false };
const SHARED: Case = Case { is_shared: true, ..SOLO };

/// Result of one library in a case.
struct Outcome {
    loads: f64,
    errors: f64,
    times: Vec<f64>,
}

/// Figures of one library: name and one outcome for each repetition.
type Measured = Vec<(&'static str, Vec<Outcome>)>;

pub(super) async fn measure(options: &Options) -> Result<Table> {
    let repeats = options.pick(3, 1);
    let title = format!(
        "libraries: loads and waits of simultaneous callers; a load takes {LOAD:?}; {repeats} repetitions"
    );
    let mut rivals = unavailable();
    let mut table = Table::comparisons(title);
    for case in CASES {
        eprintln!("measuring: {}", case.name);
        let mut measured = Measured::new();
        for library in subjects(case) {
            match repeated(library, case, repeats).await {
                Ok((rival, outcomes)) => {
                    measured.push((library.name, outcomes));
                    note(&mut rivals, rival);
                }
                Err(error) if !library.is_ours() => {
                    note(&mut rivals, Rival::missing(library.name, format!("{error:#}")));
                }
                Err(error) => return Err(error.context(library.name)),
            }
        }
        rows(&mut table, case, &measured);
    }
    Ok(table.with_rivals(rivals))
}

/// Adds a rival that is not in the list yet.
pub(crate) fn note(rivals: &mut Vec<Rival>, rival: Rival) {
    let is_ours = rival.name == OURS || rival.name == OURS_SHARED || rival.name == UNCOALESCED;
    if !is_ours && rivals.iter().all(|known| known.name != rival.name) {
        rivals.push(rival);
    }
}

/// Libraries that take part in a case, each repetition of which begins with new processes.
fn subjects(case: Case) -> impl Iterator<Item = &'static Library> {
    const NONE: &Library = &Library {
        name: UNCOALESCED,
        runs: Runs::Rust,
        is_shared: false,
        why: "",
        documentation: "",
    };
    let all = LIBRARIES.iter().filter(move |library| library.is_shared == case.is_shared);
    // A library without lifetimes has no expiry.
    all.filter(move |library| !(case.expires && library.name == "foyer"))
        .chain((!case.is_shared).then_some(NONE))
}

async fn repeated(
    library: &'static Library,
    case: Case,
    repeats: usize,
) -> Result<(Rival, Vec<Outcome>)> {
    let (mut outcomes, mut rival) = (Vec::new(), None);
    for _ in 0..repeats {
        let (of, outcome) = once(library, case).await?;
        outcomes.push(outcome);
        rival = Some(of);
    }
    Ok((rival.context("no repetition")?, outcomes))
}

async fn once(library: &'static Library, case: Case) -> Result<(Rival, Outcome)> {
    let redis = RedisLaunch::new().start().await?;
    let mut setup = Setup::new(&redis.url());
    if case.expires {
        setup.ttl = SHORT;
    }
    let mut peers = Vec::new();
    for _ in 0..case.processes {
        peers.push(Peer::start(library, &setup).await?);
    }
    // Connections and code are warm: what is measured is the stampede.
    crowd(&mut peers, "warm", 1).await?;
    let mut outcome = Outcome { loads: 0.0, errors: 0.0, times: Vec::new() };
    for round in 0..case.rounds {
        let key = if case.expires { "expiring".to_owned() } else { format!("key:{round}") };
        if case.expires {
            if round == 0 {
                crowd(&mut peers, &key, 1).await?;
            }
            tokio::time::sleep(EXPIRY).await;
        }
        for loaded in crowd(&mut peers, &key, case.callers).await? {
            outcome.loads += loaded.loads as f64;
            outcome.errors += loaded.errors as f64;
            outcome.times.extend(loaded.times);
        }
    }
    let rival = peers.first().context("no process")?.rival.clone();
    Ok((rival, outcome))
}

async fn crowd(peers: &mut [Peer], key: &str, callers: usize) -> Result<Vec<Loaded>> {
    try_join_all(peers.iter_mut().map(|peer| peer.load(key, callers, LOAD, SIZE))).await
}

/// Loads, errors, and the waits of one case.
fn rows(table: &mut Table, case: Case, measured: &Measured) {
    let name = case.name;
    let rounds = case.rounds as f64;
    let of = |row: Comparison, figure: &dyn Fn(&Outcome) -> f64| {
        measured.iter().fold(row, |row, (subject, outcomes)| {
            let samples = outcomes.iter().map(figure).collect();
            match Library::named(subject).is_some_and(Library::is_ours) {
                true => row.ours(samples),
                false => row.rival(subject, samples),
            }
        })
    };
    let mut loads = Comparison::new(format!("{name}: loads"), Unit::Count, Better::Lower);
    for (source, figure) in published_loads(case) {
        loads = loads.published(source, figure);
    }
    table.compare(of(loads.bound(Bound::AtMost(rounds)), &|one| one.loads));
    let failed = measured.iter().any(|(_, all)| all.iter().any(|one| one.errors > 0.0));
    if failed {
        let errors = Comparison::new(format!("{name}: errors"), Unit::Count, Better::Lower);
        table.compare(of(errors.bound(Bound::AtMost(0.0)), &|one| one.errors));
    }
    let mut late = Comparison::new(format!("{name}: p99"), Unit::Seconds, Better::Lower);
    if case.processes == 4 {
        late = late.published("layercache", 0.3797);
        let bound = Bound::AtMost(LOAD.as_secs_f64() + LATE_MAX);
        late = late.bound_for(bound, case.processes + OTHERS);
    }
    if case.callers == 1_000 {
        late = late.published("Go article without singleflight", 0.850);
        late = late.published("Go article with it", 0.012);
    }
    table.compare(of(late, &|one| quantile(&one.times, 0.99)));
}

/// Sources and the loads that they print.
fn published_loads(case: Case) -> Vec<(&'static str, f64)> {
    match (case.processes, case.callers) {
        (1, 75) => vec![("layercache without a cache", 375.0), ("layercache", 5.0)],
        (2 | 4, _) => vec![("layercache", 1.0)],
        (_, 1_000) => {
            vec![("Go article without singleflight", 1_000.0), ("Go article with it", 1.0)]
        }
        _ => vec![("layercache", 5.0)],
    }
}

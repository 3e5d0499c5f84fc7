//! Loads that early refresh prevents: equal requests at the same times to typed caches with and
//! without it, and to the other methods that the published text compares.
//!
//! The requests form an open loop in real time. Loads are pauses (`cargo xtask bench
//! early-refresh`), or queries of one SQLite file (part of `library`): there each cache may slow
//! down the queries of the other, so their times are printed. The first load of a page cannot be
//! avoided. So the popular pages are loaded before the first request, spread over one lifetime, and
//! not counted.
//!
//! | file | contents |
//! |---|---|
//! | `subject.rs` | a cache and its origin, and what became of its requests |
//! | `policy.rs` | the methods that the published text compares, without a library |
//! | `database.rs` | the SQLite file |

mod database;
mod policy;
mod subject;

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context as _, Result};
use forebay_testkit::traffic::{Arrival, LIFETIME, LOAD, RATE, REQUESTS, Traffic};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use database::Database;
use subject::{Origin, Subject, Tally};

use crate::environment::{Options, mib, millis};
use crate::report::{Better, Bound, Comparison, Table, Unit};
use crate::rivals::Rival;

/// Time of a query on an idle machine. Beside those of the other cache it takes longer, for
/// cores that are shared: so long that without early refresh about as many calls miss as with loads
/// of the length that is simulated elsewhere ([`forebay_testkit::traffic::LOAD`]).
const QUERY: Duration = Duration::from_millis(95);

/// Number of requests of `early-refresh`: one minute.
const MINUTE: usize = (60.0 * RATE) as usize;
/// Number of requests with `--quick`: so many that seldom chance alone misses a bound.
const REQUESTS_QUICK: usize = (40.0 * RATE) as usize;

/// The pages that are loaded before: five times the spread either way from the middle.
const USUAL: RangeInclusive<i64> = 40..=60;

/// Least share of requests that are hits.
const HIT_RATIO_MIN: f64 = 0.996;
/// Most misses for each one without early refresh.
const MISSES_MAX: f64 = 0.1;
/// Most foreground loads for each one without early refresh.
const FOREGROUND_MAX: f64 = 0.4;

/// The published text, and the number of its requests, to which its counts are scaled.
const SOURCE: &str = "Kotlin article";
const SOURCE_REQUESTS: f64 = 200_000.0;

/// Names of the two caches that are compared first.
const EARLY: &str = "forebay";
const NEVER: &str = "forebay, early_refresh_beta 0";

/// Measures with loads that are pauses.
pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let origin = Origin::Pause;
    let mut subjects = ours(&origin)?;
    for (name, method) in policy::METHODS {
        subjects.push(Subject::policy(name, *method, &origin));
    }
    let requests = options.pick(MINUTE, REQUESTS_QUICK);
    compare(options, subjects, requests, &format!("loads of {LOAD:?}"))
}

/// Measures with queries of an SQLite file.
pub(crate) fn run_sqlite(options: &Options) -> Result<Vec<Table>> {
    let folder = tempfile::tempdir().context("a folder for the database")?;
    let database = Database::that_takes(QUERY, &folder.path().join("articles"))?;
    let alone = database.listing_takes()?;
    let title = format!(
        "SQLite: {} articles, {:.0} MiB; a listing takes {} while nothing else runs",
        database.articles(),
        mib(database.bytes()?),
        millis(alone),
    );
    let requests = options.pick(REQUESTS, REQUESTS_QUICK);
    compare(options, ours(&Origin::Sqlite(database))?, requests, &title)
}

fn ours(origin: &Origin) -> Result<Vec<Subject>> {
    Ok(vec![Subject::forebay(EARLY, 1.0, origin)?, Subject::forebay(NEVER, 0.0, origin)?])
}

fn compare(
    options: &Options,
    subjects: Vec<Subject>,
    requests: usize,
    loads: &str,
) -> Result<Vec<Table>> {
    let seconds = requests as f64 / RATE + LIFETIME.as_secs_f64();
    eprintln!("measuring: {seconds:.0} s");
    let runtime = tokio::runtime::Runtime::new()?;
    let measuring = measured(&subjects, requests, options.seed);
    let (tallies, late_max) = runtime.block_on(measuring)?;
    let title = format!(
        "{requests} requests, {RATE} a second, for pages from N(50, 2), fresh for {LIFETIME:?}, seed \
         {}; {loads}",
        options.seed
    );
    let all: Vec<(&str, Tally)> =
        subjects.iter().map(|subject| subject.name).zip(tallies).collect();
    let note = format!("the latest request was {} late", millis(late_max));
    let mut table = Table::comparisons(title).note(note).with_rivals(methods(&all));
    rows(&mut table, &all, requests);
    for (name, tally) in &all {
        table.series(&format!("{name}: calls that waited, by half second"), tally.waits.clone());
    }
    Ok(vec![table])
}

fn methods(all: &[(&str, Tally)]) -> Vec<Rival> {
    let found = policy::METHODS.iter().filter(|(name, _)| all.iter().any(|(one, _)| one == name));
    found.map(|(name, method)| method.described(name)).collect()
}

fn rows(table: &mut Table, all: &[(&str, Tally)], requests: usize) {
    let of = |name: &str, unit, better, figure: fn(&Tally) -> f64| {
        let row = Comparison::new(name, unit, better);
        all.iter().fold(row, |row, (subject, tally)| match *subject {
            EARLY => row.ours(vec![figure(tally)]),
            other => row.rival(other, vec![figure(tally)]),
        })
    };
    let scaled = requests as f64 / SOURCE_REQUESTS;
    let (before, after) = (format!("{SOURCE} without it"), format!("{SOURCE} with it"));
    let hits = of("hits", Unit::Share, Better::Higher, Tally::hit_ratio);
    let hits = hits.published(&before, 0.89).published(&after, 0.996);
    table.compare(hits.bound(Bound::AtLeast(HIT_RATIO_MIN)));
    let misses = of("requests that waited", Unit::Count, Better::Lower, |one| one.misses as f64);
    let misses = misses.published(&format!("{before}, scaled"), (5_000.0 * scaled).round());
    table.compare(misses.published(&format!("{after}, scaled"), (490.0 * scaled).round()));
    let name = "foreground loads: waits that began one";
    table.compare(of(name, Unit::Count, Better::Lower, |one| one.foreground as f64));
    let name = "loads in all: work of the database";
    table.compare(of(name, Unit::Count, Better::Neither, |one| one.loads as f64));
    let name = "time of a load, median";
    table.compare(of(name, Unit::Seconds, Better::Neither, |one| one.queries.p50().as_secs_f64()));
    let tally = |name| all.iter().find(|(subject, _)| *subject == name).map(|(_, tally)| tally);
    let Some((early, never)) = tally(EARLY).zip(tally(NEVER)) else { return };
    let part = |of: u64, all: u64| vec![of as f64 / all.max(1) as f64];
    let ratio = |name: &str| Comparison::new(name, Unit::Times, Better::Lower);
    table.compare(
        ratio("misses, to those without early refresh")
            .published(SOURCE, 490.0 / 5_000.0)
            .ours(part(early.misses, never.misses))
            .bound(Bound::AtMost(MISSES_MAX)),
    );
    table.compare(
        ratio("foreground loads, to those without early refresh")
            .ours(part(early.foreground, never.foreground))
            .bound(Bound::AtMost(FOREGROUND_MAX)),
    );
}

/// Sends the same requests to all subjects. Returns their results, and the maximum delay of a
/// request against its drawn time: the loop is open only if that is little.
async fn measured(
    subjects: &[Subject],
    requests: usize,
    seed: u64,
) -> Result<(Vec<Tally>, Duration)> {
    let start = Instant::now();
    fill(subjects, start).await?;
    subjects.iter().for_each(Subject::start_over);
    let (mut late_max, mut waiting) = (Duration::ZERO, JoinSet::new());
    for Arrival { at, page } in Traffic::from_seed(seed).take(requests) {
        let due = start + LIFETIME + at;
        sleep_until(due).await;
        late_max = late_max.max(due.elapsed());
        for subject in subjects {
            waiting.spawn(subject.clone().ask(page as i64));
        }
        while let Some(asked) = waiting.try_join_next() {
            asked??;
        }
    }
    while let Some(asked) = waiting.join_next().await {
        asked??;
    }
    Ok((subjects.iter().map(Subject::tally).collect(), late_max))
}

/// Loads each usual page once into each cache, as far from each other as they would be if no caller
/// had begun just now.
async fn fill(subjects: &[Subject], start: Instant) -> Result<()> {
    let (pages, caches) = (USUAL.count() as f64, subjects.len() as f64);
    for (number, page) in USUAL.enumerate() {
        let mut filling = JoinSet::new();
        for (half, subject) in subjects.iter().enumerate() {
            let at = (number as f64 + half as f64 / caches) / pages;
            let subject = subject.clone();
            filling.spawn(async move {
                sleep_until(start + LIFETIME.mul_f64(at)).await;
                subject.ask(page).await
            });
        }
        while let Some(filled) = filling.join_next().await {
            filled??;
        }
    }
    Ok(())
}

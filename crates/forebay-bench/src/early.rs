//! Loads that early refresh prevents: equal requests at the same times to two typed caches, of which
//! one refreshes early and the other never does.
//!
//! The requests form an open loop in real time. Loads are pauses (`cargo xtask bench early`), or
//! queries of one SQLite file (part of `library`): there each cache may slow down the queries of the
//! other, so their times are printed. The first load of a page cannot be avoided. So the popular
//! pages are loaded before the first request, spread over one lifetime, and not counted.

mod database;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use forebay::{Cache, Memory, Stats};
use forebay_testkit::client::Timings;
use forebay_testkit::traffic::{Arrival, LIFETIME, LOAD, RATE, REQUESTS, Traffic};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use database::{Database, Line, Listing};

use crate::environment::{Options, mib, millis, percent};
use crate::report::{Bound, Table, Verdict};

/// Time of a query on an idle machine. Beside those of the other cache it takes longer, for
/// cores that are shared: so long that without early refresh about as many calls miss as with loads
/// of the length that is simulated elsewhere ([`forebay_testkit::traffic::LOAD`]).
const QUERY: Duration = Duration::from_millis(95);

/// Number of requests of `early`: one minute.
const MINUTE: usize = (60.0 * RATE) as usize;
/// Number of requests with `--quick`: so many that seldom chance alone misses a bound.
const REQUESTS_QUICK: usize = (40.0 * RATE) as usize;

/// The pages that are loaded before: five times the spread either way from the middle.
const USUAL: RangeInclusive<i64> = 40..=60;

/// Far more pages than are asked for.
const CAPACITY: u64 = 1_000;

/// Least share of requests that are hits.
const HIT_RATIO_MIN: f64 = 0.996;
/// Most misses for each one without early refresh.
const MISSES_MAX: f64 = 0.1;
/// Most foreground loads for each one without early refresh.
const FOREGROUND_MAX: f64 = 0.4;

type Figure = fn(&Tally) -> String;

const FIGURES: [(&str, Figure); 7] = [
    ("hits", |tally| percent(tally.hit_ratio())),
    ("requests that waited for a load", |tally| tally.misses.to_string()),
    ("foreground loads: misses that began one", |tally| tally.foreground.to_string()),
    ("refreshes behind an answer", |tally| (tally.loads - tally.foreground).to_string()),
    ("loads in all", |tally| tally.loads.to_string()),
    ("time of a load, median", |tally| millis(tally.queries.p50())),
    ("time of a load, nine of ten", |tally| millis(tally.queries.percentile(90))),
];

/// Measures with loads that are pauses.
pub(crate) fn run(options: &Options) -> Result<Vec<Table>> {
    let title = format!("loads of {LOAD:?}");
    compare(options, &Origin::Pause, options.pick(MINUTE, REQUESTS_QUICK), &title)
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
    compare(options, &Origin::Sqlite(database), requests, &title)
}

fn compare(options: &Options, origin: &Origin, requests: usize, loads: &str) -> Result<Vec<Table>> {
    let seconds = requests as f64 / RATE + LIFETIME.as_secs_f64();
    eprintln!("measuring: {seconds:.0} s");
    let runtime = tokio::runtime::Runtime::new()?;
    let measuring = measured(origin, requests, options.seed);
    let Outcome { early, never, late_max } = runtime.block_on(measuring)?;
    let title = format!(
        "{requests} requests, {RATE} a second, for pages from N(50, 2), fresh for {LIFETIME:?}, seed \
         {}\n{loads}",
        options.seed
    );
    let mut counts = Table::new(title, &["", "beta 1", "beta 0"])
        .note(format!("the latest request was {} late", millis(late_max)));
    for (name, figure) in FIGURES {
        counts.row(vec![name.to_owned(), figure(&early), figure(&never)], "", Verdict::Shown);
    }
    let mut bounds = Table::figures("bounds");
    bounds.figure("hits", early.hit_ratio(), "", Bound::AtLeast(HIT_RATIO_MIN));
    let misses = part(early.misses, never.misses);
    bounds.count("misses, to those without early refresh", misses, MISSES_MAX);
    let foreground = part(early.foreground, never.foreground);
    bounds.count("foreground loads, to those without", foreground, FOREGROUND_MAX);
    Ok(vec![counts, bounds])
}

impl Tally {
    fn hit_ratio(&self) -> f64 {
        part(self.hits, self.hits + self.misses)
    }
}

fn part(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// Results of all requests.
struct Outcome {
    early: Tally,
    never: Tally,
    /// Maximum delay of a request against its drawn time. The loop is open only if that is
    /// little.
    late_max: Duration,
}

/// Results of the requests to one cache.
struct Tally {
    hits: u64,
    misses: u64,
    /// Misses that began the load for which they waited.
    foreground: u64,
    loads: u64,
    queries: Timings,
}

async fn measured(origin: &Origin, requests: usize, seed: u64) -> Result<Outcome> {
    let (early, never) = (Subject::new(1.0, origin)?, Subject::new(0.0, origin)?);
    let start = Instant::now();
    fill([&early, &never], start).await?;
    let before = [early.starts_over(), never.starts_over()];
    let (mut late_max, mut waiting) = (Duration::ZERO, JoinSet::new());
    for Arrival { at, page } in Traffic::from_seed(seed).take(requests) {
        let due = start + LIFETIME + at;
        sleep_until(due).await;
        late_max = late_max.max(due.elapsed());
        for subject in [&early, &never] {
            waiting.spawn(subject.clone().ask(page as i64));
        }
        while let Some(asked) = waiting.try_join_next() {
            asked??;
        }
    }
    while let Some(asked) = waiting.join_next().await {
        asked??;
    }
    let [early, never] =
        [(early, before[0]), (never, before[1])].map(|(s, before)| s.since(before));
    Ok(Outcome { early, never, late_max })
}

/// Loads each usual page once into each cache, as far from each other as they would be if no caller
/// had begun just now.
async fn fill(subjects: [&Subject; 2], start: Instant) -> Result<()> {
    let pages = USUAL.count() as f64;
    for (number, page) in USUAL.enumerate() {
        for (half, subject) in subjects.into_iter().enumerate() {
            let at = (number as f64 + half as f64 / 2.0) / pages;
            sleep_until(start + LIFETIME.mul_f64(at)).await;
            subject.clone().ask(page).await?;
        }
    }
    Ok(())
}

/// Origin of both caches.
#[derive(Clone)]
enum Origin {
    /// Each load takes [`LOAD`].
    Pause,
    Sqlite(Database),
}

impl Origin {
    async fn list(&self, page: i64) -> Result<Listing> {
        match self {
            Self::Pause => {
                sleep(LOAD).await;
                Ok(vec![Line::default()])
            }
            Self::Sqlite(database) => database.list(page).await,
        }
    }
}

/// A cache and its origin. Clones share them.
#[derive(Clone)]
struct Subject {
    cache: Cache<Listing>,
    origin: Origin,
    queries: Arc<Mutex<Vec<Duration>>>,
}

impl Subject {
    fn new(beta: f64, origin: &Origin) -> Result<Self> {
        let builder = Cache::builder("pages").memory(Memory::entries(CAPACITY)).ttl(LIFETIME);
        let cache = builder.beta(beta).build()?;
        Ok(Self { cache, origin: origin.clone(), queries: Arc::default() })
    }

    async fn ask(self, page: i64) -> Result<()> {
        let Self { cache, origin, queries } = self;
        let query = move || async move {
            let begun = Instant::now();
            let listing = origin.list(page).await;
            queries.lock().push(begun.elapsed());
            listing
        };
        let listing = cache.get_or_load(format!("page:{page}"), query).await?;
        ensure!(!listing.is_empty(), "page {page} has no articles");
        Ok(())
    }

    /// From here on queries count, and calls beside those that are counted already.
    fn starts_over(&self) -> Stats {
        self.queries.lock().clear();
        self.cache.stats()
    }

    fn since(&self, before: Stats) -> Tally {
        let now = self.cache.stats();
        let misses = now.misses - before.misses;
        let queries = Timings::new(self.queries.lock().drain(..));
        Tally {
            hits: now.hits - before.hits,
            misses,
            foreground: misses - (now.coalesced - before.coalesced),
            loads: now.loads - before.loads,
            queries,
        }
    }
}

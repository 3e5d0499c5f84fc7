//! A cache and its origin, and what became of its requests.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use forebay::{Cache, Memory, Stats};
use forebay_testkit::client::Timings;
use forebay_testkit::traffic::{LIFETIME, LOAD};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::database::{Database, Line, Listing};
use super::policy::{Method, Policy};

/// Far more pages than are asked for.
const CAPACITY: u64 = 1_000;

/// Shortest call that counts as waiting in the values over time; the counts are exact.
const WAITED: Duration = LOAD.checked_div(4).expect("4 is not 0");

/// Span of one value over time, in seconds.
const STEP: f64 = 0.5;

/// Origin of the caches.
#[derive(Clone)]
pub(super) enum Origin {
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

/// Results of the requests to one cache.
pub(super) struct Tally {
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Misses that began the load for which they waited.
    pub(super) foreground: u64,
    pub(super) loads: u64,
    pub(super) queries: Timings,
    /// Calls that waited in each [`STEP`].
    pub(super) waits: Vec<(f64, f64)>,
}

impl Tally {
    pub(super) fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// A cache and its origin. Clones share them.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    cache: Kind,
    origin: Origin,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Clone)]
enum Kind {
    Forebay(Cache<Listing>),
    Policy(Arc<Policy>),
}

struct Seen {
    since: Instant,
    before: Option<Stats>,
    queries: Vec<Duration>,
    /// Times at which calls began that waited.
    waited: Vec<Duration>,
}

impl Subject {
    pub(super) fn forebay(name: &'static str, beta: f64, origin: &Origin) -> Result<Self> {
        let builder = Cache::builder("pages").memory(Memory::entries(CAPACITY)).ttl(LIFETIME);
        Ok(Self::new(name, Kind::Forebay(builder.beta(beta).build()?), origin))
    }

    pub(super) fn policy(name: &'static str, method: Method, origin: &Origin) -> Self {
        Self::new(name, Kind::Policy(Arc::new(Policy::new(method))), origin)
    }

    fn new(name: &'static str, cache: Kind, origin: &Origin) -> Self {
        let (queries, waited) = (Vec::new(), Vec::new());
        let seen = Seen { since: Instant::now(), before: None, queries, waited };
        Self { name, cache, origin: origin.clone(), seen: Arc::new(Mutex::new(seen)) }
    }

    pub(super) async fn ask(self, page: i64) -> Result<()> {
        let begun = Instant::now();
        let (origin, seen) = (self.origin, self.seen.clone());
        let query = move || async move {
            let begun = Instant::now();
            let listing = origin.list(page).await;
            seen.lock().queries.push(begun.elapsed());
            listing
        };
        match self.cache {
            Kind::Forebay(cache) => {
                let listing = cache.get_or_load(format!("page:{page}"), query).await?;
                ensure!(!listing.is_empty(), "page {page} has no articles");
            }
            Kind::Policy(policy) => policy.ask(page, query).await?,
        }
        if begun.elapsed() >= WAITED {
            let mut seen = self.seen.lock();
            let at = begun.saturating_duration_since(seen.since);
            seen.waited.push(at);
        }
        Ok(())
    }

    /// From here on queries count, and calls beside those that are counted already.
    pub(super) fn start_over(&self) {
        let mut seen = self.seen.lock();
        seen.since = Instant::now();
        seen.queries.clear();
        seen.waited.clear();
        match &self.cache {
            Kind::Forebay(cache) => seen.before = Some(cache.stats()),
            Kind::Policy(policy) => policy.start_over(),
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let mut seen = self.seen.lock();
        let queries = Timings::new(seen.queries.drain(..));
        let mut waits: Vec<(f64, f64)> = Vec::new();
        for at in &seen.waited {
            let step = (at.as_secs_f64() / STEP) as usize;
            while waits.len() <= step {
                waits.push((waits.len() as f64 * STEP, 0.0));
            }
            waits[step].1 += 1.0;
        }
        let [hits, misses, foreground, loads] = match (&self.cache, &seen.before) {
            (Kind::Policy(policy), _) => policy.counts(),
            (Kind::Forebay(cache), None) => {
                let now = cache.stats();
                [now.hits, now.misses, now.misses - now.coalesced, now.loads]
            }
            (Kind::Forebay(cache), Some(before)) => {
                let now = cache.stats();
                let misses = now.misses - before.misses;
                let foreground = misses - (now.coalesced - before.coalesced);
                [now.hits - before.hits, misses, foreground, now.loads - before.loads]
            }
        };
        Tally { hits, misses, foreground, loads, queries, waits }
    }
}

//! Two caches, asked the same things at the same moments, and what became of each request.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Key, KeyBuf, Lifetime, Meta};
use forebay_engine::{
    Audience, Clock, Coalesce, Content, Credentials, Engine, Entry, Head, HeadCodec, Limits, Load,
    LoadError, Loaded, Lookup, LookupResult, Outcome, Select, Source,
};
use forebay_testkit::traffic::{Arrival, LIFETIME, LOAD, PAGES, Traffic};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Warm-up that is not counted: the first lifetime of every popular key.
pub(crate) const WARM_UP: Duration = Duration::from_secs(6);

/// Far more than all that is loaded here.
const MEMORY: u64 = 64 << 20;

/// Marker of the start of the load that produced an answer.
const BEGUN_EARLY: &[u8] = b"begun while the one before was fresh";
const BEGUN_LATE: &[u8] = b"begun when there was nothing fresh";

/// Results of all counted requests.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// With early refresh.
    pub(crate) early: Tally,
    /// Without it.
    pub(crate) never: Tally,
    /// Maximum delay of a request against its drawn time. The loop is open only if that is
    /// little.
    pub(crate) late_max: Duration,
}

/// Asks both caches for `measured`, after a warm-up.
pub(crate) async fn run(
    seed: u64,
    measured: Duration,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Tallies> {
    let (early, never) = (Cache::new(1.0, &clock), Cache::new(0.0, &clock));
    let mut outcome =
        Tallies { early: Tally::default(), never: Tally::default(), late_max: Duration::ZERO };
    let mut asking = JoinSet::new();
    let start = Instant::now();
    let mut loads_before = None;
    for arrival in Traffic::from_seed(seed).take_while(|next| next.at < WARM_UP + measured) {
        sleep_until(start + arrival.at).await;
        let counts = arrival.at >= WARM_UP;
        if counts {
            loads_before.get_or_insert_with(|| (early.origin.loads(), never.origin.loads()));
            outcome.late_max = outcome.late_max.max(start.elapsed().saturating_sub(arrival.at));
        }
        for (is_early, cache) in [(true, &early), (false, &never)] {
            let answer = cache.clone().answer(arrival);
            asking.spawn(async move { (is_early, counts, answer.await) });
        }
        while let Some(answered) = asking.try_join_next() {
            outcome.add(answered?);
        }
    }
    while let Some(answered) = asking.join_next().await {
        outcome.add(answered?);
    }
    let (early_before, never_before) = loads_before.unwrap_or_default();
    outcome.early.note_loads(&early.origin, early_before);
    outcome.never.note_loads(&never.origin, never_before);
    Ok(outcome)
}

impl Tallies {
    fn add(&mut self, finished: (bool, bool, Answer)) {
        match finished {
            (true, true, answer) => self.early.add(&answer),
            (false, true, answer) => self.never.add(&answer),
            (_, false, _) => {}
        }
    }

    /// The foreground loads with early refresh, as a part of those without.
    pub(crate) fn ratio(&self) -> f64 {
        self.early.foreground() as f64 / self.never.foreground().max(1) as f64
    }
}

/// Results of the requests to one cache.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// Answered with what was fresh.
    pub(crate) fresh: u64,
    /// Those of them whose answer is refreshed behind.
    pub(crate) refreshing: u64,
    /// Answered with what was fresh, yet not at once. There must be none.
    pub(crate) fresh_that_waited: u64,
    /// Requests whose load it was.
    pub(crate) led: u64,
    /// Requests that waited for another's load which was begun when nothing fresh was there.
    pub(crate) followed: u64,
    /// Requests that waited for a refresh which was begun in time and not done in time.
    pub(crate) joined: u64,
    pub(crate) joined_wait: Duration,
    pub(crate) joined_wait_max: Duration,
    /// Number of other results: errors and stale values. It must be zero.
    pub(crate) other: u64,
    /// The longest that an answer of what was fresh took.
    pub(crate) fresh_max: Duration,
    /// Loads in all, those behind an answer included.
    pub(crate) loads: u64,
    /// Maximum number of concurrent loads of one key.
    pub(crate) loads_of_one_key: u64,
    /// Load cost as measured by the cache: minimum and maximum.
    pub(crate) learnt: Option<(Duration, Duration)>,
}

impl Tally {
    /// Returns the share of requests answered with a fresh entry.
    pub(crate) fn hit_ratio(&self) -> f64 {
        self.fresh as f64 / self.requests.max(1) as f64
    }

    /// Requests that had to load, or to wait for a load.
    pub(crate) fn foreground(&self) -> u64 {
        self.led + self.followed + self.joined
    }

    fn add(&mut self, answer: &Answer) {
        self.requests += 1;
        let Ok(obtained) = &answer.obtained else {
            self.other += 1;
            return;
        };
        let cost = obtained.entry.meta.load_cost();
        let (least, most) = self.learnt.unwrap_or((cost, cost));
        self.learnt = Some((least.min(cost), most.max(cost)));
        match obtained.source {
            Source::Hit | Source::Refreshing if obtained_is_fresh(obtained) => {
                self.add_fresh(answer);
            }
            Source::Led { .. } => self.led += 1,
            Source::Followed if begun_early(obtained) => {
                self.joined += 1;
                self.joined_wait += answer.took;
                self.joined_wait_max = self.joined_wait_max.max(answer.took);
            }
            Source::Followed => self.followed += 1,
            _ => self.other += 1,
        }
    }

    fn add_fresh(&mut self, answer: &Answer) {
        self.fresh += 1;
        self.fresh_that_waited += u64::from(!answer.at_once);
        self.fresh_max = self.fresh_max.max(answer.took);
        let refreshing = matches!(&answer.obtained, Ok(o) if o.source == Source::Refreshing);
        self.refreshing += u64::from(refreshing);
    }

    fn note_loads(&mut self, origin: &Origin, before: u64) {
        self.loads = origin.loads() - before;
        self.loads_of_one_key = origin.most_of_one.load(Ordering::Relaxed);
    }
}

/// Neither cache is allowed anything stale: a reason other than an early refresh would say so.
fn obtained_is_fresh(obtained: &Outcome) -> bool {
    matches!(obtained.why, None | Some(forebay_core::Why::EarlyRefresh))
}

fn begun_early(obtained: &Outcome) -> bool {
    obtained.entry.head.slice().is_some_and(|bytes| bytes == BEGUN_EARLY)
}

/// One answer, and how it came.
struct Answer {
    obtained: Result<Outcome, LoadError>,
    /// Set if the first request for it was answered without a wait.
    at_once: bool,
    took: Duration,
}

/// An engine and what it is asked with. Clones are the same cache.
#[derive(Clone)]
struct Cache {
    engine: Arc<Engine>,
    demand: Demand,
    origin: Arc<Origin>,
}

impl Cache {
    fn new(beta: f64, clock: &Arc<dyn Clock>) -> Self {
        let engine = Engine::new(Limits::of(MEMORY), clock.clone(), Arc::new(()));
        let origin = Origin {
            clock: clock.clone(),
            loads: AtomicU64::new(0),
            under_way: std::array::from_fn(|_| AtomicU64::new(0)),
            most_of_one: AtomicU64::new(0),
        };
        Self { engine, demand: Demand { beta, ..Demand::default() }, origin: Arc::new(origin) }
    }

    async fn answer(self, arrival: Arrival) -> Answer {
        let key = key(arrival.page);
        let loader = Loader { origin: self.origin.clone(), key: arrival.page };
        let ask = Lookup {
            key: key.borrowed(),
            demand: &self.demand,
            select: &(),
            credentials: Credentials::Anonymous,
            coalesce: Coalesce::Cluster,
        };
        let began = Instant::now();
        let mut obtaining = pin!(async {
            match self.engine.lookup(&ask) {
                LookupResult::Hit(outcome) => Ok(outcome),
                LookupResult::Miss(miss) => miss.load(&self.engine, &ask, loader).await,
            }
        });
        let first = poll_fn(|cx| Poll::Ready(obtaining.as_mut().poll(cx))).await;
        let (obtained, at_once) = match first {
            Poll::Ready(obtained) => (obtained, true),
            Poll::Pending => (obtaining.await, false),
        };
        Answer { obtained, at_once, took: began.elapsed() }
    }
}

fn key(number: usize) -> Key {
    KeyBuf::new("early").part(&number.to_be_bytes()).borrowed().to_key()
}

/// Origin behind a cache, with a delay and counters.
struct Origin {
    clock: Arc<dyn Clock>,
    loads: AtomicU64,
    /// Loads in progress of each key.
    under_way: [AtomicU64; PAGES],
    most_of_one: AtomicU64,
}

impl Origin {
    fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }
}

/// One request's way to the origin.
#[derive(Clone)]
struct Loader {
    origin: Arc<Origin>,
    key: usize,
}

impl Select for Loader {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl HeadCodec for Loader {}

impl Load for Loader {
    async fn load(
        &self,
        prior: Option<Arc<Entry>>,
        _company: Audience,
    ) -> Result<Loaded, LoadError> {
        let counts = &self.origin;
        counts.loads.fetch_add(1, Ordering::Relaxed);
        let together = counts.under_way[self.key].fetch_add(1, Ordering::Relaxed) + 1;
        counts.most_of_one.fetch_max(together, Ordering::Relaxed);
        let departed = counts.clock.now();
        let early = prior.is_some_and(|prior| prior.meta.is_fresh(departed));
        sleep(LOAD).await;
        counts.under_way[self.key].fetch_sub(1, Ordering::Relaxed);
        let meta = Meta::new(counts.clock.now(), Lifetime::fresh(LIFETIME));
        let head = Head::new(Bytes::from_static(if early { BEGUN_EARLY } else { BEGUN_LATE }));
        Ok(Loaded::Entry { meta, head, content: Content::Whole(Bytes::from_static(b"answer")) })
    }
}

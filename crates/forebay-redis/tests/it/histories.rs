//! Random histories over a real server: many callers of four engines, while links break and freeze,
//! engines restart, and the server is emptied or killed. A checker verifies all results.
//!
//! `FOREBAY_HISTORY_OPERATIONS` and `FOREBAY_HISTORY_CUTS` set the length, `FOREBAY_HISTORY_CALLERS`
//! the number of concurrent callers, and `FOREBAY_HISTORY_SEED` the seed of the random choices. The
//! order of threads and connections is not fixed, so a seed does not reproduce a history.

mod fleet;
mod many;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Purge, Reach, WhenBlind};
use forebay_engine::{Head, NewEntry, Propagation, Source};
use forebay_testkit::faults::{Faults, Flow};
use forebay_testkit::history::{Promise, Read, Truth};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::fixture::{key, until_later};
use fleet::{Fleet, Origin, SITE, tagged};

/// Seed of the random choices of a test.
const SEED: u64 = 11;

/// Operations per test.
const OPERATIONS: u64 = 20_000;

/// Link failures per test.
const CUTS: u64 = 100;

/// Concurrent callers, which mostly wait for failing links.
const CALLERS: u64 = 16;

const INSTANCES: u64 = 4;

/// One in this many failures of the first link is a long one, if there are any.
const LONG_EVERY: u64 = 100;

const KEYS: usize = 40;
const TAGS: usize = 4;

/// Maximum age of unnoticed purges: silence limit plus detection time.
const BLIND: Duration = Duration::from_millis(1_300);

/// Maximum time for which unverified entries are served, if allowed.
const CAP: Duration = Duration::from_secs(30);

/// Time before a failed read for which other reads are printed.
const AROUND: Duration = Duration::from_secs(2);

/// Maximum duration of an operation.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polling interval of conditions.
const LOOK_GAP: Duration = Duration::from_millis(5);

/// Random number generator: xorshift.
struct Chance(AtomicU64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        (x >> 11) % bound
    }

    fn one_of(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }
}

/// Maximum scheduling delay of the machine, which is added to the bounds.
#[derive(Clone, Default)]
struct Lateness(Arc<AtomicU64>);

impl Lateness {
    fn watched() -> Self {
        let lateness = Self::default();
        let seen = lateness.clone();
        tokio::spawn(async move {
            loop {
                let began = Instant::now();
                until_later(LOOK_GAP).await;
                let late = began.elapsed().saturating_sub(LOOK_GAP).as_millis();
                seen.0.fetch_max(u64::try_from(late).unwrap(), Ordering::Relaxed);
            }
        });
        lateness
    }

    fn most(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

struct History {
    fleet: Fleet,
    chance: Chance,
    began: Instant,
    bound: Duration,
    truths: Arc<Vec<Truth>>,
    /// Reads by process and key.
    reads: Mutex<HashMap<(u64, usize), Vec<Read>>>,
    /// End of the latest put by process and key; `None` while it runs.
    puts: Mutex<HashMap<(u64, usize), Option<Duration>>>,
    /// By key.
    written: Mutex<HashMap<usize, Vec<Written>>>,
    lateness: Lateness,
    /// Reads that violated the bound.
    behind: Mutex<Vec<String>>,
    is_over: AtomicBool,
    counts: Counts,
}

/// Change of a key, for the report of a read that returned an older version than an earlier one.
#[derive(Debug)]
#[expect(dead_code, reason = "they are printed")]
struct Written {
    version: u64,
    changed: Duration,
    purged: Duration,
    is_told: bool,
    life: u64,
    by: String,
}

/// Load of the callers.
#[derive(Clone, Copy)]
struct Pace {
    operations: u64,
    callers: u64,
    /// Percentage of writes.
    writes: u64,
    /// Maximum pause after an operation, in milliseconds.
    rest: u64,
}

#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    untold: AtomicU64,
    troubles: [AtomicU64; 5],
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Faults of a link that refuses connections.
fn refusing() -> Faults {
    Faults { refuses: true, ..Faults::default() }
}

/// Name of the source of an answer in the report of a read that went back.
const fn how(source: Source) -> &'static str {
    match source {
        Source::Hit | Source::Refreshing => "hit",
        Source::Tier(_) => "shared tier",
        Source::Instance => "load of another instance",
        Source::Led { stored: true, .. } => "load",
        Source::Led { stored: false, .. } => "load that is not stored",
        Source::Followed => "load of another caller",
        Source::Passed => "load for one caller",
        Source::Fallback => "fallback",
    }
}

fn name(which: usize) -> String {
    format!("/{}/{which}", which % 3)
}

fn tag(which: usize) -> String {
    format!("tag-{}", which % TAGS)
}

impl History {
    async fn new(when_blind: WhenBlind, bound: Duration, keys: usize) -> Arc<Self> {
        let truths: Arc<Vec<Truth>> = Arc::new((0..keys).map(|_| Truth::default()).collect());
        Arc::new(Self {
            fleet: Fleet::new(INSTANCES, when_blind).await,
            chance: Chance::new(number("FOREBAY_HISTORY_SEED", SEED)),
            began: Instant::now(),
            bound,
            truths,
            reads: Mutex::default(),
            puts: Mutex::default(),
            written: Mutex::default(),
            lateness: Lateness::watched(),
            behind: Mutex::default(),
            is_over: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    async fn read(&self, which: usize) {
        let instance = self.fleet.some(&self.chance);
        let origin = Origin::new(&self.truths, which, tag(which), self.chance.below(4));
        let began = self.now();
        let obtained = timeout(PATIENCE, instance.obtain(&key(&name(which)), &origin)).await;
        let (source, version) = obtained.expect("an answer in time");
        add(&self.counts.reads);
        // Evaluated after the read, since a late promise applies to it.
        let bound = self.bound + self.lateness.most();
        let floor = self.truths[which].floor(began, bound);
        if version < floor {
            self.behind.lock().push(format!("{version} of {which} for {floor} at {began:?}"));
        }
        let place = (instance.life, which);
        let put = self.puts.lock().get(&place).copied();
        let is_put = put.is_some_and(|ended| ended.is_none_or(|ended| ended >= began));
        let binds = source != Source::Passed && !is_put;
        let read = Read { began, ended: self.now(), version, binds, via: how(source) };
        self.reads.lock().entry(place).or_default().push(read);
    }

    fn some_purge(&self, which: usize) -> Purge {
        match self.chance.below(40) {
            0..=19 => Purge::Key(key(&name(which))),
            20..=35 => Purge::Tag(tag(which).into()),
            36..=37 => Purge::Prefix { site: SITE.into(), prefix: "/1/".into() },
            38 => Purge::Site(SITE.into()),
            _ => Purge::All,
        }
    }

    async fn write(&self, which: usize) {
        let what = self.some_purge(which);
        let is_reached = |which: &usize| match &what {
            Purge::Tag(purged) => **purged == *tag(*which),
            what => what.is_about(key(&name(*which)).borrowed()),
        };
        let reached: Vec<_> = (0..self.truths.len()).filter(is_reached).collect();
        let mut turns = Vec::new();
        for which in &reached {
            turns.push(self.truths[*which].turn.lock().await);
        }
        // The instance may have been dropped while this write waited for its turn.
        let instance = self.fleet.some(&self.chance);
        let next = |which: &usize| (*which, self.truths[*which].change());
        let versions: Vec<_> = reached.iter().map(next).collect();
        let changed = self.now();
        add(&self.counts.writes);
        let puts = matches!(&what, Purge::Key(_)) && self.chance.below(3) == 0;
        let is_told = if puts {
            self.put(&instance, versions[0].0, versions[0].1).await
        } else {
            let purge = instance.engine.purge(&what, Reach::Hard);
            let purged = timeout(PATIENCE, purge).await.expect("purged in time");
            matches!(purged.propagation, Propagation::Published(_))
        };
        let by = if puts { "put".to_owned() } else { format!("{what:?}") };
        for (which, version) in versions {
            let (purged, life, by) = (self.now(), instance.life, by.clone());
            let written = Written { version, changed, purged, is_told, life, by };
            self.written.lock().entry(which).or_default().push(written);
            if is_told {
                self.truths[which].promise(Promise { version, at: self.now(), id: 0 });
            } else {
                add(&self.counts.untold);
                self.truths[which].no_promise(version);
            }
        }
    }

    /// Returns whether the purge was published.
    async fn put(&self, instance: &fleet::Instance, which: usize, version: u64) -> bool {
        let (meta, body) = (tagged(&tag(which)), version.to_string().into());
        let value = NewEntry { meta, head: Head::default(), body };
        let (place, key) = ((instance.life, which), key(&name(which)));
        self.puts.lock().insert(place, None);
        let put = timeout(PATIENCE, instance.engine.put(key.borrowed(), value, ())).await;
        self.puts.lock().insert(place, Some(self.now()));
        put.expect("put in time") && instance.is_heard()
    }

    /// Runs the callers until all operations are done or the history is over.
    async fn operate(self: &Arc<Self>, pace: Pace) {
        let caller = |_| {
            let history = self.clone();
            tokio::spawn(async move {
                let mut left = pace.operations / pace.callers;
                while left > 0 && !history.is_over.load(Ordering::SeqCst) {
                    left -= 1;
                    let which = history.chance.one_of(history.truths.len());
                    if history.chance.below(100) < pace.writes {
                        history.write(which).await;
                    } else {
                        history.read(which).await;
                    }
                    if pace.rest > 0 {
                        until_later(Duration::from_millis(history.chance.below(pace.rest))).await;
                    }
                }
            })
        };
        for ended in join_all((0..pace.callers).map(caller)).await {
            ended.expect("no caller panics");
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Breaks each link at random times.
    async fn cut_links(self: Arc<Self>, cuts: u64, longest: Option<Duration>) {
        let cut_one = |place| {
            let history = self.clone();
            tokio::spawn(async move {
                for number in 0..cuts / INSTANCES {
                    until_later(Duration::from_millis(history.chance.below(150))).await;
                    let usual = history.chance.below(history.chance.below(3_000) + 1);
                    let usual = Duration::from_millis(usual);
                    let long = longest.filter(|_| place == 0 && number % LONG_EVERY == 0);
                    let long = long.unwrap_or(usual);
                    let kind = history.chance.one_of(3);
                    match kind {
                        0 => history.fleet.troubled(place, Faults::flow(Flow::Frozen), long).await,
                        1 => history.fleet.cut(place, Faults::flow(Flow::BlackHole), long).await,
                        _ => history.fleet.cut(place, refusing(), long).await,
                    }
                    add(&history.counts.troubles[usize::from(kind > 0)]);
                }
            })
        };
        for ended in join_all((0..4).map(cut_one)).await {
            ended.expect("who cuts does not panic");
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Injects faults while the callers run.
    async fn troubles(self: Arc<Self>) {
        while !self.is_over.load(Ordering::SeqCst) {
            until_later(Duration::from_millis(self.chance.below(200))).await;
            let kind = self.chance.one_of(self.counts.troubles.len());
            let place = self.chance.one_of(4);
            let long = Duration::from_millis(self.chance.below(2_500));
            match kind {
                0 => self.fleet.troubled(place, Faults::flow(Flow::Frozen), long).await,
                1 => self.fleet.cut(place, refusing(), long).await,
                2 => self.fleet.begin_anew(place).await,
                3 => self.fleet.flush().await,
                _ => self.fleet.restart().await,
            }
            add(&self.counts.troubles[kind]);
        }
    }

    /// Asserts that no read violated the bound or went back in time, and that operations took
    /// place.
    fn check(&self) {
        let Counts { reads, writes, untold, troubles } = &self.counts;
        let [reads, writes, untold] =
            [reads, writes, untold].map(|count| count.load(Ordering::Relaxed));
        let behind = self.behind.lock();
        let late = self.lateness.most();
        println!(
            "{reads} reads and {writes} writes, {untold} of them untold; {troubles:?} frozen, cut, \
             begun anew, flushed, restarted; late by {late:?}; behind: {}",
            behind.len()
        );
        assert!(behind.is_empty(), "{behind:#?}");
        for ((life, which), reads) in &*self.reads.lock() {
            let back = self.truths[*which].went_back(reads, late);
            let Some((_, read)) = back else { continue };
            let is_around = |it: &&Read| it.ended + AROUND > read.began && it.began <= read.began;
            let around: Vec<_> = reads.iter().filter(is_around).collect();
            let written = self.written.lock();
            let is_near = |it: &&Written| it.version.abs_diff(read.version) < 3;
            let written: Vec<_> = written[which].iter().filter(is_near).collect();
            panic!("life {life}, {which}: {back:?}, after {around:#?}, as written by {written:#?}");
        }
        assert!(reads > writes && writes > 0);
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |it| it.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_purged_entry_is_served_beyond_the_bound() {
    let history = History::new(WhenBlind::Strict, BLIND, KEYS).await;
    let troubles = tokio::spawn(history.clone().troubles());
    let operations = number("FOREBAY_HISTORY_OPERATIONS", OPERATIONS);
    let callers = number("FOREBAY_HISTORY_CALLERS", CALLERS);
    history.operate(Pace { operations, callers, writes: 4, rest: 0 }).await;
    troubles.await.unwrap();
    history.check();
}

/// Purges continue while links break. In strict mode the bound is the silence limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_engine_with_failing_links_stays_within_the_bound() {
    cut(WhenBlind::Strict, BLIND, None).await;
}

/// In available mode the bound is the time limit for unverified entries, which one failure exceeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn available_engine_with_failing_links_stays_within_the_cap() {
    cut(WhenBlind::Available, BLIND + CAP, Some(CAP + Duration::from_secs(5))).await;
}

async fn cut(when_blind: WhenBlind, bound: Duration, longest: Option<Duration>) {
    let history = History::new(when_blind, bound, KEYS).await;
    let cuts = number("FOREBAY_HISTORY_CUTS", CUTS);
    let cutting = tokio::spawn(history.clone().cut_links(cuts, longest));
    history.operate(Pace { operations: u64::MAX, callers: CALLERS, writes: 2, rest: 20 }).await;
    cutting.await.unwrap();
    history.check();
}

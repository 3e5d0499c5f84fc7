//! An engine over a clock that the test moves, and helpers for requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{
    Demand, Key, KeyBuf, Lifetime, Meta, Purge, Reach, TagSet, Timestamp, Vary, WallTime,
};
use forebay_engine::{
    Clock, Coalesce, Credentials, Engine, Event, Limits, LoadError, Lookup, LookupResult, Miss,
    Observer, Outcome, Tier,
};
use forebay_testkit::clock::SteppedClock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::crowd::Obtaining;
use crate::faulty_tier::FaultyTier;
use crate::origin::{LANGUAGE, Origin};

/// The namespace of every key in these tests.
pub(crate) const SITE: &str = "site";

/// Size of memory where eviction does not matter.
pub(crate) const MEMORY: u64 = 64 << 20;

/// Maximum number of times that a test lets other tasks run before it fails.
const TURNS_MAX: usize = 1_000_000;

/// Clock that only a test moves.
#[derive(Default)]
pub(crate) struct Steps(SteppedClock);

impl Steps {
    pub(crate) fn step(&self, by: Duration) {
        self.0.step(by);
    }
}

impl Clock for Steps {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now_ms())
    }

    fn wall(&self) -> WallTime {
        WallTime::from_secs(self.0.unix_seconds().unsigned_abs())
    }

    fn exact(&self) -> Duration {
        Duration::from_millis(self.0.now_ms().unsigned_abs())
    }
}

/// Numbers of the engine's events.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) broken: AtomicUsize,
    pub(crate) outgrown: AtomicUsize,
    pub(crate) refreshes_skipped: AtomicUsize,
    pub(crate) tier_failures: AtomicUsize,
    pub(crate) tier_skips: AtomicUsize,
    pub(crate) waits: AtomicUsize,
    pub(crate) refusals: AtomicUsize,
    pub(crate) crowded_out: AtomicUsize,
    pub(crate) bodies_dropped: AtomicUsize,
    pub(crate) held_back: AtomicUsize,
    pub(crate) soft_timeouts: AtomicUsize,
    pub(crate) purged_found: AtomicUsize,
}

impl Observer for Counts {
    fn observe(&self, event: Event<'_>) {
        let counter = match event {
            Event::BodyBroken(_) => &self.broken,
            Event::BodyOutgrown(_) => &self.outgrown,
            Event::RefreshSkipped(_) => &self.refreshes_skipped,
            Event::TierFailed { .. } => &self.tier_failures,
            Event::TierSkipped(_) => &self.tier_skips,
            Event::LoadWaits(_) => &self.waits,
            Event::LoadRefused(_) => &self.refusals,
            Event::BodyNotAdmitted(_) => &self.crowded_out,
            Event::BodiesDropped(count) => {
                self.bodies_dropped.fetch_add(count, Ordering::SeqCst);
                return;
            }
            Event::BackingOff(_) => &self.held_back,
            Event::SoftTimeout(_) => &self.soft_timeouts,
            Event::PurgedEntryFound(_) => &self.purged_found,
            _ => return,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// An engine, its clock and its counts. Clones share them.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<Steps>,
    pub(crate) counts: Arc<Counts>,
}

/// Request of a test: a key, and the requirements of the caller.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) key: Key,
    pub(crate) demand: Demand,
    pub(crate) credentials: Credentials,
    pub(crate) coalesce: Coalesce,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::within(Limits::of(MEMORY))
    }

    pub(crate) fn within(limits: Limits) -> Self {
        Self::over(limits, &Arc::default(), &[])
    }

    /// Creates an engine whose memory is empty, over tiers that may have entries.
    pub(crate) fn over(limits: Limits, clock: &Arc<Steps>, shelves: &[FaultyTier]) -> Self {
        let clock = clock.clone();
        let counts = Arc::new(Counts::default());
        let tiers = shelves.iter().cloned().map(|tier| Arc::new(tier) as Arc<dyn Tier>);
        let observer = counts.clone();
        let engine = Engine::with_tiers(limits, clock.clone(), observer, tiers.collect());
        Self { engine, clock, counts }
    }

    /// Returns metadata of an entry that is created now.
    pub(crate) fn meta(&self, lifetime: Lifetime) -> Meta {
        Meta::new(self.clock.now(), lifetime)
    }

    /// Returns metadata of an entry that is created now and fresh for this number of seconds.
    pub(crate) fn fresh(&self, seconds: u64) -> Meta {
        self.meta(Lifetime::fresh(secs(seconds)))
    }

    pub(crate) fn step(&self, seconds: u64) {
        self.clock.step(secs(seconds));
    }

    pub(crate) fn obtain(
        &self,
        question: impl Into<Question>,
        origin: &Origin,
    ) -> BoxFuture<'static, Obtaining> {
        let (engine, question, origin) = (self.engine.clone(), question.into(), origin.clone());
        async move { answer_to(&engine, &question.ask(&origin), origin.clone()).await }.boxed()
    }

    /// Carries out the lookup of a request, which must be a miss, for tests that do something
    /// before the load.
    pub(crate) fn look(&self, question: impl Into<Question>, origin: &Origin) -> Miss {
        match self.engine.lookup(&question.into().ask(origin)) {
            LookupResult::Miss(wanting) => wanting,
            LookupResult::Hit(obtained) => panic!("memory answers: {obtained:?}"),
        }
    }

    /// Loads after a lookup that was a miss.
    pub(crate) fn fetch(
        &self,
        question: impl Into<Question>,
        wanting: Miss,
        origin: &Origin,
    ) -> BoxFuture<'static, Obtaining> {
        let (engine, question, origin) = (self.engine.clone(), question.into(), origin.clone());
        async move { wanting.load(&engine, &question.ask(&origin), origin.clone()).await }.boxed()
    }

    /// Returns the body of the entry that answers without a load; `None` if there is none.
    pub(crate) async fn answer_without_load(&self, name: &str, origin: &Origin) -> Option<Bytes> {
        let question =
            Question::of(name, Demand { only_if_cached: true, beta: 0.0, ..Demand::default() });
        match self.obtain(question, origin).await {
            Ok(obtained) => Some(bytes(&obtained)),
            Err(LoadError::NotCached) => None,
            Err(other) => panic!("{other}"),
        }
    }

    /// Lets other tasks run until `reached` holds.
    pub(crate) async fn until(&self, reached: impl Fn(&Self) -> bool) {
        for _ in 0..TURNS_MAX {
            if reached(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it does not come");
    }

    pub(crate) async fn until_nothing_is_under_way(&self) {
        self.until(|world| world.engine.traffic().flights == 0).await;
    }

    pub(crate) async fn purge(&self, what: &Purge, reach: Reach) -> bool {
        self.engine.purge(what, reach).await.found
    }
}

impl Question {
    pub(crate) fn of(name: &str, demand: Demand) -> Self {
        Self {
            key: key(name),
            demand,
            credentials: Credentials::Anonymous,
            coalesce: Coalesce::Cluster,
        }
    }

    /// Adds credentials to the request.
    pub(crate) fn with_credentials(self) -> Self {
        Self { credentials: Credentials::Presented, ..self }
    }

    /// Makes the request share no load.
    pub(crate) fn alone(self) -> Self {
        Self { coalesce: Coalesce::Never, ..self }
    }

    pub(crate) fn ask<'a>(&'a self, origin: &'a Origin) -> Lookup<'a> {
        Lookup {
            key: self.key.borrowed(),
            demand: &self.demand,
            select: origin,
            credentials: self.credentials,
            coalesce: self.coalesce,
        }
    }
}

/// Any fresh answer under this name will do.
impl From<&str> for Question {
    fn from(name: &str) -> Self {
        Self::of(name, Demand::default())
    }
}

pub(crate) fn key(name: &str) -> Key {
    KeyBuf::new(SITE).part(name.as_bytes()).borrowed().to_key()
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the complete body of an answer.
pub(crate) fn bytes(obtained: &Outcome) -> Bytes {
    obtained.entry.body.bytes().expect("a whole body").clone()
}

/// Makes an answer vary by language.
pub(crate) fn varying(mut meta: Meta) -> Meta {
    meta.set_vary(Vary::new([LANGUAGE]));
    meta
}

pub(crate) fn tagged(mut meta: Meta, tag: &str) -> Meta {
    meta.set_tags(TagSet::new([tag]));
    meta
}

/// Looks an entry up, and loads it if memory does not answer.
pub(crate) async fn answer_to(
    engine: &Arc<Engine>,
    lookup: &Lookup<'_>,
    load: Origin,
) -> Result<Outcome, LoadError> {
    match engine.lookup(lookup) {
        LookupResult::Hit(outcome) => Ok(outcome),
        LookupResult::Miss(miss) => miss.load(engine, lookup, load).await,
    }
}

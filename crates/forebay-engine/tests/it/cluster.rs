//! Several engines over one model of the server that they share.

mod counts;
mod disk;
mod history;
mod link;
mod look;
mod outcomes;
mod overlap;
mod restart;
mod server;
mod silence;

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Purge, Reach, Timestamp, WallTime, WhenBlind};
use forebay_engine::{
    BusStatus, Clock, Cluster, Engine, Event, LeaseEvent, Limits, LoadError, Observer, Outcome,
    Purged, Tier,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::origin::Origin;
use crate::world::{MEMORY, Question, key};
use disk::{Disk, OfOneLife};
use link::Link;
use server::Server;

/// Clock that reads the time of the runtime, which tests advance.
pub(crate) struct Passing(Instant);

impl Passing {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for Passing {
    fn now(&self) -> Timestamp {
        // Not at the start of the clock: an entry may be older than the process.
        Timestamp::from_millis(1_000_000).plus(self.0.elapsed())
    }

    fn wall(&self) -> WallTime {
        WallTime::from_secs(1_000_000 + self.0.elapsed().as_secs())
    }

    fn exact(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Events that an engine reported about other instances.
#[derive(Default)]
pub(crate) struct Seen {
    leases: Mutex<Vec<LeaseEvent>>,
    suspects: Mutex<Vec<bool>>,
    tier_failures: Mutex<usize>,
}

impl Observer for Seen {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Lease { event: came, .. } => self.leases.lock().push(came),
            Event::UnverifiedChecked(_, found) => self.suspects.lock().push(found),
            Event::TierFailed { .. } => *self.tier_failures.lock() += 1,
            _ => {}
        }
    }
}

impl Seen {
    pub(crate) fn came(&self, what: LeaseEvent) -> usize {
        self.leases.lock().iter().filter(|came| **came == what).count()
    }
}

/// One instance.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) engine: Arc<Engine>,
    pub(crate) link: Arc<Link>,
    pub(crate) seen: Arc<Seen>,
}

/// Settings of the instances of a test.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    pub(crate) when_blind: WhenBlind,
    pub(crate) wait_max: Duration,
    pub(crate) seed: u64,
    pub(crate) delay_max: u64,
}

impl Default for Making {
    fn default() -> Self {
        let (when_blind, wait_max) = (WhenBlind::default(), Duration::from_secs(10));
        Self { when_blind, wait_max, seed: 1, delay_max: 0 }
    }
}

impl Instance {
    pub(crate) fn new(
        server: &Server,
        clock: &Arc<Passing>,
        number: usize,
        making: Making,
        above: &[Arc<dyn Tier>],
    ) -> Self {
        let link = Link::new(server, number, making.seed, making.delay_max);
        Self::over(clock, link, making, above)
    }

    /// Creates an instance over a disk that an earlier process may have written to.
    pub(crate) fn with_disk(
        server: &Server,
        clock: &Arc<Passing>,
        number: usize,
        making: Making,
        disk: &Disk,
    ) -> Self {
        let link = Link::new(server, number, making.seed, making.delay_max);
        let above = [OfOneLife::tier(disk, &link)];
        Self::over(clock, link, making, &above)
    }

    fn over(
        clock: &Arc<Passing>,
        link: Arc<Link>,
        making: Making,
        above: &[Arc<dyn Tier>],
    ) -> Self {
        let Making { when_blind, wait_max, seed: _, delay_max: _ } = making;
        let seen = Arc::new(Seen::default());
        let tiers = above.iter().cloned().chain([link.clone() as Arc<dyn Tier>]).collect();
        let cluster = Cluster { when_blind, wait_max, ..Cluster::new(link.clone(), link.clone()) };
        let engine =
            Engine::clustered(Limits::of(MEMORY), clock.clone(), seen.clone(), tiers, cluster);
        Self { engine, link, seen }
    }

    pub(crate) fn obtain(
        &self,
        question: impl Into<Question>,
        origin: &Origin,
    ) -> BoxFuture<'static, Result<Outcome, LoadError>> {
        let (engine, question, origin) = (self.engine.clone(), question.into(), origin.clone());
        async move { crate::world::answer_to(&engine, &question.ask(&origin), origin.clone()).await }.boxed()
    }

    pub(crate) async fn purge(&self, what: Purge, reach: Reach) -> Purged {
        self.engine.purge(&what, reach).await
    }

    pub(crate) async fn purge_key(&self, name: &str) -> Purged {
        self.purge(Purge::Key(key(name)), Reach::Hard).await
    }

    /// Returns `true` if all purges of this instance are published.
    pub(crate) fn is_heard(&self) -> bool {
        self.engine.bus_status().is_some_and(|BusStatus { unpublished, .. }| unpublished == 0)
    }

    pub(crate) fn hears(&self) -> bool {
        self.engine.bus_status().is_some_and(|BusStatus { connected, .. }| connected)
    }
}

/// Instances that share a server and receive each other's purges.
pub(crate) struct Together {
    pub(crate) server: Server,
    pub(crate) clock: Arc<Passing>,
    pub(crate) instances: Vec<Instance>,
    making: Making,
}

impl Together {
    pub(crate) async fn new(count: usize) -> Self {
        Self::made(count, Making::default()).await
    }

    pub(crate) async fn made(count: usize, making: Making) -> Self {
        let (server, clock) = (Server::default(), Passing::new());
        let mut together = Self { server, clock, instances: Vec::new(), making };
        for _ in 0..count {
            together.join(&[]);
        }
        pass(100).await;
        assert!(together.instances.iter().all(Instance::hears));
        together
    }

    /// One more instance, with these tiers of its own.
    pub(crate) fn join(&mut self, above: &[Arc<dyn Tier>]) -> Instance {
        let number = self.instances.len();
        let instance = Instance::new(&self.server, &self.clock, number, self.making, above);
        self.instances.push(instance.clone());
        instance
    }

    /// As many callers of each instance, all at once.
    pub(crate) async fn crowd(
        &self,
        callers: usize,
        question: &Question,
        origin: &Origin,
    ) -> Vec<Result<Outcome, LoadError>> {
        let calls = self.instances.iter().flat_map(|instance| {
            (0..callers).map(|_| tokio::spawn(instance.obtain(question.clone(), origin)))
        });
        join_all(calls).await.into_iter().map(|call| call.expect("no caller panics")).collect()
    }
}

pub(crate) async fn pass(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

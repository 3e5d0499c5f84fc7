//! State of one cache: its tiers, its flights, and its purge log.
//!
//! This folder builds the parts and holds them; it adds no behaviour. The folders above it (`lookup`,
//! `miss`, `fill`, `write`, `purge`) add methods to [`Engine`]. It uses `memory`, `flight`,
//! `purge_log`, `tiers` and `runtime`, and never sees a request or an answer.

use std::sync::Arc;

use forebay_core::Condition;

use crate::flight::Flights;
use crate::flight::pass_markers::PassMarkers;
use crate::flight::recent_failures::RecentFailures;
use crate::memory::{Limits, MemoryTier};
use crate::purge_log::PurgeLog;
use crate::purge_log::cluster::{Cluster, Joined};
use crate::runtime::clock::Clock;
use crate::runtime::event::Observer;
use crate::runtime::sync::atomic::{AtomicUsize, Ordering};
use crate::tiers::lower::LowerTiers;
use crate::tiers::tier::Tier;

/// One cache: tiers, flights and purges, shared by all front ends and all threads.
pub struct Engine {
    pub(crate) memory: MemoryTier,
    pub(crate) lower: LowerTiers,
    pub(crate) flights: Arc<Flights>,
    /// Indexed by [`Credentials`](crate::Credentials), as `failures` is.
    pub(crate) passes: [Arc<PassMarkers>; 2],
    pub(crate) failures: [Arc<RecentFailures>; 2],
    pub(crate) log: PurgeLog,
    /// Connection with other instances. `None` if this engine shares nothing.
    pub(crate) joined: Option<Joined>,
    /// Number of background refreshes in progress.
    pub(crate) refreshes: AtomicUsize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Engine {
    /// Creates an engine within these limits, with memory as its only tier.
    #[must_use]
    pub fn new(limits: Limits, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        Self::with_tiers(limits, clock, observer, Vec::new())
    }

    /// Creates an engine with these tiers below memory, the uppermost first.
    #[must_use]
    pub fn with_tiers(
        limits: Limits,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        tiers: Vec<Arc<dyn Tier>>,
    ) -> Arc<Self> {
        Arc::new(Self::build(limits, clock, observer, tiers, None))
    }

    pub(crate) fn build(
        limits: Limits,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        tiers: Vec<Arc<dyn Tier>>,
        cluster: Option<Cluster>,
    ) -> Self {
        let lower = LowerTiers::new(tiers, &clock, &observer);
        let when_blind = cluster.as_ref().map(|cluster| cluster.when_blind);
        let has_bookmark = lower.bookmark().is_some();
        let joined = cluster.map(|cluster| Joined::new(cluster, clock.now(), has_bookmark));
        Self {
            memory: MemoryTier::within(&limits, &clock),
            lower,
            flights: Flights::new(),
            passes: [PassMarkers::new(), PassMarkers::new()],
            failures: [RecentFailures::new(), RecentFailures::new()],
            log: PurgeLog::new(clock.clone(), when_blind),
            joined,
            refreshes: AtomicUsize::new(0),
            clock,
            observer,
        }
    }

    /// Returns the clock of this engine.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the memory tier.
    #[must_use]
    pub fn memory(&self) -> &MemoryTier {
        &self.memory
    }

    /// Returns name and state of each tier below memory, the uppermost first.
    pub fn lower_tiers(&self) -> impl Iterator<Item = (&'static str, Condition)> {
        self.lower.all().iter().map(|lower| (lower.name(), lower.condition()))
    }

    /// Number of purges of tags, sites or everything that a tier which survives the process could
    /// not record. They hold as long as this process lives.
    #[must_use]
    pub fn unkept_purges(&self) -> u64 {
        self.lower.unkept()
    }

    /// Counts loads, bodies and writes in progress.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let in_flight = self.memory.in_flight();
        let counts = in_flight.counts();
        Traffic {
            flights: self.flights.count(),
            in_flight_bytes: in_flight.bytes(),
            waiting: counts.waiting,
            waits: counts.waits,
            refusals: counts.refusals,
            refreshes: self.refreshes.load(Ordering::Relaxed),
            writes: self.lower.writes(),
        }
    }
}

/// Loads, bodies and writes in progress in an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Number of loads in progress.
    pub flights: usize,
    /// Bytes of streaming bodies, and of bodies that left memory while a client reads them.
    pub in_flight_bytes: u64,
    /// Number of loads and bodies that wait for memory.
    pub waiting: usize,
    /// Number of loads that have waited for memory since the start.
    pub waits: u64,
    /// Number of loads refused for lack of memory since the start.
    pub refusals: u64,
    /// Number of background refreshes among the flights.
    pub refreshes: usize,
    /// Number of entries being written to the tiers below memory.
    pub writes: usize,
}

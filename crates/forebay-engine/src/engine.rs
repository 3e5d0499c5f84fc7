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
use crate::tiers::setup::TierSetup;

/// One cache: its memory tier, its lower tiers, the loads in progress and the record of purges.
/// Front ends share one engine, on all threads.
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
    /// Creates an engine with memory as its only tier. `limits` bound its memory in bytes, `clock`
    /// is its source of time, and `observer` receives its events.
    #[must_use]
    pub fn new(limits: Limits, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        Self::with_tiers::<TierSetup>(limits, clock, observer, Vec::new())
    }

    /// Creates an engine with these tiers below memory, in the order in which they are searched:
    /// the fastest first. It exchanges no purges and leases with other instances; see
    /// [`clustered`](Self::clustered).
    #[must_use]
    pub fn with_tiers<T: Into<TierSetup>>(
        limits: Limits,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        tiers: Vec<T>,
    ) -> Arc<Self> {
        Arc::new(Self::build(limits, clock, observer, tiers, None))
    }

    pub(crate) fn build<T: Into<TierSetup>>(
        limits: Limits,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        tiers: Vec<T>,
        cluster: Option<Cluster>,
    ) -> Self {
        let lower = LowerTiers::new(tiers.into_iter().map(Into::into), &clock, &observer);
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

    /// Returns the clock that was given to this engine.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the memory tier of this engine.
    #[must_use]
    pub fn memory(&self) -> &MemoryTier {
        &self.memory
    }

    /// Returns the name of each tier below memory and the state of its circuit breaker for reads,
    /// in the order of the search.
    pub fn lower_tiers(&self) -> impl Iterator<Item = (&'static str, Condition)> {
        self.lower.all().iter().map(|lower| (lower.name(), lower.condition()))
    }

    /// Returns how often since the start a tier could not record a purge of a tag, prefix, site or
    /// everything for the next process. This process applies these purges; a restarted process may
    /// return entries that they invalidated. A shared tier that a bus purges does not count.
    #[must_use]
    pub fn unkept_purges(&self) -> u64 {
        self.lower.unkept()
    }

    /// Returns the number of loads, bodies and writes in progress now, and counters of loads that
    /// waited for memory.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let in_flight = self.memory.in_flight();
        let counts = in_flight.counts();
        Traffic {
            flights: self.flights.count(),
            in_flight_bytes: in_flight.bytes(),
            in_flight_limit: in_flight.bytes_max(),
            waiting: counts.waiting,
            waits: counts.waits,
            refusals: counts.refusals,
            refreshes: self.refreshes.load(Ordering::Relaxed),
            writes: self.lower.writes(),
        }
    }
}

/// Number of loads, bodies and writes in progress in an engine at one moment, and counters of loads
/// that waited for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Number of flights: loads in progress, from the search of lower tiers until the answer is
    /// stored in all tiers. Flights that a purge has affected are not counted.
    pub flights: usize,
    /// Bytes of memory that are charged as bodies in flight: 16 KiB for each load until its body
    /// begins, streaming bodies, and evicted bodies that a client still reads.
    pub in_flight_bytes: u64,
    /// Maximum of these bytes (see `Limits::in_flight_max`).
    pub in_flight_limit: u64,
    /// Number of loads and streaming bodies that wait now for memory (see `Limits::in_flight_max`).
    pub waiting: usize,
    /// Number of loads since the start that had to wait for memory.
    pub waits: u64,
    /// Number of loads since the start that were refused: no memory became free within 5 s, or
    /// 1,024 loads and new bodies were waiting already.
    pub refusals: u64,
    /// Number of background refreshes in progress; included in `flights`.
    pub refreshes: usize,
    /// Number of writes of entries to tiers below memory that are in progress now. An entry counts
    /// once for each tier.
    pub writes: usize,
}

//! The walk down the tiers, flights, bodies and the memory tier: how an answer is obtained.
//!
//! | folder | content |
//! |---|---|
//! | `lookup` | hit path: lookup in memory, and the verdict |
//! | `miss` | following a flight, leading one, or loading alone; refreshes |
//! | `fill` | one miss, from the lower tiers and the lease to the stored entry |
//! | `flight` | table of loads in progress; the [`Load`] trait |
//! | `write` | entries stored or extended without a load |
//! | `purge` | purges of this instance and of others; versions |
//! | `purge_log` | record of purges; connection with other instances |
//! | `memory` | memory tier |
//! | `tiers` | lower tiers, leases and the bus: traits and guarded access |
//! | `entry` | entries, their heads and bodies; memory bound for bodies in transfer |
//! | `runtime` | clock, random numbers, locks, tasks, events |
//!
//! Deliberately absent: HTTP, sockets, configuration. The engine reaches a door only through the
//! [`Load`] that was handed to it, and never looks into a head.

mod entry;
mod fill;
mod flight;
#[cfg(feature = "interleavings")]
#[cfg(test)]
mod interleavings;
mod lookup;
mod memory;
mod miss;
mod purge;
mod purge_log;
mod runtime;
mod tiers;
mod write;

use std::sync::Arc;

use forebay_core::{Condition, Purges};

pub use entry::body::{Body, BodyReader, BrokenBody, Parts, PieceStream};
pub use entry::{Entry, Head};
pub use flight::load::{Company, Load, LoadError, Loaded, Passed, Select, Source};
pub use lookup::{Ask, Coalesce, Credentials, Look, Obtained, Via, Wanting};
pub use memory::MemoryTier;
pub use purge::publish::{Purged, Told};
pub use purge::version::Newer;
pub use purge_log::cluster::{BusStatus, Cluster};
pub use purge_log::watch::Watch;
pub use runtime::clock::{self, Clock, SystemClock, ThreadDice};
pub use runtime::event::{Event, LeaseCame, Observer};
pub use tiers::bus::{self, Bus};
pub use tiers::lease::{self, Leases};
pub use tiers::tier::{Budget, LeasedWrite, Stored, Tier, TierError, TierErrors, Writer};

use entry::in_flight::InFlight;
use flight::Flights;
use flight::pass_markers::PassMarkers;
use flight::recent_failures::RecentFailures;
use purge::receive::Ear;
use purge::version::Floors;
use purge_log::bus_progress::Following;
use purge_log::cluster::Joined;
use purge_log::watch::Watches;
use runtime::sync::RwLock;
use runtime::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tiers::lower::LowerTiers;

/// The bounds of an engine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All that memory may hold: entries with everything that belongs to them, and the bodies in
    /// flight.
    pub memory: u64,
    /// The largest entry that memory takes.
    pub object_max: u64,
    /// The part of `memory` that is for bodies in flight: those that flow, and those that have
    /// left memory while somebody reads them. When it is used up, loads wait for room, and are
    /// refused if there is none in time. One body at a time may go beyond it.
    pub in_flight_max: u64,
    /// What an entry takes as a rule. Half as many names as there would be such entries are
    /// remembered after they have left memory, so that what comes back soon stays.
    pub typical: u64,
}

impl Limits {
    /// `memory` bytes in all, a quarter of it for bodies in flight, entries of up to 16 MiB
    /// and of 8 KiB as a rule.
    #[must_use]
    pub const fn of(memory: u64) -> Self {
        Self { memory, object_max: 16 << 20, in_flight_max: memory / 4, typical: 8 << 10 }
    }
}

/// One cache: tiers, flights and purges, shared by all doors and all threads.
pub struct Engine {
    memory: MemoryTier,
    lower: LowerTiers,
    flights: Arc<Flights>,
    /// By whether the requests carried credentials.
    passes: [Arc<PassMarkers>; 2],
    /// By the same.
    failures: [Arc<RecentFailures>; 2],
    floors: Floors,
    purges: RwLock<Purges>,
    /// The newest position in `purges`, to be read without its lock.
    position: AtomicU64,
    /// The position at and behind which nothing has to be looked up there.
    trusted: AtomicU64,
    /// The longest that anything that was stored may be served, in milliseconds.
    longest: AtomicU64,
    joined: Option<Joined>,
    following: Arc<Following>,
    watches: Watches,
    in_flight: Arc<InFlight>,
    refreshes: AtomicUsize,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

impl Engine {
    /// An engine within these bounds, with memory as its only tier.
    #[must_use]
    pub fn new(limits: Limits, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        Self::with_tiers(limits, clock, observer, Vec::new())
    }

    /// An engine with these tiers below memory, the uppermost first.
    #[must_use]
    pub fn with_tiers(
        limits: Limits,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        tiers: Vec<Arc<dyn Tier>>,
    ) -> Arc<Self> {
        Arc::new(Self::build(limits, (clock, observer), tiers, None))
    }

    /// An engine that is joined with those of other instances. One of the tiers is shared with
    /// them.
    #[must_use]
    pub fn clustered(
        limits: Limits,
        (clock, observer): (Arc<dyn Clock>, Arc<dyn Observer>),
        tiers: Vec<Arc<dyn Tier>>,
        cluster: Cluster,
    ) -> Arc<Self> {
        let bus = cluster.bus.clone();
        let engine = Arc::new(Self::build(limits, (clock, observer), tiers, Some(cluster)));
        bus.listen(Ear::of(&engine));
        engine
    }

    fn build(
        limits: Limits,
        (clock, observer): (Arc<dyn Clock>, Arc<dyn Observer>),
        tiers: Vec<Arc<dyn Tier>>,
        cluster: Option<Cluster>,
    ) -> Self {
        let store = limits.memory.saturating_sub(limits.in_flight_max);
        let in_flight = InFlight::new(limits.in_flight_max, clock.clone());
        let trusted = if cluster.is_some() { u64::MAX } else { 0 };
        let lower = LowerTiers::new(tiers, (&clock, &observer));
        // What earlier lives have left is older than the first position.
        let mut purges = Purges::default();
        let first = purges.advance();
        let bookmark = lower.bookmark();
        let joined = |cluster| Joined::new(cluster, (first, clock.now()), bookmark.is_some());
        Self {
            memory: MemoryTier::new(store, &limits, &in_flight),
            lower,
            flights: Flights::new(),
            passes: [PassMarkers::new(), PassMarkers::new()],
            failures: [RecentFailures::new(), RecentFailures::new()],
            floors: Floors::new(),
            joined: cluster.map(joined),
            following: Arc::default(),
            purges: RwLock::new(purges),
            position: AtomicU64::new(first.number()),
            trusted: AtomicU64::new(trusted),
            longest: AtomicU64::new(0),
            watches: Watches::default(),
            in_flight,
            refreshes: AtomicUsize::new(0),
            clock,
            observer,
        }
    }

    /// The clock that this engine lives by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The memory tier.
    #[must_use]
    pub fn memory(&self) -> &MemoryTier {
        &self.memory
    }

    /// The tiers below memory, the uppermost first, and whether each is asked at all.
    pub fn lower_tiers(&self) -> impl Iterator<Item = (&'static str, Condition)> {
        self.lower.all().iter().map(|lower| (lower.name(), lower.condition()))
    }

    /// How many purges of tags, sites or everything a tier that outlives the process could not
    /// write down. They hold as long as this process lives.
    #[must_use]
    pub fn unkept_purges(&self) -> u64 {
        self.lower.unkept()
    }

    /// What is under way.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let counts = self.in_flight.counts();
        Traffic {
            flights: self.flights.count(),
            in_flight_bytes: self.in_flight.bytes(),
            waiting: counts.waiting,
            waits: counts.waits,
            refusals: counts.refusals,
            refreshes: self.refreshes.load(Ordering::Relaxed),
            writes: self.lower.writes(),
        }
    }
}

/// What is under way in an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Loads in progress.
    pub flights: usize,
    /// Bytes of bodies that flow, or that left memory while somebody reads them.
    pub in_flight_bytes: u64,
    /// Loads and bodies that wait for room among these.
    pub waiting: usize,
    /// Loads that have had to wait for room since the start.
    pub waits: u64,
    /// Loads that were refused for want of room since the start.
    pub refusals: u64,
    /// Background refreshes among the flights.
    pub refreshes: usize,
    /// Entries on their way into the tiers below memory.
    pub writes: usize,
}

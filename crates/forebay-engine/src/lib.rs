//! The walk down the tiers, flights, bodies and the memory tier: how an answer is obtained.
//!
//! | file | holds |
//! |---|---|
//! | [`obtain`] | the story of one demand; read it first |
//! | `wait` | boarding, following, leading, and what is served when that takes long or fails |
//! | `refresh` | refreshes behind an answer |
//! | `walk` | lower tiers, from the uppermost on, before an origin is asked |
//! | `land` | what comes back from a load: announced, passed, stored |
//! | `queue` | waiting for room, within a time |
//! | `pump`, `gather` | a body, from its source to its readers |
//! | `store` | what may be stored |
//! | `through` | what has landed on its way into the lower tiers |
//! | `in_flight` | bytes that no tier is charged for, and who waits for room |
//! | `flight` | the one load in progress for a key; seats and followers |
//! | [`body`] | bodies, whole and still flowing |
//! | [`load`] | what an origin can be asked and what it can say |
//! | [`entry`] | an entry as tiers hold it and doors see it |
//! | [`tier`] | levels of storage: memory, and what can stand below it |
//! | `pass` | keys whose answers may not be shared |
//! | `failures` | keys whose last load failed |
//! | `remembered` | what is known of keys for a while, bounded in bytes |
//! | `put` | what a door stores without being asked to load it |
//! | [`version`] | what is stored only in the place of what is older |
//! | `extend` | entries whose lifetime grows while they are used |
//! | `invalidate` | purges |
//! | [`tell`], `hear` | purges, to other instances and from them |
//! | `follow` | how far the tiers of this instance alone have followed the bus |
//! | [`cluster`] | what an engine has in common with those of other instances |
//! | `claim` | asking which instance loads, and waiting for another one |
//! | [`lease`] | the right to load, held by one of several instances |
//! | [`bus`] | what instances tell each other of purges |
//! | `watch` | purges, seen by who has an answer before any flight has departed |
//! | [`clock`] | time and dice |
//! | [`event`] | the only telemetry |
//!
//! Deliberately absent: HTTP, sockets, configuration. The engine reaches a door only through the
//! [`Load`] that was handed to it, and never looks into a head.

pub mod body;
pub mod bus;
mod claim;
pub mod clock;
pub mod cluster;
pub mod entry;
pub mod event;
mod extend;
mod failures;
mod flight;
mod follow;
mod gather;
mod hear;
mod in_flight;
#[cfg(feature = "interleavings")]
#[cfg(test)]
mod interleavings;
mod invalidate;
mod land;
pub mod lease;
pub mod load;
pub mod obtain;
mod pass;
mod pump;
mod put;
mod queue;
mod refresh;
mod remembered;
mod store;
mod sync;
pub mod tell;
mod through;
pub mod tier;
pub mod version;
mod wait;
mod wakers;
mod walk;
mod watch;

use std::sync::Arc;

use forebay_core::{Condition, Purges};

pub use body::{Body, BodyReader, BrokenBody, Parts, PieceStream};
pub use bus::Bus;
pub use clock::{Clock, SystemClock, ThreadDice};
pub use cluster::{BusStatus, Cluster};
pub use entry::{Entry, Head};
pub use event::{Event, LeaseCame, Observer};
pub use lease::Leases;
pub use load::{Company, Load, LoadError, Loaded, Passed, Select, Source};
pub use obtain::{Ask, Coalesce, Credentials, Look, Obtained, Via, Wanting};
pub use tell::{Purged, Told};
pub use tier::memory::MemoryTier;
pub use tier::{Budget, LeasedWrite, Stored, Tier, TierError, TierErrors, Writer};
pub use version::Newer;
pub use watch::Watch;

use cluster::Joined;
use failures::RecentFailures;
use flight::Flights;
use follow::Following;
use hear::Ear;
use in_flight::InFlight;
use pass::PassMarkers;
use sync::RwLock;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tier::lower::LowerTiers;
use version::Floors;
use watch::Watches;

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

//! What an engine has in common with those of other instances: leases, a bus, and what follows
//! from hearing nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{BusTrust, Position, Timestamp, WhenBlind};
use tokio::sync::watch;

use crate::Engine;
use crate::purge::publish::Unpublished;
use crate::runtime::sync::atomic::Ordering;
use crate::runtime::sync::{RwLock, timeout};
use crate::tiers::bus::Bus;
use crate::tiers::lease::Leases;

/// How long whoever wants something of what an earlier life has left waits for the first word of
/// what was purged meanwhile. A bus that is there gives it within a few milliseconds.
const FIRST_WORD_MAX: Duration = Duration::from_millis(250);

/// How long a load of another instance is waited for, if nobody says otherwise.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Connection of an engine to those of other instances, which share a tier with it. A lease gives
/// one instance the right to fill the tier, and the bus carries purges. Without a shared tier no
/// leases are used.
#[derive(Clone)]
pub struct Cluster {
    /// Source of the leases.
    pub leases: Arc<dyn Leases>,
    /// Bus that carries purges between instances.
    pub bus: Arc<dyn Bus>,
    /// Use of entries that may have been purged while the bus was disconnected.
    pub when_blind: WhenBlind,
    /// Maximum wait for a load of another instance. After it, a call gets a stale value if one may
    /// be served; otherwise this instance loads, and does not store the result.
    pub wait_max: Duration,
}

impl Cluster {
    /// Creates a connection with the default limits: entries that may have been purged are served
    /// for 30 s, and the wait for other instances is 10 s.
    #[must_use]
    pub fn new(leases: Arc<dyn Leases>, bus: Arc<dyn Bus>) -> Self {
        Self { leases, bus, when_blind: WhenBlind::default(), wait_max: WAIT_MAX }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:?}, {:?})", self.when_blind, self.wait_max)
    }
}

/// The same, and what an engine remembers of it.
pub(crate) struct Joined {
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) wait_max: Duration,
    pub(crate) unpublished: Unpublished,
    /// Taken under the lock of the purges, or alone.
    bus_trust: RwLock<BusTrust>,
    /// Whether nothing was heard yet, where the bus may go on from an earlier life.
    awaits_word: watch::Sender<bool>,
    began: Timestamp,
}

/// State of the bus that carries invalidations between instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusStatus {
    /// `true` while this instance receives all invalidations of the others.
    pub connected: bool,
    /// Number of invalidations of this instance that are not published yet.
    pub unpublished: usize,
}

impl Joined {
    /// At first nothing is heard, so what earlier lives have left is suspect. The bus says whether
    /// it remains so: if it cannot tell of all that was purged meanwhile, it tells of a gap.
    pub(crate) fn new(
        cluster: Cluster,
        (first, began): (Position, Timestamp),
        has_bookmark: bool,
    ) -> Self {
        let Cluster { leases, bus, when_blind, wait_max } = cluster;
        let mut bus_trust = BusTrust::new(when_blind);
        bus_trust.lost(first, began);
        let bus_trust = RwLock::new(bus_trust);
        let (unpublished, awaits_word) = (Unpublished::default(), watch::Sender::new(has_bookmark));
        Self { leases, bus, wait_max, unpublished, bus_trust, awaits_word, began }
    }

    fn is_blind(&self) -> bool {
        self.bus_trust.read().is_blind()
    }
}

impl Engine {
    /// Returns the state of the bus. `None` if this engine shares no bus with other instances.
    #[must_use]
    pub fn bus_status(&self) -> Option<BusStatus> {
        let joined = self.joined.as_ref()?;
        Some(BusStatus { connected: !joined.is_blind(), unpublished: joined.unpublished.count() })
    }

    /// What departed at or after this position is as good as when it came, whatever has happened.
    /// While nothing is heard, nothing is: the time counts then, too.
    #[inline]
    pub(crate) fn trusted(&self) -> Position {
        Position::new(self.trusted.load(Ordering::Acquire))
    }

    /// Where the log of purges stands.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        Position::new(self.position.load(Ordering::Acquire))
    }

    /// Publishes a position. Under the lock of the purges.
    ///
    /// What is trusted comes first: who departs at the new position and looks once more must not
    /// find what the purge has reached, or it could have it confirmed.
    pub(crate) fn stand_at(&self, at: Position) {
        let is_blind = self.joined.as_ref().is_some_and(Joined::is_blind);
        let trusted = if is_blind { u64::MAX } else { at.number() };
        self.trusted.store(trusted, Ordering::Release);
        self.position.store(at.number(), Ordering::Release);
    }

    /// Whether what departed at a position was suspect at `when`.
    pub(crate) fn suspects(&self, departed: Position, when: Timestamp) -> bool {
        let suspect = |joined: &Joined| joined.bus_trust.read().reaches(departed, when);
        self.joined.as_ref().is_some_and(suspect)
    }

    /// Whether what departed at a position is suspect, though it may be served for now.
    #[inline(never)]
    pub(crate) fn doubts(&self, departed: Position) -> bool {
        let doubt = |joined: &Joined| joined.bus_trust.read().doubts(departed);
        self.joined.as_ref().is_some_and(doubt)
    }

    /// The same as `suspects` for what knows the time of its departure alone.
    pub(crate) fn suspects_time(&self, departed: Timestamp, when: Timestamp) -> bool {
        let suspect = |joined: &Joined| joined.bus_trust.read().reaches_time(departed, when);
        self.joined.as_ref().is_some_and(suspect)
    }

    /// Whether what departed at a time is suspect, or will be in a while.
    pub(crate) fn doubts_time(&self, departed: Timestamp) -> bool {
        let doubt = |joined: &Joined| joined.bus_trust.read().doubts_time(departed);
        self.joined.as_ref().is_some_and(doubt)
    }

    /// Waits until it is known what was purged since an earlier life, if the bus can tell of that;
    /// for a moment at most. Then it is as at any time while nothing is heard.
    pub(crate) async fn first_word(&self) {
        let Some(joined) = &self.joined else { return };
        if !*joined.awaits_word.borrow() {
            return;
        }
        let left = FIRST_WORD_MAX.saturating_sub(self.clock.now().since(joined.began));
        let mut words = joined.awaits_word.subscribe();
        // The sender lives as long as the engine.
        let _ = timeout(left, words.wait_for(|awaits| !awaits)).await;
        joined.awaits_word.send_replace(false);
    }

    pub(crate) fn hear_first_word(&self) {
        if let Some(joined) = &self.joined {
            joined.awaits_word.send_if_modified(std::mem::take);
        }
    }

    /// Whether what is shared holds something that was purged here, and the others could not be
    /// told so: then what it says of purges is not enough.
    pub(crate) fn distrusts_shared(&self) -> bool {
        self.joined.as_ref().is_some_and(|joined| joined.unpublished.any_of_many())
    }

    /// Lets time count for what comes while nothing is heard.
    pub(crate) fn watch_silence(&self, now: Timestamp) {
        let Some(joined) = &self.joined else { return };
        if joined.bus_trust.read().wants_step(now) {
            self.change_suspicion(|bus_trust, at| {
                // Somebody else may have done it meanwhile.
                if bus_trust.wants_step(now) {
                    bus_trust.step(at, now);
                }
            });
        }
    }

    /// Takes a new position, and changes what is suspect by it.
    pub(crate) fn change_suspicion(&self, change: impl FnOnce(&mut BusTrust, Position)) {
        let Some(joined) = &self.joined else { return };
        let mut purges = self.purges.write();
        let at = purges.advance();
        change(&mut joined.bus_trust.write(), at);
        self.stand_at(at);
    }
}

//! Record of purges: those of this instance, those of others, and how far the record can be trusted.
//!
//! [`PurgeLog`] answers one question about an entry: which purges have affected it. This folder uses
//! `tiers` (bus, bookmarks), `entry` and `runtime`; it never sees memory, flights or loads, and
//! removes nothing itself.

pub(crate) mod bus_progress;
pub(crate) mod cluster;
pub(crate) mod floors;
pub(crate) mod self_check;
pub(crate) mod unpublished;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{
    BusTrust, Key, KeyRef, Lifetime, Meta, Position, Purge, PurgeState, Purges, Reach, Recorded,
    Timestamp, WhenBlind,
};

use crate::entry::Entry;
use crate::runtime::clock::Clock;
use crate::runtime::sync::RwLock;
use crate::runtime::sync::atomic::{AtomicU64, Ordering};
use bus_progress::{BusProgress, PurgeInProgress};
use floors::Floors;
use self_check::SelfCheck;
use watch::{PurgesSoFar, Watch, Watches};

/// Purges of more than one key, with their positions, and the trust in the bus.
pub(crate) struct PurgeLog {
    purges: RwLock<Purges>,
    /// Newest position in `purges`, read without its lock.
    position: Arc<AtomicU64>,
    /// Position at and after which an entry needs no check.
    trusted: AtomicU64,
    /// Longest time for which a stored entry may be served, in milliseconds.
    longest: AtomicU64,
    /// Locked while `purges` is locked, or alone. `None` without other instances.
    bus_trust: Option<RwLock<BusTrust>>,
    watches: Arc<Watches>,
    pub(crate) progress: Arc<BusProgress>,
    pub(crate) floors: Floors,
    pub(crate) self_check: SelfCheck,
    clock: Arc<dyn Clock>,
}

impl PurgeLog {
    /// Creates a log. With `when_blind`, purges of other instances are expected over a bus; until
    /// it is connected, entries of earlier processes are unverified.
    pub(crate) fn new(clock: Arc<dyn Clock>, when_blind: Option<WhenBlind>) -> Self {
        // Entries of earlier processes are older than the first position.
        let mut purges = Purges::default();
        let first = purges.advance();
        let bus_trust = when_blind.map(|when_blind| {
            let mut bus_trust = BusTrust::new(when_blind);
            bus_trust.lost(first, clock.now());
            RwLock::new(bus_trust)
        });
        let trusted = if bus_trust.is_some() { u64::MAX } else { 0 };
        Self {
            purges: RwLock::new(purges),
            position: Arc::new(AtomicU64::new(first.number())),
            trusted: AtomicU64::new(trusted),
            longest: AtomicU64::new(0),
            bus_trust,
            watches: Arc::default(),
            progress: Arc::default(),
            floors: Floors::new(),
            self_check: SelfCheck::default(),
            clock,
        }
    }

    /// Returns the position at and after which an entry is valid, whatever purges came. While the
    /// bus is disconnected there is none, because elapsed time counts then, too.
    #[inline]
    pub(crate) fn trusted(&self) -> Position {
        Position::new(self.trusted.load(Ordering::Acquire))
    }

    /// Returns the newest position.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        Position::new(self.position.load(Ordering::Acquire))
    }

    /// Publishes a position. Called with `purges` locked.
    ///
    /// The trusted position comes first: a load that starts at the new position and looks once more
    /// must not find an entry that the purge affected, or the origin could confirm it.
    fn publish(&self, at: Position) {
        let trusted = if self.is_blind() { u64::MAX } else { at.number() };
        self.trusted.store(trusted, Ordering::Release);
        self.position.store(at.number(), Ordering::Release);
    }

    /// Records a purge of more than one key. Returns its position, and a guard that ends when the
    /// tiers have recorded it, too. The position is published last: a load that starts at the new
    /// position asks an origin that already knew of the change.
    pub(crate) fn note(&self, what: &Purge, reach: Reach) -> (Position, PurgeInProgress) {
        let now = self.clock.now();
        let mut purges = self.purges.write();
        if matches!(what, Purge::Prefix { .. }) {
            purges.retire_prefixes(now.minus(self.longest_lifetime()));
        }
        let before = purges.newest();
        let at = before.next();
        purges.note(what, reach, at, now);
        let in_progress = self.progress.begin_noted(before, at);
        self.publish(at);
        (at, in_progress)
    }

    /// Number of recorded purges that name no single key: each entry older than the newest of
    /// them is compared with them.
    pub(crate) fn recorded(&self) -> Recorded {
        self.purges.read().recorded()
    }

    /// Returns the effect of purges on an entry.
    #[inline]
    pub(crate) fn state_of(&self, key: KeyRef<'_>, entry: &Entry) -> PurgeState {
        if entry.is_unpurged_at(self.trusted()) {
            return entry.unpurged();
        }
        self.state_of_older(key, entry)
    }

    #[inline(never)]
    fn state_of_older(&self, key: KeyRef<'_>, entry: &Entry) -> PurgeState {
        let now = self.clock.now();
        self.advance_silence(now);
        self.state_at(key, entry, now)
    }

    /// Returns the effect of all recorded purges on an entry, and of missed ones until `when`.
    pub(crate) fn state_at(&self, key: KeyRef<'_>, entry: &Entry, when: Timestamp) -> PurgeState {
        let recorded = self.compared_state(key, entry);
        let suspect = self.trust(|bus_trust| bus_trust.reaches(entry.meta.position, when));
        let bus_trust = if suspect { PurgeState::Unverified } else { PurgeState::Valid };
        recorded.max(entry.unpurged()).max(bus_trust)
    }

    /// Returns the effect of recorded purges on an entry. If there is none, the entry is not compared
    /// with these purges again, unless an interrupted bus may have missed others.
    fn compared_state(&self, key: KeyRef<'_>, entry: &Entry) -> PurgeState {
        let purges = self.purges.read();
        let (state, newest) = (purges.standing(key, &entry.meta), purges.newest());
        drop(purges);
        if state == PurgeState::Valid && self.bus_trust.is_none() {
            entry.note_compared(newest);
        }
        state
    }

    /// Returns the effect of recorded purges on an entry with this metadata.
    pub(crate) fn recorded_state(&self, key: KeyRef<'_>, meta: &Meta) -> PurgeState {
        self.purges.read().standing(key, meta)
    }

    fn trust(&self, ask: impl FnOnce(&BusTrust) -> bool) -> bool {
        self.bus_trust.as_ref().is_some_and(|bus_trust| ask(&bus_trust.read()))
    }

    /// Returns `true` while the bus is disconnected.
    pub(crate) fn is_blind(&self) -> bool {
        self.trust(BusTrust::is_blind)
    }

    /// Returns `true` if an entry of this position may have missed a purge, although it may be
    /// served for now.
    #[inline(never)]
    pub(crate) fn doubts(&self, position: Position) -> bool {
        self.trust(|bus_trust| bus_trust.doubts(position))
    }

    /// Returns `true` if an entry whose load started at this time is unverified at `when`.
    pub(crate) fn is_unverified_at(&self, load_started_at: Timestamp, when: Timestamp) -> bool {
        self.trust(|bus_trust| bus_trust.reaches_time(load_started_at, when))
    }

    /// Returns `true` if an entry whose load started at this time is unverified, or will be soon.
    pub(crate) fn doubts_time(&self, load_started_at: Timestamp) -> bool {
        self.trust(|bus_trust| bus_trust.doubts_time(load_started_at))
    }

    /// Lets elapsed time count for entries that arrive while the bus is disconnected.
    fn advance_silence(&self, now: Timestamp) {
        if self.trust(|bus_trust| bus_trust.wants_step(now)) {
            self.change_trust(|bus_trust, at| {
                // Another thread may have taken the step meanwhile.
                if bus_trust.wants_step(now) {
                    bus_trust.step(at, now);
                }
            });
        }
    }

    /// Takes a new position, and changes the trust in the bus from there on.
    pub(crate) fn change_trust(&self, change: impl FnOnce(&mut BusTrust, Position)) {
        let Some(bus_trust) = &self.bus_trust else { return };
        let mut purges = self.purges.write();
        let at = purges.advance();
        change(&mut bus_trust.write(), at);
        self.publish(at);
    }

    /// Remembers how long an entry may be served: purges by prefix are recorded for that long.
    pub(crate) fn note_lifetime(&self, lifetime: &Lifetime) {
        let Lifetime { fresh, stale_while_revalidate, stale_if_error, stale: _ } = *lifetime;
        let all = fresh.saturating_add(stale_while_revalidate.max(stale_if_error));
        let millis = u64::try_from(all.as_millis()).unwrap_or(u64::MAX);
        if self.longest.load(Ordering::Relaxed) < millis {
            self.longest.fetch_max(millis, Ordering::Relaxed);
        }
    }

    fn longest_lifetime(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// Starts to count the purges of a key.
    pub(crate) fn watch(&self, key: Key) -> Watch {
        Watch::begin(&self.watches, key, &self.position)
    }

    /// Returns the purges that have begun so far.
    pub(crate) fn purges_so_far(&self) -> PurgesSoFar {
        self.watches.so_far(&self.position)
    }

    /// Counts a purge for the watches of its key. Called before anything is removed.
    pub(crate) fn note_for_watches(&self, what: &Purge) {
        self.watches.note(what);
    }
}

//! Versions: what is stored only in the place of what is older, and what does not come back below
//! the version that it was removed at.
//!
//! A door that knows the order of what it stores, by row versions or by positions in a log, gives
//! each entry its [version](forebay_core::version). Then it does not matter in which order writers
//! and loads come: what is older is not stored in the place of what is newer.
//!
//! An entry carries its version, but it can be removed, evicted, or stand in one tier alone. So the
//! newest version of a key is also a *floor* that is remembered for a while: here, and by the tier
//! that is shared, for all instances. A floor that is lost refuses nothing; then versions compare
//! with what is stored, and with nothing beyond.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Meta, Purge, PurgeState, Reach, Timestamp};
use futures_util::future::join;

use crate::Engine;
use crate::fill::Landing;
use crate::flight::load::Load;
use crate::runtime::bounded_map::Remembered;
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::tiers::catch_panic::caught;
use crate::tiers::lease_strategy::OPEN;
use crate::tiers::lower::Deadline;

/// What one floor takes beside its key.
const OVERHEAD: u64 = 96;

/// A version that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer {
    /// Which one.
    pub version: u64,
    /// For how long at least it is remembered that older ones are not to be stored: longer than
    /// any writer, and any load, may be under way with one.
    pub keep: Duration,
}

/// The newest versions that are known of keys, for a while.
pub(crate) struct Floors(Remembered<Floor>);

#[derive(Clone, Copy, Debug)]
struct Floor {
    version: u64,
    until: Timestamp,
}

impl Floors {
    pub(crate) fn new() -> Self {
        Self(Remembered::new(OVERHEAD))
    }

    fn of(&self, key: KeyRef<'_>, now: Timestamp) -> Option<u64> {
        self.0.of(key).filter(|floor| now < floor.until).map(|floor| floor.version)
    }
}

impl Engine {
    /// Removes what stands under a primary key, in all tiers and instances, unless a version is
    /// known that is as new: then nothing is done, and the answer is `false`. No older version is
    /// stored from then on.
    pub async fn remove_version(self: &Arc<Self>, key: KeyRef<'_>, newer: Newer) -> bool {
        let below = self.version_below(key).await;
        let removed = self.flights.purging_if(key, || {
            let is_newer = self.raise_floor((key, below), newer);
            if is_newer {
                self.purge_memory(key, Reach::Hard);
            }
            is_newer
        });
        let Some(purging) = removed else { return false };
        let engine = self.clone();
        // Once begun it is carried out, even if nobody waits for it any more.
        let removing = spawn(async move {
            purging.settled().await;
            let key = purging.primary();
            join(engine.lower.remove_its_own(key), engine.tell_version(key, newer)).await.1
        });
        // It can only end early with the runtime itself.
        removing.await.unwrap_or(false)
    }

    /// What another instance tells. What this one has of an older version goes; a newer one, and
    /// its flight, stays.
    pub(crate) fn hear_version(self: &Arc<Self>, purge: &Purge, newer: Newer) {
        let Purge::Key(key) = purge else { return };
        self.watches.note(purge);
        self.observer.observe(Event::Noticed(purge.kind()));
        let purging = self.flights.purging_if(key.borrowed(), || {
            let is_newer = self.raise_floor((key.borrowed(), None), newer);
            if is_newer {
                self.purge_memory(key.borrowed(), Reach::Hard);
            }
            is_newer
        });
        if let Some(purging) = purging.filter(|_| self.lower.any_of_its_own()) {
            let engine = self.clone();
            spawn(async move {
                purging.settled().await;
                engine.lower.remove_its_own(purging.primary()).await;
            });
        }
    }

    /// Whether a version is newer than all that are known here of a key, and below. From then on
    /// it is the floor. Under the lock of the board.
    pub(crate) fn raise_floor(
        &self,
        (key, below): (KeyRef<'_>, Option<u64>),
        newer: Newer,
    ) -> bool {
        let now = self.clock.now();
        let known = below.max(self.version_in_memory(key)).max(self.floors.of(key, now));
        let is_newer = known.is_none_or(|known| known < newer.version);
        if is_newer {
            let floor = Floor { version: newer.version, until: now.plus(newer.keep) };
            self.floors.0.note(key, floor);
        }
        is_newer
    }

    fn version_in_memory(&self, key: KeyRef<'_>) -> Option<u64> {
        let stored = self.memory.peek_at(key)?;
        let stored = Some(stored).filter(|it| self.standing(key, it) < PurgeState::Removed)?;
        stored.meta.version()
    }

    /// Of tiers that nobody shares: the one that is shared compares by itself.
    pub(crate) async fn version_below(&self, key: KeyRef<'_>) -> Option<u64> {
        let mut newest = None;
        for lower in self.lower.taking(key).filter(|lower| !lower.is_shared()) {
            let mut deadline = Deadline::within(lower.budget().read);
            let stored = lower.run(OPEN, &mut deadline, || lower.tier.open(key)).await;
            newest = newest.max(stored.flatten().and_then(|stored| stored.meta.version()));
        }
        newest
    }

    /// Makes way for a version where entries are shared. `false` if one that is as new is known
    /// there. Who cannot be told now is told later, of a purge.
    pub(crate) async fn tell_version(self: &Arc<Self>, key: KeyRef<'_>, newer: Newer) -> bool {
        let Some(joined) = &self.joined else { return true };
        let owned = key.to_key();
        match caught(|| joined.bus.publish_version(&owned, newer)).await {
            Ok(published) => published.is_some(),
            Err(_) => {
                let purge = Purge::Key(owned);
                self.observer.observe(Event::PublishFailed(purge.kind()));
                self.tell_later(&purge, Reach::Hard);
                true
            }
        }
    }

    /// Whether a newer version of an entry is known here. Under the lock of the board.
    pub(crate) fn is_outdated(&self, primary: KeyRef<'_>, meta: &Meta) -> bool {
        let Some(version) = meta.version() else { return false };
        let floor = self.floors.of(primary, self.clock.now());
        floor.max(self.version_in_memory(primary)).is_some_and(|known| known > version)
    }
}

impl<L: Load> Landing<L> {
    /// What is shared has refused it for its version: then it is not kept above, either.
    pub(crate) fn forget_outdated(&self, meta: &Meta) {
        let (engine, primary) = (&self.engine, self.seat.flight().primary().borrowed());
        self.seat.unless_cut(|| {
            let is_it = |version| engine.version_in_memory(primary) == Some(version);
            if meta.version().is_some_and(is_it) {
                engine.memory.remove(primary);
            }
        });
    }
}

//! What may be stored of what has landed, and whether memory took it.

use std::sync::Arc;

use forebay_core::{Key, KeyRef, Lifetime, Meta, PurgeState};

use crate::engine::Engine;
use crate::entry::Entry;
use crate::entry::select::selection;
use crate::fill::Landing;
use crate::fill::cluster_lease::Right;
use crate::fill::lower_lookup::YOUNGER_MIN;
use crate::flight::load::Load;
use crate::flight::via::Via;
use crate::runtime::event::LeaseCame;

/// What came of an attempt to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// Memory has it.
    Kept,
    /// Memory does not take anything of this size; a lower tier may.
    TooLarge,
    /// It was purged, or outrun.
    Refused,
}

impl<L: Load> Landing<L> {
    /// Stores a whole entry in memory, if it may be stored.
    pub(crate) fn store(&self, entry: &Arc<Entry>) -> Storing {
        let memory = &self.engine.memory;
        let primary = self.seat.flight().primary().borrowed();
        if !self.right.stands() {
            if matches!(self.right, Right::Leased(_)) {
                self.came(LeaseCame::Withdrawn);
            }
            return Storing::Refused;
        }
        self.engine.log.note_lifetime(&entry.meta.lifetime());
        let taken = self.seat.unless_cut(|| {
            self.may_store(&entry.meta).then(|| match self.depth {
                None => {
                    self.adopt_family(&entry.meta);
                    memory.store(primary, &self.load, self.for_memory(entry))
                }
                Some(depth) => {
                    let kept = self.for_memory(entry);
                    self.engine.take_in((primary, &self.load), (&kept, depth.generation))
                }
            })
        });
        match taken.flatten() {
            Some(true) => Storing::Kept,
            Some(false) => Storing::TooLarge,
            None => Storing::Refused,
        }
    }

    /// What memory is to have of an entry: less of its lifetime, where it asks the tiers below
    /// again before that is over.
    fn for_memory(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        let Some(ttl) = self.load.memory_ttl() else { return entry.clone() };
        let end = entry.meta.age(self.engine.clock.now()).saturating_add(ttl);
        let lifetime = entry.meta.lifetime();
        if lifetime.fresh <= end {
            return entry.clone();
        }
        let mut meta = entry.meta.clone();
        meta.set_lifetime(Lifetime { fresh: end, ..lifetime });
        Arc::new(entry.with_meta(meta))
    }

    /// Whether what stands in memory is younger than what a lower tier brought. Read back, the age
    /// of one and the same entry differs by a few milliseconds.
    fn is_older(&self, meta: &Meta, stored: &Meta) -> bool {
        let asked_again = self.load.memory_ttl().is_some()
            && !stored.is_fresh(self.engine.clock.now())
            && stored.born.since(meta.born) < YOUNGER_MIN;
        stored.born > meta.born && !asked_again
    }

    /// Not if a purge came since the flight departed, nor if a load that departed later has
    /// landed before it: a body that flows slowly must not undo a refresh. When the flight was
    /// boarded says nothing of that: whoever waits for tiers or for another instance may ask the
    /// origin after the answer of who came later is stored.
    pub(crate) fn may_store(&self, meta: &Meta) -> bool {
        let engine = &self.engine;
        let primary = self.seat.flight().primary().borrowed();
        let purged = engine.log.recorded_state(primary, meta) == PurgeState::Removed;
        // To be written into tiers is no use of it: what nobody asks for again would seem to be
        // asked for.
        let outrun = match (engine.memory.peek_for(primary, &self.load), self.depth) {
            (Some(stored), None) => stored.flight > self.number,
            // What is suspect gives way to what is known to be good, though it is the same.
            (Some(stored), Some(_)) => {
                self.is_older(meta, &stored.meta)
                    && engine.log.state_of(primary, &stored) < PurgeState::Unverified
            }
            (None, _) => false,
        };
        !purged && !outrun && !engine.is_outdated(primary, meta)
    }

    /// Announces an entry, or the stored entry of a load that departed later: the next caller is
    /// given that one, and must not be given an older version than the callers of this flight.
    pub(crate) fn announce_stored(&mut self, entry: &Arc<Entry>, storing: Storing, via: Via) {
        let newer = if storing == Storing::Refused { self.outrun_by(&entry.meta) } else { None };
        match newer {
            Some(newer) => self.announce(&newer, Via::Followed),
            None => self.announce(entry, via),
        }
    }

    /// Returns the entry that a load which departed later has stored in memory, if it is fresh and
    /// not purged, and varies by the same fields as the entry of this flight. Its version may be
    /// older than the one of this flight: the origin may have read it before.
    pub(crate) fn outrun_by(&self, meta: &Meta) -> Option<Arc<Entry>> {
        if self.depth.is_some() || !self.keep.yields || self.load.has_own() {
            return None;
        }
        let (engine, flight) = (&self.engine, self.seat.flight());
        let primary = flight.primary().borrowed();
        let stored = engine.memory.peek_for(primary, &self.load)?;
        // A question about the entry is answered by its own load alone.
        let is_of = |key: &Key| selection(primary, &self.load, &stored).as_ref() == Some(key);
        let is_asked_for = flight.key() == flight.primary() || is_of(flight.key());
        let is_good = is_asked_for
            && stored.meta.vary() == meta.vary()
            && stored.flight > self.number
            && engine.log.state_of(primary, &stored) == PurgeState::Valid
            && stored.meta.is_fresh(engine.clock.now());
        is_good.then_some(stored)
    }

    /// Lets memory and the lower tiers mean the same family, if one was found there. Under the
    /// lock of the board.
    pub(crate) fn adopt_family(&self, meta: &Meta) {
        if let (Some(vary), Some((known, generation))) = (meta.vary(), &self.family)
            && vary == known
        {
            let primary = self.seat.flight().primary().borrowed();
            self.engine.memory.adopt(primary, (known, *generation), meta.presence);
        }
    }

    /// Puts what was found stale into memory, now that the load has failed: it may be served
    /// instead. What stands in memory goes before it, unless it is older.
    pub(crate) fn keep_stale(&self) {
        let Some((entry, depth)) = &self.stale else { return };
        let primary = self.seat.flight().primary().borrowed();
        self.seat.unless_cut(|| {
            let purged =
                self.engine.log.recorded_state(primary, &entry.meta) == PurgeState::Removed;
            let known = self.engine.memory.peek_for(primary, &self.load);
            let outrun = known.is_some_and(|known| known.meta.born >= entry.meta.born);
            if !purged && !outrun {
                self.engine.take_in((primary, &self.load), (entry, depth.generation));
            }
        });
    }

    pub(crate) fn is_stored(&self, storing: Storing) -> bool {
        match storing {
            Storing::Kept => true,
            Storing::TooLarge => self.has_targets(),
            Storing::Refused => false,
        }
    }
}

impl Engine {
    /// Stores what comes from a lower tier, in the family that it belongs to there. Under the
    /// lock of the board.
    pub(crate) fn take_in(
        &self,
        (primary, load): (KeyRef<'_>, &impl Load),
        (entry, generation): (&Arc<Entry>, Option<u64>),
    ) -> bool {
        if let (Some(vary), Some(generation)) = (entry.meta.vary(), generation) {
            self.memory.replace_family(primary, (vary, generation), entry.meta.presence);
        }
        self.memory.store(primary, load, entry.clone())
    }
}

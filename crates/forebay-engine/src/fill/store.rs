//! Storing in memory: which answers may be stored, and the result.

use std::sync::Arc;

use forebay_core::{Demand, Key, Lifetime, Meta, PurgeState};

use super::lower_lookup::{StaleEntry, TierPosition, YOUNGER_MIN};
use super::{Fill, Leading, UNFRESH_REMEMBER};
use crate::entry::select::selection;
use crate::entry::{Entry, suits};
use crate::fill::cluster_lease::WritePermission;
use crate::flight::load::{AnswerFor, Load};
use crate::flight::pass_markers::Marked;
use crate::flight::source::Source;
use crate::runtime::event::LeaseEvent;

/// Result of storing an entry in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreResult {
    Stored,
    /// The entry is too large for memory. A lower tier may store it.
    TooLarge,
    /// The entry was purged, or a newer one is stored.
    Refused,
}

impl<L: Load> Fill<L> {
    /// Stores a complete entry in memory, if it may be stored.
    pub(super) fn store(&self, entry: &Arc<Entry>) -> StoreResult {
        let (engine, leading) = (&self.leading.engine, &self.leading);
        if !self.permission.is_valid() {
            if matches!(self.permission, WritePermission::Leased(_)) {
                leading.observe_lease(LeaseEvent::Withdrawn);
            }
            return StoreResult::Refused;
        }
        engine.log.note_lifetime(&entry.meta.lifetime());
        let stored = leading.leader.unless_purged(|| {
            self.may_store(&entry.meta).then(|| {
                let kept = self.for_memory(entry);
                match &self.found {
                    None => {
                        self.adopt_family(&entry.meta);
                        engine.memory.store(leading.primary(), &leading.load, kept)
                    }
                    Some(found) => leading.store_found(kept, found.position),
                }
            })
        });
        match stored.flatten() {
            Some(true) => StoreResult::Stored,
            Some(false) => StoreResult::TooLarge,
            None => StoreResult::Refused,
        }
    }

    /// Returns the entry as memory keeps it: with a shorter lifetime if memory has to ask the lower
    /// tiers again before it ends.
    fn for_memory(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        let Some(ttl) = self.leading.options.memory_ttl else { return entry.clone() };
        let end = entry.meta.age(self.leading.engine.clock.now()).saturating_add(ttl);
        let lifetime = entry.meta.lifetime();
        if lifetime.fresh <= end {
            return entry.clone();
        }
        let mut meta = entry.meta.clone();
        meta.set_lifetime(Lifetime { fresh: end, ..lifetime });
        Arc::new(entry.with_meta(meta))
    }

    /// Returns `true` if the entry of a lower tier is older than the stored one. The age of one
    /// entry differs by a few milliseconds each time it is read.
    fn is_older(&self, meta: &Meta, stored: &Meta) -> bool {
        let asked_again = self.leading.options.memory_ttl.is_some()
            && !stored.is_fresh(self.leading.engine.clock.now())
            && stored.born.since(meta.born) < YOUNGER_MIN;
        stored.born > meta.born && !asked_again
    }

    /// Returns `false` if a purge came since the flight started, or if a load that started later
    /// has stored its answer. The start of the load decides, not of the flight: a flight that waits
    /// for tiers or another instance may ask the origin after a later request is answered. Called
    /// with the key locked in the flight table.
    pub(super) fn may_store(&self, meta: &Meta) -> bool {
        let (engine, primary) = (&self.leading.engine, self.leading.primary());
        let is_purged = engine.log.recorded_state(primary, meta) == PurgeState::Removed;
        // A peek is no use of the entry, which would keep it in memory longer.
        let is_outrun = match (engine.memory.peek_for(primary, &self.leading.load), &self.found) {
            (Some(stored), None) => stored.flight() > self.number,
            // An unverified entry is replaced by a verified one of the same age.
            (Some(stored), Some(_)) => {
                self.is_older(meta, &stored.meta)
                    && engine.log.state_of(primary, &stored) < PurgeState::Unverified
            }
            (None, _) => false,
        };
        !is_purged && !is_outrun && !engine.is_outdated(primary, meta)
    }

    /// Returns the answer to all callers: the entry, or the stored entry of a load that started
    /// later. The next caller gets that one, and must not get an older version than the callers of
    /// this flight.
    pub(super) fn answer(
        &self,
        entry: &Arc<Entry>,
        stored: StoreResult,
        source: Source,
    ) -> (Arc<Entry>, Source) {
        let newer = if stored == StoreResult::Refused { self.outrun_by(&entry.meta) } else { None };
        newer.map_or_else(|| (entry.clone(), source), |newer| (newer, Source::Followed))
    }

    /// Returns the entry that a load which started later has stored in memory, if it is fresh and
    /// not purged, and varies by the same fields as the entry of this flight. Its version may be
    /// older than the one of this flight: the origin may have read it before.
    pub(super) fn outrun_by(&self, meta: &Meta) -> Option<Arc<Entry>> {
        let (engine, load) = (&self.leading.engine, &self.leading.load);
        let is_for_all = load.options().answer_for == AnswerFor::All;
        if self.found.is_some() || !self.leading.rules.yields || !is_for_all {
            return None;
        }
        let (flight, primary) = (self.leading.flight(), self.leading.primary());
        let stored = engine.memory.peek_for(primary, load)?;
        // A question about the entry is answered by its own load alone.
        let is_of = |key: &Key| selection(primary, load, &stored).as_ref() == Some(key);
        let is_asked_for = flight.key() == flight.primary() || is_of(flight.key());
        let is_good = is_asked_for
            && stored.meta.vary() == meta.vary()
            && stored.flight() > self.number
            && engine.log.state_of(primary, &stored) == PurgeState::Valid
            && stored.meta.is_fresh(engine.clock.now());
        is_good.then_some(stored)
    }

    /// Lets memory use the family of variants that a lower tier knows. Called with the key locked in
    /// the flight table.
    pub(super) fn adopt_family(&self, meta: &Meta) {
        if let (Some(vary), Some(family)) = (meta.vary(), &self.family)
            && *vary == family.vary
        {
            let memory = &self.leading.engine.memory;
            memory.adopt(self.leading.primary(), vary, family.generation, meta.presence);
        }
    }

    /// Returns `true` if memory has stored the entry, or a lower tier is going to.
    pub(super) fn is_stored(&self, stored: StoreResult) -> bool {
        match stored {
            StoreResult::Stored => true,
            StoreResult::TooLarge => self.has_targets(),
            StoreResult::Refused => false,
        }
    }

    /// Marks the key of an answer that is storable but never fresh, which cannot be shared, and
    /// removes the marker after an answer that can be shared.
    pub(super) fn update_marker(&self, meta: &Meta) {
        let engine = &self.leading.engine;
        if suits(meta, PurgeState::Valid, &Demand::default(), engine.clock.now()) {
            let markers = &engine.passes[self.leading.rules.credentials as usize];
            markers.clear(self.leading.primary());
        } else {
            self.leading.mark(Marked::Unfresh, UNFRESH_REMEMBER);
        }
    }
}

impl<L: Load> Leading<L> {
    /// Stores an entry of a lower tier, in the family that it belongs to there. Called with the key
    /// locked in the flight table.
    fn store_found(&self, entry: Arc<Entry>, position: TierPosition) -> bool {
        let (memory, primary) = (&self.engine.memory, self.primary());
        if let (Some(vary), Some(generation)) = (entry.meta.vary(), position.generation) {
            memory.replace_family(primary, vary, generation, entry.meta.presence);
        }
        memory.store(primary, &self.load, entry)
    }

    /// Stores the stale entry of a lower tier in memory after a failed load, so that it may be
    /// served. The entry in memory stays unless it is older.
    pub(super) fn keep_stale(&self, stale: Option<&StaleEntry>) {
        let Some(StaleEntry { entry, position }) = stale else { return };
        let (engine, primary) = (&self.engine, self.primary());
        self.leader.unless_purged(|| {
            let is_purged = engine.log.recorded_state(primary, &entry.meta) == PurgeState::Removed;
            let known = engine.memory.peek_for(primary, &self.load);
            let is_outrun = known.is_some_and(|known| known.meta.born >= entry.meta.born);
            if !is_purged && !is_outrun {
                self.store_found(entry.clone(), *position);
            }
        });
    }
}

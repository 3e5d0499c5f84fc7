//! Self-check of purges: a sample of purged keys is read again, 1 s and 60 s after the purge. No entry
//! may be found there that the purge should have removed or made stale.
//!
//! An entry of memory is recognised by its identity, which no clock affects. An entry that was put
//! into a tier again is recognised by the time of its load, for a purge of exactly its key by this
//! instance.

use std::time::Duration;

use forebay_core::{KeyRef, PurgeState};

use crate::engine::Engine;
use crate::purge_log::self_check::Sample;
use crate::runtime::event::Event;

/// Maximum difference of the clocks of instances that share a tier. An entry that was loaded earlier
/// than this before a purge is older than the purge.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(30);

impl Engine {
    /// Notes a key that is going to be purged. `is_own` is true if this instance purges exactly this
    /// key.
    pub(super) fn sample_purge(&self, key: KeyRef<'_>, is_own: bool) {
        let entries = self.memory.peek_all(key);
        self.log.self_check.add_purge(key, &entries, is_own, self.clock.now());
    }

    /// Reads a sample of the keys again that were purged 1 s and 60 s ago, in memory and in the lower
    /// tiers. Returns the number of entries that the purges should have removed or made stale; the
    /// observer gets an event for each. Call it about once a second.
    pub async fn check_purges(&self) -> usize {
        let mut found = 0;
        for sample in self.log.self_check.take_due(self.clock.now()) {
            if self.finds_purged(&sample).await {
                found += 1;
                self.observer.observe(Event::PurgedEntryFound(sample.key.borrowed()));
            }
            self.log.self_check.put_back(sample);
        }
        found
    }

    async fn finds_purged(&self, sample: &Sample) -> bool {
        let key = sample.key.borrowed();
        let before = sample.own.map(|purged| purged.minus(CLOCKS_DIFFER_MAX));
        let found = self.memory.peek_all(key).into_iter().any(|(_, entry)| {
            let is_older = before.is_some_and(|before| entry.meta.load_started_at < before);
            (is_older || sample.has(&entry)) && self.log.state_of(key, &entry) == PurgeState::Valid
        });
        match before {
            Some(before) if !found => self.tiers_have_older(key, before).await,
            _ => found,
        }
    }
}

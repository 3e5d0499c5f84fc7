//! Purges of this instance and of others: entries are removed or made stale, loads in progress are
//! not stored, and lower tiers and other instances are told.
//!
//! This folder adds the purge methods to the engine. It uses `engine`, `purge_log`, `tiers`, `memory`
//! (limits) and `runtime`; it never sees a load or an origin.

pub(crate) mod publish;
pub(crate) mod receive;
pub(crate) mod self_check;
pub(crate) mod version;

use std::sync::Arc;

use forebay_core::{Key, KeyRef, Purge, Reach, Recorded};
use futures_util::future::join;

use crate::engine::Engine;
use crate::purge_log::bus_progress::PurgeInProgress;
use crate::purge_log::watch::{PurgesSoFar, Watch};
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::tiers::error::TierError;
use publish::{Propagation, Purged};

impl Engine {
    /// Purges entries. After it returns, no later request gets an entry that the purge affected
    /// (soft: not as fresh). The purge is published to other instances; the result says if that
    /// succeeded.
    ///
    /// It takes as long as lower tiers and the bus need, within the bounds of their operations.
    /// Once begun it is completed, even if the caller drops the future.
    pub async fn purge(self: &Arc<Self>, what: &Purge, reach: Reach) -> Purged {
        self.log.note_for_watches(what);
        let purged = match what {
            Purge::Key(key) => self.purge_key(key.borrowed(), reach).await,
            _ => self.purge_many(what, reach).await,
        };
        self.observer.observe(Event::Purged(what.kind()));
        purged
    }

    /// Starts to count the purges that can affect a key. A front end that has received an answer
    /// before it stores it asks the [`Watch`] whether a purge came in between.
    #[must_use]
    pub fn watch(&self, key: Key) -> Watch {
        self.log.watch(key)
    }

    /// Returns counts of the purges of all keys that have begun. A front end that sends a request before
    /// its load begins compares them with those within the load: if they differ, a purge may concern the
    /// answer, which must not be stored. A purge that begins later finds the load itself.
    #[must_use]
    pub fn purges_so_far(&self) -> PurgesSoFar {
        self.log.purges_so_far()
    }

    /// Purges entries of many keys. A load that starts during the publication may read an entry from a
    /// shared tier that is not purged there yet, so the purge is recorded once more afterwards.
    async fn purge_many(self: &Arc<Self>, what: &Purge, reach: Reach) -> Purged {
        let in_progress = self.record(what, reach);
        if self.lower.is_empty() && self.joined.is_none() {
            in_progress.end(true);
            return Purged::new(true, Propagation::None);
        }
        let (engine, what) = (self.clone(), what.clone());
        let publishing = spawn(async move {
            let recording = async {
                let kept = engine.lower.keep(&what, reach, engine.joined.is_some()).await;
                in_progress.end(kept);
            };
            let ((), told) = join(recording, engine.publish(&what, reach)).await;
            if !matches!(told, Propagation::None) {
                engine.record_again(&what, reach).await;
            }
            told
        });
        Purged::new(true, publishing.await.unwrap_or_else(ended))
    }

    /// Records a purge again after other instances know of it: entries read from a shared tier in
    /// the meantime may be in the tiers of this instance, too.
    async fn record_again(&self, what: &Purge, reach: Reach) {
        if !matches!(what, Purge::Key(_)) {
            let in_progress = self.record(what, reach);
            in_progress.end(self.lower.keep(what, reach, true).await);
        }
    }

    /// Records a purge of many keys in the log, and removes the flights that it affects. Of tags
    /// only the answer tells; its followers check it when it arrives. A soft purge leaves the
    /// flights: the log makes their entries stale, and their callers may get stale entries. A purge
    /// of one key is not in the log, so it removes flights whatever its reach.
    fn record(&self, what: &Purge, reach: Reach) -> PurgeInProgress {
        let (at, in_progress) = self.log.note(what, reach);
        if reach == Reach::Hard && !matches!(what, Purge::Tag(_)) {
            self.flights.purge_where(|flight| {
                flight.position < at && what.is_about(flight.primary().borrowed())
            });
        }
        in_progress
    }

    /// Purges one key: first flights and memory, then the lower tiers.
    ///
    /// 1. Under one lock, flights are cut and memory is purged: a flight that ends later is
    ///    refused, and one that ended before is found. Loads that start from here on do not look
    ///    into lower tiers, where they could find an entry that is about to be removed.
    /// 2. Commits of those flights to lower tiers are waited for.
    /// 3. The lower tiers are purged; shared ones by publishing the purge.
    async fn purge_key(self: &Arc<Self>, key: KeyRef<'_>, reach: Reach) -> Purged {
        self.sample_purge(key, true);
        if self.lower.is_empty() && self.joined.is_none() {
            let found = self.flights.purge(key, || self.purge_memory(key, reach));
            return Purged::new(found, Propagation::None);
        }
        let (purging, found) = self.flights.begin_purge(key, || self.purge_memory(key, reach));
        let (engine, in_progress) = (self.clone(), self.log.progress.begin());
        let removing = spawn(async move {
            purging.committed().await;
            let key = purging.primary();
            if engine.joined.is_none() {
                let found = engine.lower.purge(key, engine.reach_below(reach)).await;
                return (found, Propagation::None);
            }
            let purge = Purge::Key(key.to_key());
            let removing = async {
                let purged = engine.lower.purge_its_own(key, engine.reach_below(reach)).await;
                in_progress.end(purged.is_some());
                purged.unwrap_or(false)
            };
            join(removing, engine.publish(&purge, reach)).await
        });
        // The task does not panic; it can only end early with the runtime itself.
        let (below, told) = removing.await.unwrap_or_else(|error| (false, ended(error)));
        Purged::new(found | below, told)
    }

    /// Returns the reach of a purge of one key in lower tiers: hard if a tier cannot keep the
    /// variants of a softly purged key as stale entries.
    pub(crate) fn reach_below(&self, reach: Reach) -> Reach {
        if self.lower.carry_out_soft_purges() { reach } else { Reach::Hard }
    }

    /// Purges one key in memory. If a lower tier only removes, a stale entry stays in memory alone.
    /// Called with the key locked in the flight table, so that no variant is stored meanwhile.
    pub(crate) fn purge_memory(&self, key: KeyRef<'_>, reach: Reach) -> bool {
        let entries = match reach {
            Reach::Soft if self.lower.carry_out_soft_purges() => self.memory.peek_all(key),
            // A lower tier may have further variants. Without their family they are unreachable.
            Reach::Soft => {
                let entry = self.memory.get(key);
                entry.map(|entry| (key.to_key(), entry)).into_iter().collect()
            }
            Reach::Hard => Vec::new(),
        };
        if entries.is_empty() {
            return self.memory.remove(key);
        }
        let now = self.clock.now();
        for (own, entry) in entries {
            self.memory.put(own, Arc::new(entry.softened_at(now)));
        }
        true
    }

    /// Returns the number of recorded purges of sites, tags and prefixes. Every entry that was
    /// loaded before the newest of them is compared with them when it is used.
    #[must_use]
    pub fn purges_on_record(&self) -> Recorded {
        self.log.recorded()
    }
}

/// Result of a purge whose task has ended early.
fn ended(error: impl std::error::Error + Send + Sync + 'static) -> Propagation {
    Propagation::Pending(TierError::failed(error))
}

//! Purge of one key that takes time, because lower tiers have to be purged, too.

use std::sync::Arc;

use forebay_core::{Key, KeyRef};
use smallvec::SmallVec;

use super::{Flight, Flights, Shard};

/// State of a key in the table while it is being purged.
#[derive(Debug, Default)]
pub(super) struct KeyUnderPurge {
    /// Number of purges of the key in progress.
    purges: usize,
    /// Flights that they have removed. A later purge has to wait for them as well: one of them may
    /// still be committing.
    flights: SmallVec<[Arc<Flight>; 1]>,
}

/// Purge of one key in progress. Until it is dropped, flights that start do not search lower tiers
/// for the key.
#[derive(Debug)]
pub(crate) struct Purging {
    table: Arc<Flights>,
    primary: Key,
    flights: SmallVec<[Arc<Flight>; 1]>,
}

impl Flights {
    /// Runs `remove` and removes the flights of a key in one step, as [`purge`](Self::purge) does, and
    /// keeps the key marked until lower tiers are purged, too.
    pub(crate) fn begin_purge<T>(
        self: &Arc<Self>,
        primary: KeyRef<'_>,
        remove: impl FnOnce() -> T,
    ) -> (Purging, T) {
        let mut shard = self.shard(primary).lock();
        let removed = remove();
        (self.mark(&mut shard, primary), removed)
    }

    /// Runs `remove`, and if it holds, begins a purge as [`begin_purge`](Self::begin_purge) does, in
    /// one step.
    pub(crate) fn begin_purge_if(
        self: &Arc<Self>,
        primary: KeyRef<'_>,
        remove: impl FnOnce() -> bool,
    ) -> Option<Purging> {
        let mut shard = self.shard(primary).lock();
        remove().then(|| self.mark(&mut shard, primary))
    }

    fn mark(self: &Arc<Self>, shard: &mut Shard, primary: KeyRef<'_>) -> Purging {
        let removed = shard.purge(primary);
        let marked = shard.purging.entry(primary.to_key()).or_default();
        marked.purges += 1;
        marked.flights.extend(removed);
        let flights = marked.flights.clone();
        Purging { table: self.clone(), primary: primary.to_key(), flights }
    }
}

impl Purging {
    pub(crate) fn primary(&self) -> KeyRef<'_> {
        self.primary.borrowed()
    }

    /// Waits until none of the removed flights is committing to a lower tier. None of them starts to.
    pub(crate) async fn committed(&self) {
        for flight in &self.flights {
            drop(flight.committing.lock().await);
        }
    }
}

impl Drop for Purging {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.primary.borrowed()).lock();
        let Some(marked) = shard.purging.get_mut(self.primary.borrowed().bytes()) else { return };
        marked.purges -= 1;
        if marked.purges == 0 {
            shard.purging.remove(self.primary.borrowed().bytes());
        }
    }
}

//! A purge of one key that takes its time, since lower tiers have to be purged too.

use std::sync::Arc;

use forebay_core::{Key, KeyRef};
use smallvec::SmallVec;

use super::{Flight, Flights, Shard};

/// What the board knows of a key as long as it is being purged.
#[derive(Debug, Default)]
pub(super) struct UnderPurge {
    /// How many purges of the key are under way.
    purges: usize,
    /// The flights that they have cut. A later purge has to wait for these as well: one of them
    /// may be committing still.
    cut: SmallVec<[Arc<Flight>; 1]>,
}

/// A purge of one key under way. Flights that depart meanwhile do not look for the key in lower
/// tiers; dropping this ends that.
#[derive(Debug)]
pub(crate) struct Purging {
    flights: Arc<Flights>,
    primary: Key,
    cut: SmallVec<[Arc<Flight>; 1]>,
}

impl Flights {
    /// As [`cut`](Self::cut), and keeps the key marked until lower tiers are purged, too.
    pub(crate) fn purging<T>(
        self: &Arc<Self>,
        primary: KeyRef<'_>,
        remove: impl FnOnce() -> T,
    ) -> (Purging, T) {
        let mut shard = self.shard(primary).lock();
        let removed = remove();
        (self.mark(&mut shard, primary), removed)
    }

    /// The same, if `remove` holds, in one step with it; nothing if it does not.
    pub(crate) fn purging_if(
        self: &Arc<Self>,
        primary: KeyRef<'_>,
        remove: impl FnOnce() -> bool,
    ) -> Option<Purging> {
        let mut shard = self.shard(primary).lock();
        remove().then(|| self.mark(&mut shard, primary))
    }

    fn mark(self: &Arc<Self>, shard: &mut Shard, primary: KeyRef<'_>) -> Purging {
        let cut = shard.cut(primary);
        let marked = shard.purging.entry(primary.to_key()).or_default();
        marked.purges += 1;
        marked.cut.extend(cut);
        let cut = marked.cut.clone();
        Purging { flights: self.clone(), primary: primary.to_key(), cut }
    }
}

impl Purging {
    pub(crate) fn primary(&self) -> KeyRef<'_> {
        self.primary.borrowed()
    }

    /// Waits until none of the cut flights is committing to a lower tier. None of them starts to.
    pub(crate) async fn committed(&self) {
        for flight in &self.cut {
            drop(flight.committing.lock().await);
        }
    }
}

impl Drop for Purging {
    fn drop(&mut self) {
        let mut shard = self.flights.shard(self.primary.borrowed()).lock();
        let Some(marked) = shard.purging.get_mut(self.primary.borrowed().bytes()) else { return };
        marked.purges -= 1;
        if marked.purges == 0 {
            shard.purging.remove(self.primary.borrowed().bytes());
        }
    }
}

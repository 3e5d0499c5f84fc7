//! Watching a key for purges, for a request that has an answer before any flight has started.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use forebay_core::{Key, KeyRef, Purge};
use smallvec::SmallVec;

use crate::runtime::sync::Mutex;
use crate::runtime::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of watches. Each is a request in progress, of which there are fewer. One more
/// watch counts as affected by a purge, so that its answer is not stored.
const WATCHES_MAX: usize = 16_384;

/// Keys that are watched.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Number of watches. It is 0 most of the time, and then the lock is not taken.
    count: AtomicUsize,
    /// Number of purges of keys so far.
    key_purges: AtomicU64,
    by_key: Mutex<HashMap<Key, Watching, ahash::RandomState>>,
}

/// Counts of the purges that have begun up to a moment; see [`Engine::purges_so_far`](crate::Engine::purges_so_far).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgesSoFar {
    of_keys: u64,
    /// Newest position of the purge log.
    position: u64,
}

/// Purge counts of the watches of one key.
type Watching = SmallVec<[Arc<AtomicU64>; 1]>;

/// Counter of the purges that can affect one key, from the moment of its creation. See
/// [`Engine::watch`](crate::Engine::watch).
pub struct Watch {
    watches: Arc<Watches>,
    key: Key,
    /// Newest position of the purge log.
    newest: Arc<AtomicU64>,
    /// Position of the purge log when the watch began.
    begun_at: u64,
    /// `None` if there were too many watches.
    purges: Option<Arc<AtomicU64>>,
}

impl Watch {
    pub(super) fn begin(watches: &Arc<Watches>, key: Key, newest: &Arc<AtomicU64>) -> Self {
        let purges = watches.begin(&key);
        let begun_at = newest.load(Ordering::Acquire);
        Self { watches: watches.clone(), key, newest: newest.clone(), begun_at, purges }
    }

    /// Returns `true` if no purge has begun since the start of the watch that could affect the key,
    /// other than the caller's own, which must have ended: `own` purges of the key itself, and
    /// `logged` purges of tags, prefixes, sites or everything. Every purge of the latter kinds
    /// counts, whatever it names, and so does a change of the state of the bus. Always `false` if
    /// 16,384 watches existed when this one began.
    #[must_use]
    pub fn saw_only(&self, own: u64, logged: u64) -> bool {
        let passed = self.newest.load(Ordering::Acquire) - self.begun_at;
        let is_own = |purges: &Arc<AtomicU64>| purges.load(Ordering::SeqCst) == own;
        self.purges.as_ref().is_some_and(is_own) && passed == logged
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let purges = self.purges.as_ref().map(|purges| purges.load(Ordering::SeqCst));
        write!(f, "Watch({:?}, {purges:?} purges)", self.key)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(purges) = &self.purges else { return };
        let mut by_key = self.watches.by_key.lock();
        let bytes = self.key.borrowed().bytes();
        if let Some(watching) = by_key.get_mut(bytes) {
            watching.retain(|one| !Arc::ptr_eq(one, purges));
            if watching.is_empty() {
                by_key.remove(bytes);
            }
        }
        self.watches.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watches {
    /// Returns the count of a new watch, or `None` if there are too many.
    fn begin(&self, key: &Key) -> Option<Arc<AtomicU64>> {
        let mut by_key = self.by_key.lock();
        if self.count.load(Ordering::SeqCst) >= WATCHES_MAX {
            return None;
        }
        let purges = Arc::new(AtomicU64::new(0));
        by_key.entry(key.clone()).or_default().push(purges.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(purges)
    }

    /// Counts a purge. Called before it removes anything.
    pub(super) fn note(&self, what: &Purge) {
        let Purge::Key(key) = what else { return };
        self.key_purges.fetch_add(1, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            self.note_key(key.borrowed());
        }
    }

    /// Returns the purges so far. `newest` is the newest position of the purge log.
    pub(super) fn so_far(&self, newest: &AtomicU64) -> PurgesSoFar {
        let position = newest.load(Ordering::Acquire);
        PurgesSoFar { of_keys: self.key_purges.load(Ordering::SeqCst), position }
    }

    fn note_key(&self, key: KeyRef<'_>) {
        for watching in self.by_key.lock().get(key.bytes()).into_iter().flatten() {
            watching.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::{KeyBuf, Reach};

    use super::super::PurgeLog;
    use super::*;
    use crate::runtime::clock::SystemClock;

    fn log() -> PurgeLog {
        PurgeLog::new(Arc::new(SystemClock), None)
    }

    #[test]
    fn a_watch_counts_the_purges_of_its_key_and_no_others() {
        let log = log();
        let key = |name: &str| KeyBuf::new("site").part(name.as_bytes()).borrowed().to_key();
        let purge = |name: &str| log.note_for_watches(&Purge::Key(key(name)));
        let watch = log.watch(key("a"));
        let second = log.watch(key("a"));
        purge("b");
        assert!(watch.saw_only(0, 0));
        purge("a");
        assert!(watch.saw_only(1, 0) && second.saw_only(1, 0) && !watch.saw_only(0, 0));
        drop(second);
        purge("a");
        assert!(watch.saw_only(2, 0));
        log.note(&Purge::All, Reach::Soft).1.end(true);
        assert!(!watch.saw_only(2, 0) && watch.saw_only(2, 1));
        drop(watch);
        assert!(log.watches.by_key.lock().is_empty());
        assert_eq!(log.watches.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn every_purge_changes_the_purges_so_far() {
        let log = log();
        let begun = log.purges_so_far();
        assert_eq!(log.purges_so_far(), begun);
        log.note_for_watches(&Purge::Key(KeyBuf::new("site").borrowed().to_key()));
        let second = log.purges_so_far();
        assert_ne!(second, begun);
        log.note(&Purge::All, Reach::Soft).1.end(true);
        assert_ne!(log.purges_so_far(), second);
    }

    #[test]
    fn one_watch_too_many_counts_as_affected() {
        let log = log();
        let key =
            |number: usize| KeyBuf::new("site").part(&number.to_le_bytes()).borrowed().to_key();
        let mut all: Vec<_> = (0..WATCHES_MAX).map(|number| log.watch(key(number))).collect();
        assert!(all.iter().all(|watch| watch.saw_only(0, 0)));
        let late = log.watch(key(0));
        assert!(!late.saw_only(0, 0), "it counts nothing");
        drop((late, all.pop()));
        assert_eq!(log.watches.count.load(Ordering::SeqCst), WATCHES_MAX - 1);
        assert!(log.watch(key(0)).saw_only(0, 0), "there is space again");
    }
}

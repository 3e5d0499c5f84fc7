//! Watching a key for purges, for who has an answer of it before any flight has departed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use forebay_core::{Key, KeyRef, Position, Purge};
use smallvec::SmallVec;

use crate::Engine;
use crate::runtime::sync::Mutex;
use crate::runtime::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many may watch at once: each is a request under way, of which there are fewer. Beyond it a
/// watch counts as one that has seen what must not be, and the answer is not stored.
const WATCHES_MAX: usize = 16_384;

/// Those who watch. As many as there are requests under way that may be stored in this way.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// How many there are: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
    by_key: Mutex<HashMap<Key, Watching, ahash::RandomState>>,
}

/// What those who watch one key have seen.
type Watching = SmallVec<[Arc<AtomicU64>; 1]>;

/// Sees every purge of its key from its beginning on.
pub struct Watch {
    engine: Arc<Engine>,
    key: Key,
    position: Position,
    /// Nothing if there were too many already.
    purges: Option<Arc<AtomicU64>>,
}

impl Engine {
    /// Watches a key. A load that is given an answer which was made in the meantime asks what the
    /// watch has seen: it is on the board by then, where later purges find it.
    #[must_use]
    pub fn watch(self: &Arc<Self>, key: Key) -> Watch {
        let purges = self.watches.begin(&key);
        Watch { engine: self.clone(), key, position: self.position(), purges }
    }
}

impl Watch {
    /// Whether no purge has begun that could reach its key, but for `own` purges of that key and
    /// `logged` ones that name no key. All of those must be over.
    #[must_use]
    pub fn saw_only(&self, own: u64, logged: u64) -> bool {
        let passed = self.engine.position().number() - self.position.number();
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
        let watches = &self.engine.watches;
        let mut by_key = watches.by_key.lock();
        let bytes = self.key.borrowed().bytes();
        if let Some(watching) = by_key.get_mut(bytes) {
            watching.retain(|one| !Arc::ptr_eq(one, purges));
            if watching.is_empty() {
                by_key.remove(bytes);
            }
        }
        watches.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watches {
    /// What somebody who watches a key counts with. Nothing if too many do.
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

    /// A purge begins: before it removes anything.
    pub(crate) fn note(&self, what: &Purge) {
        if let Purge::Key(key) = what
            && self.count.load(Ordering::SeqCst) > 0
        {
            self.note_key(key.borrowed());
        }
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

    use super::*;
    use crate::{Limits, SystemClock};

    #[tokio::test]
    async fn a_watch_sees_what_reaches_its_key_and_nothing_else() {
        let engine = Engine::new(Limits::of(1 << 20), Arc::new(SystemClock), Arc::new(()));
        let key = |name: &str| KeyBuf::new("site").part(name.as_bytes()).borrowed().to_key();
        let watch = engine.watch(key("a"));
        let second = engine.watch(key("a"));
        engine.purge(&Purge::Key(key("b")), Reach::Hard).await;
        assert!(watch.saw_only(0, 0));
        engine.purge(&Purge::Key(key("a")), Reach::Soft).await;
        assert!(watch.saw_only(1, 0) && second.saw_only(1, 0) && !watch.saw_only(0, 0));
        drop(second);
        engine.purge(&Purge::Key(key("a")), Reach::Hard).await;
        assert!(watch.saw_only(2, 0));
        engine.purge(&Purge::All, Reach::Soft).await;
        assert!(!watch.saw_only(2, 0) && watch.saw_only(2, 1));
        drop(watch);
        assert!(engine.watches.by_key.lock().is_empty());
        assert_eq!(engine.watches.count.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn no_more_watch_than_may_and_who_does_not_is_told() {
        let engine = Engine::new(Limits::of(1 << 20), Arc::new(SystemClock), Arc::new(()));
        let key =
            |number: usize| KeyBuf::new("site").part(&number.to_le_bytes()).borrowed().to_key();
        let mut all: Vec<_> = (0..WATCHES_MAX).map(|number| engine.watch(key(number))).collect();
        assert!(all.iter().all(|watch| watch.saw_only(0, 0)));
        let late = engine.watch(key(0));
        assert!(!late.saw_only(0, 0), "nobody would have told it anything");
        drop((late, all.pop()));
        assert_eq!(engine.watches.count.load(Ordering::SeqCst), WATCHES_MAX - 1);
        assert!(engine.watch(key(0)).saw_only(0, 0), "there is room again");
    }
}

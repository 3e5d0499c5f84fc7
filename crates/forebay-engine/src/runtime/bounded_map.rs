//! Map of facts about keys, bounded in bytes.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::{Key, KeyRef};
use quick_cache::{OptionsBuilder, Weighter, sync};

/// Maximum size of one map, in bytes. The least used keys are removed first.
const BYTES_MAX: u64 = 4 << 20;

/// Number of shards: few, because no map is on the hit path.
const SHARDS: usize = 4;

/// Map of facts about keys. A fact may be removed at any time.
#[derive(Debug)]
pub(crate) struct BoundedMap<V: Clone + Debug> {
    by_key: sync::Cache<Key, V, ByKey, ahash::RandomState>,
    /// Set by the first insertion: most maps never have a fact, and then nothing is looked up.
    is_used: AtomicBool,
}

/// Size of a key and its fact.
#[derive(Clone, Copy, Debug)]
struct ByKey {
    overhead: u64,
}

impl<V> Weighter<Key, V> for ByKey {
    fn weight(&self, key: &Key, _value: &V) -> u64 {
        key.size() as u64 + self.overhead
    }
}

impl<V: Clone + Debug> BoundedMap<V> {
    /// Creates a map in which each key counts `overhead` bytes besides its own.
    pub(crate) fn new(overhead: u64) -> Self {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .weight_capacity(BYTES_MAX)
            .estimated_items_capacity(1_024)
            .build()
            .expect("capacity and item estimate are both given");
        let hasher = ahash::RandomState::new();
        let lifecycle = sync::DefaultLifecycle::default();
        let by_key = sync::Cache::with_options(options, ByKey { overhead }, hasher, lifecycle);
        Self { by_key, is_used: AtomicBool::new(false) }
    }

    pub(crate) fn insert(&self, key: KeyRef<'_>, value: V) {
        self.is_used.store(true, Ordering::Release);
        self.by_key.insert(key.to_key(), value);
    }

    /// Returns the fact of a key.
    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<V> {
        if self.is_used.load(Ordering::Acquire) { self.by_key.get(key.bytes()) } else { None }
    }

    pub(crate) fn remove(&self, key: KeyRef<'_>) {
        if self.is_used.load(Ordering::Acquire) {
            self.by_key.remove(key.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    #[test]
    fn it_is_bounded_in_bytes() {
        let map = BoundedMap::new(96);
        for number in 0..100_000_u32 {
            let key = KeyBuf::new("test").part(&[7; 500]).part(&number.to_le_bytes()).clone();
            map.insert(key.borrowed(), number);
        }
        assert!(map.by_key.weight() <= BYTES_MAX);
        assert!(map.by_key.weight() > BYTES_MAX / 2, "it is used");
    }
}

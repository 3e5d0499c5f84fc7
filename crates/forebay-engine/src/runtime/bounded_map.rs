//! What is remembered of keys for a while, beside what is stored under them: bounded in bytes.

use std::fmt::Debug;

use forebay_core::{Key, KeyRef};
use quick_cache::{OptionsBuilder, Weighter, sync};

/// What one memory of this kind may occupy, in bytes; the least used go first.
const BYTES_MAX: u64 = 4 << 20;

/// None of these is on the hit path: few shards do.
const SHARDS: usize = 4;

/// Something about each of some keys. It may be forgotten at any time.
#[derive(Debug)]
pub(crate) struct Remembered<V: Clone + Debug> {
    by_key: sync::Cache<Key, V, ByKey, ahash::RandomState>,
}

/// The weight of a key, and what belongs to it beside.
#[derive(Clone, Copy, Debug)]
struct ByKey {
    overhead: u64,
}

impl<V> Weighter<Key, V> for ByKey {
    fn weight(&self, key: &Key, _value: &V) -> u64 {
        key.size() as u64 + self.overhead
    }
}

impl<V: Clone + Debug> Remembered<V> {
    /// Each key costs `overhead` bytes beside its own.
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
        Self { by_key }
    }

    pub(crate) fn note(&self, key: KeyRef<'_>, value: V) {
        self.by_key.insert(key.to_key(), value);
    }

    /// Mostly there is nothing at all, and then nothing is looked up.
    pub(crate) fn of(&self, key: KeyRef<'_>) -> Option<V> {
        if self.by_key.is_empty() { None } else { self.by_key.get(key.bytes()) }
    }

    pub(crate) fn forget(&self, key: KeyRef<'_>) {
        if !self.by_key.is_empty() {
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
        let remembered = Remembered::new(96);
        for number in 0..100_000_u32 {
            let key = KeyBuf::new("test").part(&[7; 500]).part(&number.to_le_bytes()).clone();
            remembered.note(key.borrowed(), number);
        }
        assert!(remembered.by_key.weight() <= BYTES_MAX);
        assert!(remembered.by_key.weight() > BYTES_MAX / 2, "it is made use of");
    }
}

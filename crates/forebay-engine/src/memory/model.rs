//! Model of the memory tier: its eviction policy over keys, sizes and lifetimes alone.

use std::time::Duration;

use forebay_core::heap;
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::slots::ITEMS_MIN;
use super::{ABSENT_SHARE, TYPICAL_ENTRY};
use crate::entry::SLOT_OVERHEAD;

/// Bytes that an entry takes besides its body: key, head, metadata, places in the tables. Measured with
/// eight fields in the head; pages with a dozen take some hundred more.
const ENTRY_OVERHEAD: u64 = 640 + SLOT_OVERHEAD as u64;

/// Entry of the model.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    bytes: u64,
    /// End of its freshness lifetime.
    expires: Duration,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<u64, Modelled> for ByBytes {
    fn weight(&self, _: &u64, entry: &Modelled) -> u64 {
        entry.bytes
    }
}

/// Memory tier that stores no bodies. It answers whether requests would have been fresh hits.
pub struct MemoryModel {
    cache: Cache<u64, Modelled, ByBytes, DefaultHashBuilder>,
}

impl std::fmt::Debug for MemoryModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryModel").finish_non_exhaustive()
    }
}

impl MemoryModel {
    /// Creates a model of a memory tier with this size in bytes, without bodies in flight. As in the
    /// tier, a part is for negative entries, which are not modelled.
    ///
    /// # Panics
    /// Never: size and number of entries are both given.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let size = size - size / ABSENT_SHARE;
        let items = usize::try_from((size / TYPICAL_ENTRY).max(ITEMS_MIN)).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(1)
            .weight_capacity(size)
            .estimated_items_capacity(items)
            .build()
            .expect("capacity and item estimate are both given");
        let lifecycle = quick_cache::unsync::DefaultLifecycle::default();
        let hasher = DefaultHashBuilder::default();
        Self { cache: Cache::with_options(options, ByBytes, hasher, lifecycle) }
    }

    /// Requests a key at `now`, and returns true if it is a fresh hit. Otherwise the response is
    /// stored with a body of this size and this lifetime; `None` is without end.
    pub fn request(
        &mut self,
        key: u64,
        body: u64,
        now: Duration,
        lifetime: Option<Duration>,
    ) -> bool {
        if self.cache.get(&key).is_some_and(|entry| now < entry.expires) {
            return true;
        }
        let expires = lifetime.map_or(Duration::MAX, |lifetime| now.saturating_add(lifetime));
        let body = heap::allocated(usize::try_from(body).unwrap_or(usize::MAX));
        let bytes = (body as u64).saturating_add(ENTRY_OVERHEAD);
        self.cache.insert(key, Modelled { bytes, expires });
        false
    }
}

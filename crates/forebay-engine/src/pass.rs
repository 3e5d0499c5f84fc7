//! Pass markers: keys whose answers may not be shared, so that nobody waits for them in a queue.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Key, KeyRef, Timestamp};
use quick_cache::{OptionsBuilder, Weighter, sync};

/// What the markers may occupy, in bytes; the least used go first.
const BYTES_MAX: u64 = 4 << 20;

/// The store of markers is not on the hit path: few shards do.
const SHARDS: usize = 4;

/// What one marker costs beside its key.
const OVERHEAD: u64 = 96;

/// The markers. Each stands until its time is over unless it is confirmed, and falls when an
/// answer arrives that may be shared.
#[derive(Debug)]
pub(crate) struct PassMarkers {
    until: sync::Cache<Key, Timestamp, ByKey, ahash::RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct ByKey;

impl Weighter<Key, Timestamp> for ByKey {
    fn weight(&self, key: &Key, _until: &Timestamp) -> u64 {
        key.size() as u64 + OVERHEAD
    }
}

impl PassMarkers {
    pub(crate) fn new() -> Arc<Self> {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .weight_capacity(BYTES_MAX)
            .estimated_items_capacity(1_024)
            .build()
            .expect("capacity and item estimate are both given");
        let hasher = ahash::RandomState::new();
        let lifecycle = sync::DefaultLifecycle::default();
        Arc::new(Self { until: sync::Cache::with_options(options, ByKey, hasher, lifecycle) })
    }

    /// Remembers that answers for this key are not shared, until `remember` from now.
    pub(crate) fn mark(&self, key: KeyRef<'_>, now: Timestamp, remember: Duration) {
        if !remember.is_zero() {
            self.until.insert(key.to_key(), now.plus(remember));
        }
    }

    /// Whether a marker stands.
    pub(crate) fn stands(&self, key: KeyRef<'_>, now: Timestamp) -> bool {
        !self.until.is_empty() && self.until.get(key.bytes()).is_some_and(|until| now < until)
    }

    /// An answer came that may be shared.
    pub(crate) fn clear(&self, key: KeyRef<'_>) {
        if !self.until.is_empty() {
            self.until.remove(key.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    #[test]
    fn a_marker_stands_until_its_time_unless_confirmed_or_cleared() {
        let markers = PassMarkers::new();
        let key = KeyBuf::new("test");
        let key = key.borrowed();
        let at = Timestamp::from_millis;
        assert!(!markers.stands(key, at(0)));
        markers.mark(key, at(0), Duration::from_millis(100));
        assert!(markers.stands(key, at(99)));
        assert!(!markers.stands(key, at(100)));
        markers.mark(key, at(90), Duration::from_millis(100));
        assert!(markers.stands(key, at(189)));
        markers.clear(key);
        assert!(!markers.stands(key, at(91)));
        markers.mark(key, at(0), Duration::ZERO);
        assert!(!markers.stands(key, at(0)));
    }

    #[test]
    fn markers_are_bounded_in_bytes() {
        let markers = PassMarkers::new();
        for number in 0..100_000_u32 {
            let key = KeyBuf::new("test").part(&[7; 500]).part(&number.to_le_bytes()).clone();
            markers.mark(key.borrowed(), Timestamp::default(), Duration::from_secs(1));
        }
        assert!(markers.until.weight() <= BYTES_MAX);
    }
}

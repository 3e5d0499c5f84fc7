//! Pass markers: keys whose answers are not shared, so that their requests do not wait for each other.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Timestamp};

use crate::runtime::bounded_map::BoundedMap;

/// Bytes of one marker besides its key.
const OVERHEAD: u64 = 96;

/// A marker is renewed after its duration divided by this number.
const RENEWAL_DIVISOR: u32 = 10;

/// Markers by key. Each holds until its end unless it is renewed, and is removed when an answer
/// arrives that may be shared.
#[derive(Debug)]
pub(crate) struct PassMarkers {
    by_key: BoundedMap<(Timestamp, Marked)>,
}

/// Reason why answers of a key are not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// Sharing is not allowed. No tier stores them.
    Private,
    /// They are never fresh. They are stored, and validated for each request.
    Unfresh,
}

impl PassMarkers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { by_key: BoundedMap::new(OVERHEAD) })
    }

    /// Marks a key for the duration `remember`, unless that is zero. A marker younger than a tenth of it
    /// is kept as it is. Returns `true` if the marker was set or renewed.
    pub(crate) fn mark(
        &self,
        key: KeyRef<'_>,
        why: Marked,
        now: Timestamp,
        remember: Duration,
    ) -> bool {
        if remember.is_zero() {
            return false;
        }
        let enough = now.plus(remember - remember / RENEWAL_DIVISOR);
        let is_young =
            self.by_key.get(key).is_some_and(|known| known.1 == why && known.0 >= enough);
        if !is_young {
            self.by_key.insert(key, (now.plus(remember), why));
        }
        !is_young
    }

    /// Returns the marker of a key.
    pub(crate) fn get(&self, key: KeyRef<'_>, now: Timestamp) -> Option<Marked> {
        self.until(key, now).map(|(_, why)| why)
    }

    /// Returns the marker of a key, and its end.
    pub(crate) fn until(&self, key: KeyRef<'_>, now: Timestamp) -> Option<(Timestamp, Marked)> {
        self.by_key.get(key).filter(|(until, _)| now < *until)
    }

    /// Removes the marker of a key.
    pub(crate) fn clear(&self, key: KeyRef<'_>) {
        self.by_key.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    #[test]
    fn a_marker_holds_until_its_end_unless_renewed_or_cleared() {
        let markers = PassMarkers::new();
        let key = KeyBuf::new("test");
        let key = key.borrowed();
        let at = Timestamp::from_millis;
        assert_eq!(markers.get(key, at(0)), None);
        markers.mark(key, Marked::Private, at(0), Duration::from_millis(100));
        assert_eq!(markers.get(key, at(99)), Some(Marked::Private));
        assert_eq!(markers.get(key, at(100)), None);
        markers.mark(key, Marked::Private, at(90), Duration::from_millis(100));
        assert_eq!(markers.get(key, at(189)), Some(Marked::Private));
        markers.clear(key);
        assert_eq!(markers.get(key, at(91)), None);
        markers.mark(key, Marked::Private, at(0), Duration::ZERO);
        assert_eq!(markers.get(key, at(0)), None);
    }
}

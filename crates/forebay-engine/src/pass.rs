//! Pass markers: keys whose answers may not be shared, so that nobody waits for them in a queue.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Timestamp};

use crate::remembered::Remembered;

/// What one marker costs beside its key.
const OVERHEAD: u64 = 96;

/// The markers. Each stands until its time is over unless it is confirmed, and falls when an
/// answer arrives that may be shared.
#[derive(Debug)]
pub(crate) struct PassMarkers {
    until: Remembered<Timestamp>,
}

impl PassMarkers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { until: Remembered::new(OVERHEAD) })
    }

    /// Remembers that answers for this key are not shared, until `remember` from now.
    pub(crate) fn mark(&self, key: KeyRef<'_>, now: Timestamp, remember: Duration) {
        if !remember.is_zero() {
            self.until.note(key, now.plus(remember));
        }
    }

    /// Whether a marker stands.
    pub(crate) fn stands(&self, key: KeyRef<'_>, now: Timestamp) -> bool {
        self.until.of(key).is_some_and(|until| now < until)
    }

    /// An answer came that may be shared.
    pub(crate) fn clear(&self, key: KeyRef<'_>) {
        self.until.forget(key);
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
}

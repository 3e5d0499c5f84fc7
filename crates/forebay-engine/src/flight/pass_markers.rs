//! Pass markers: keys whose answers may not be shared, so that nobody waits for them in a queue.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Timestamp};

use crate::runtime::bounded_map::Remembered;

/// What one marker costs beside its key.
const OVERHEAD: u64 = 96;

/// The markers. Each stands until its time is over unless it is confirmed, and falls when an
/// answer arrives that may be shared.
#[derive(Debug)]
pub(crate) struct PassMarkers {
    until: Remembered<(Timestamp, Marked)>,
}

/// Why answers for a key are not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// They may not be: none stands in any tier.
    Private,
    /// They are never fresh. They are stored, and their origin is asked about them each time.
    Unfresh,
}

impl PassMarkers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { until: Remembered::new(OVERHEAD) })
    }

    /// Remembers that answers for this key are not shared, until `remember` from now.
    pub(crate) fn mark(
        &self,
        key: KeyRef<'_>,
        (why, now): (Marked, Timestamp),
        remember: Duration,
    ) {
        if !remember.is_zero() {
            self.until.note(key, (now.plus(remember), why));
        }
    }

    /// Whether a marker stands, and why.
    pub(crate) fn standing(&self, key: KeyRef<'_>, now: Timestamp) -> Option<Marked> {
        self.until.of(key).filter(|(until, _)| now < *until).map(|(_, why)| why)
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
        assert_eq!(markers.standing(key, at(0)), None);
        markers.mark(key, (Marked::Private, at(0)), Duration::from_millis(100));
        assert_eq!(markers.standing(key, at(99)), Some(Marked::Private));
        assert_eq!(markers.standing(key, at(100)), None);
        markers.mark(key, (Marked::Private, at(90)), Duration::from_millis(100));
        assert_eq!(markers.standing(key, at(189)), Some(Marked::Private));
        markers.clear(key);
        assert_eq!(markers.standing(key, at(91)), None);
        markers.mark(key, (Marked::Private, at(0)), Duration::ZERO);
        assert_eq!(markers.standing(key, at(0)), None);
    }
}

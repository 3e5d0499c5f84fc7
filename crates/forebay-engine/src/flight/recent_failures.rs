//! Back-off of keys whose last load failed.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Dice, KeyRef, Timestamp, pace};

use super::load::LoadError;
use crate::runtime::bounded_map::BoundedMap;

/// Bytes of one failure besides its key: the record, and the text of an error.
const OVERHEAD: u64 = 512;

/// Maximum time between two failures that count as consecutive. After a longer time the origin may
/// have recovered in between.
const CONSECUTIVE_MAX: Duration = Duration::from_secs(60);

/// Recent failures by key. Each starts a back-off, which grows with the number of consecutive
/// failures; the first success ends it. A failure that is evicted only ends the back-off early.
#[derive(Debug)]
pub(crate) struct RecentFailures {
    by_key: BoundedMap<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    consecutive: u32,
    at: Timestamp,
    until: Timestamp,
    error: LoadError,
}

impl RecentFailures {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { by_key: BoundedMap::new(OVERHEAD) })
    }

    /// Notes a failed load.
    pub(crate) fn note(
        &self,
        key: KeyRef<'_>,
        error: LoadError,
        now: Timestamp,
        dice: &mut impl Dice,
    ) {
        let before = self.by_key.get(key);
        let before = before.filter(|failure| now.since(failure.at) < CONSECUTIVE_MAX);
        let consecutive = before.map_or(1, |failure| failure.consecutive.saturating_add(1));
        let until = now.plus(pace::back_off(consecutive, dice.unit()));
        self.by_key.insert(key, Failure { consecutive, at: now, until, error });
    }

    /// Returns the error of the last load during the back-off.
    pub(crate) fn recent(&self, key: KeyRef<'_>, now: Timestamp) -> Option<LoadError> {
        self.until(key, now).map(|(_, error)| error)
    }

    /// Returns the end of the back-off, and the error of the last load.
    pub(crate) fn until(&self, key: KeyRef<'_>, now: Timestamp) -> Option<(Timestamp, LoadError)> {
        let failure = self.by_key.get(key)?;
        (now < failure.until).then_some((failure.until, failure.error))
    }

    /// Ends the back-off of a key after a successful load.
    pub(crate) fn forget(&self, key: KeyRef<'_>) {
        self.by_key.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    /// Random numbers that shorten no back-off.
    struct Never;

    impl Dice for Never {
        fn unit(&mut self) -> f64 {
            0.0
        }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn consecutive_failures_lengthen_the_back_off_and_a_success_ends_it() {
        let failures = RecentFailures::new();
        let key = KeyBuf::new("test");
        let key = key.borrowed();
        let fail = |millis| {
            failures.note(key, LoadError::origin("no route"), at(millis), &mut Never);
        };
        assert!(failures.recent(key, at(0)).is_none());
        fail(0);
        assert!(failures.recent(key, at(0)).is_none(), "one failure is nothing yet");
        fail(0);
        assert!(failures.recent(key, at(99)).is_some());
        assert!(failures.recent(key, at(100)).is_none());
        fail(100);
        assert!(failures.recent(key, at(299)).is_some());
        assert!(failures.recent(key, at(300)).is_none());
        fail(60_101);
        assert!(failures.recent(key, at(60_101)).is_none(), "it was no longer in a row");
        fail(60_102);
        assert!(failures.recent(key, at(60_103)).is_some());
        failures.forget(key);
        assert!(failures.recent(key, at(60_103)).is_none());
    }
}

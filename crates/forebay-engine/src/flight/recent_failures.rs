//! Keys whose last load failed: none is begun for them until a moment has passed.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Dice, KeyRef, Timestamp, pace};

use crate::flight::load::LoadError;
use crate::runtime::bounded_map::Remembered;

/// What one failure costs beside its key: the place, and the words of an error.
const OVERHEAD: u64 = 512;

/// How long after a failure the next one counts as another in a row. Beyond it the origin may
/// have been well and gone again.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// The failures of late. Each holds loads back for a moment, the longer the more there were in a
/// row; the first success forgets them. One that is forgotten early is merely asked for sooner.
#[derive(Debug)]
pub(crate) struct RecentFailures {
    by_key: Remembered<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    in_a_row: u32,
    at: Timestamp,
    until: Timestamp,
    error: LoadError,
}

impl RecentFailures {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { by_key: Remembered::new(OVERHEAD) })
    }

    /// A load for this key has failed.
    pub(crate) fn note(
        &self,
        key: KeyRef<'_>,
        error: LoadError,
        (now, dice): (Timestamp, &mut impl Dice),
    ) {
        let before = self.by_key.of(key);
        let before = before.filter(|failure| now.since(failure.at) < IN_A_ROW);
        let in_a_row = before.map_or(1, |failure| failure.in_a_row.saturating_add(1));
        let until = now.plus(pace::back_off(in_a_row, dice.unit()));
        self.by_key.note(key, Failure { in_a_row, at: now, until, error });
    }

    /// What the last load failed by, if nothing is to be loaded yet.
    pub(crate) fn recent(&self, key: KeyRef<'_>, now: Timestamp) -> Option<LoadError> {
        let failure = self.by_key.of(key)?;
        (now < failure.until).then_some(failure.error)
    }

    /// A load for this key has brought something.
    pub(crate) fn forget(&self, key: KeyRef<'_>) {
        self.by_key.forget(key);
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    /// Dice that take nothing away.
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
    fn failures_in_a_row_hold_back_longer_and_a_success_forgets_them() {
        let failures = RecentFailures::new();
        let key = KeyBuf::new("test");
        let key = key.borrowed();
        let fail = |millis| {
            failures.note(key, LoadError::origin("no route"), (at(millis), &mut Never));
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

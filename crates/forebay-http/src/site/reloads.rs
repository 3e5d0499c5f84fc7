//! Limit on requests whose directives force a fetch of an entry that is still fresh.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use forebay_core::Timestamp;

/// Counter of the forced fetches of one site in the current second.
#[derive(Debug, Default)]
pub(crate) struct ReloadCounter {
    second: AtomicI64,
    seen: AtomicU32,
}

impl ReloadCounter {
    /// Returns true if the next one is above the limit, without counting it.
    pub(crate) fn would_exceed(&self, most: u32, now: Timestamp) -> bool {
        let second = now.as_millis().div_euclid(1_000);
        let is_same = self.second.load(Ordering::Relaxed) == second;
        let seen = if is_same { self.seen.load(Ordering::Relaxed) } else { 0 };
        seen >= most
    }

    /// Counts one, and returns true if it is above the limit.
    ///
    /// Concurrent calls at the start of a second may admit a few more or fewer.
    pub(crate) fn exceeds(&self, most: u32, now: Timestamp) -> bool {
        let second = now.as_millis().div_euclid(1_000);
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.seen.store(0, Ordering::Relaxed);
        }
        self.seen.fetch_add(1, Ordering::Relaxed) >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own_limit() {
        let counter = ReloadCounter::default();
        let at = |millis| Timestamp::from_millis(millis);
        let exceeded = |millis| {
            let foreseen = counter.would_exceed(2, at(millis));
            assert_eq!(counter.would_exceed(2, at(millis)), foreseen, "asking does not count");
            let exceeded = counter.exceeds(2, at(millis));
            assert_eq!(exceeded, foreseen);
            exceeded
        };
        assert_eq!([exceeded(5_000), exceeded(5_001), exceeded(5_999)], [false, false, true]);
        assert_eq!([exceeded(6_000), exceeded(6_001), exceeded(6_002)], [false, false, true]);
        assert!(counter.exceeds(0, at(9_000)));
    }
}

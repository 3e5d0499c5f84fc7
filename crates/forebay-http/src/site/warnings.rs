//! Limit on warnings per site: an origin that is down must not fill the disk with its log.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use forebay_core::Timestamp;

/// Maximum number of warnings per second and site. The others are counted, and the next warning of
/// the site reports their number.
const PER_SECOND_MAX: u64 = 10;

/// Limiter of one site's warnings.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    second: AtomicI64,
    seen: AtomicU64,
    suppressed: AtomicU64,
}

impl Warnings {
    /// Admits one warning, with the number of warnings that were suppressed since the last one;
    /// `None` suppresses it.
    ///
    /// Concurrent calls at the start of a second may admit a few more or fewer.
    pub(crate) fn admit(&self, now: Timestamp) -> Option<u64> {
        let second = now.as_millis().div_euclid(1_000);
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.seen.store(0, Ordering::Relaxed);
        }
        if self.seen.fetch_add(1, Ordering::Relaxed) < PER_SECOND_MAX {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_limit_warnings_are_suppressed_and_the_next_one_has_their_number() {
        let warnings = Warnings::default();
        let early = Timestamp::from_millis(5_000);
        let admitted = (0..100).filter_map(|_| warnings.admit(early)).collect::<Vec<_>>();
        assert_eq!(admitted, vec![0; 10]);
        assert_eq!(warnings.admit(Timestamp::from_millis(6_000)), Some(90));
        assert_eq!(warnings.admit(Timestamp::from_millis(6_001)), Some(0));
    }
}

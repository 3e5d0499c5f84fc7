//! A bound on warnings: an origin that is down must not fill the disk with its log.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use forebay_core::Timestamp;

/// Warnings per second; the rest are counted, and the count is told with the next.
const PER_SECOND_MAX: u64 = 10;

/// How many warnings this second has seen, and how many were left out.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    second: AtomicI64,
    seen: AtomicU64,
    left_out: AtomicU64,
}

impl Warnings {
    /// Whether one more may be written; if so, how many were left out before it.
    ///
    /// Threads that meet at the turn of a second may write a few more or fewer.
    pub(crate) fn admit(&self, now: Timestamp) -> Option<u64> {
        let second = now.as_millis().div_euclid(1_000);
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.seen.store(0, Ordering::Relaxed);
        }
        if self.seen.fetch_add(1, Ordering::Relaxed) < PER_SECOND_MAX {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_room_for_a_few_and_the_next_tells_of_the_rest() {
        let warnings = Warnings::default();
        let early = Timestamp::from_millis(5_000);
        let admitted = (0..100).filter_map(|_| warnings.admit(early)).collect::<Vec<_>>();
        assert_eq!(admitted, vec![0; 10]);
        assert_eq!(warnings.admit(Timestamp::from_millis(6_000)), Some(90));
        assert_eq!(warnings.admit(Timestamp::from_millis(6_001)), Some(0));
    }
}

//! Limit on warnings per site and failure code: an origin that is down must not fill the disk with
//! its log, nor hide a failure of another kind.

use forebay_core::Timestamp;
use parking_lot::Mutex;

/// Maximum number of warnings per second, site and code. The others are counted, and the next
/// warning of the site with this code reports their number.
const PER_SECOND_MAX: u64 = 10;

/// Limiter of the warnings of one site, or of another part of a process. It is locked on failures only.
#[derive(Debug, Default)]
pub struct WarningLimits {
    /// One limiter for each code that occurred. Codes are a closed set.
    by_code: Mutex<Vec<(&'static str, Limiter)>>,
}

/// Limiter of the warnings with one code.
#[derive(Debug, Default)]
struct Limiter {
    second: i64,
    seen: u64,
    suppressed: u64,
}

impl WarningLimits {
    /// Admits one warning, with the number of warnings that were suppressed since the last one;
    /// `None` suppresses it.
    pub fn admit(&self, code: &'static str, now: Timestamp) -> Option<u64> {
        let mut by_code = self.by_code.lock();
        if let Some((_, limiter)) = by_code.iter_mut().find(|(known, _)| *known == code) {
            return limiter.admit(now);
        }
        let mut limiter = Limiter::default();
        let admitted = limiter.admit(now);
        by_code.push((code, limiter));
        admitted
    }
}

impl Limiter {
    fn admit(&mut self, now: Timestamp) -> Option<u64> {
        let second = now.as_millis().div_euclid(1_000);
        if self.second != second {
            (self.second, self.seen) = (second, 0);
        }
        self.seen += 1;
        if self.seen <= PER_SECOND_MAX {
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_limit_warnings_are_suppressed_and_the_next_one_has_their_number() {
        let warnings = WarningLimits::default();
        let early = Timestamp::from_millis(5_000);
        let admitted: Vec<_> = (0..100).filter_map(|_| warnings.admit("a", early)).collect();
        assert_eq!(admitted, vec![0; 10]);
        assert_eq!(warnings.admit("b", early), Some(0), "a failure of another kind");
        assert_eq!(warnings.admit("a", Timestamp::from_millis(6_000)), Some(90));
        assert_eq!(warnings.admit("a", Timestamp::from_millis(6_001)), Some(0));
    }
}

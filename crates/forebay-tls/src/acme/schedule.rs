//! Times of renewals, and of attempts after a failure. Pure.

use std::time::{Duration, SystemTime};

use crate::certificate::Validity;

/// Time after the first failed attempt; it doubles with each further one.
const BACK_OFF_MIN: Duration = Duration::from_secs(60);

/// Longest time after a failed attempt.
const BACK_OFF_MAX: Duration = Duration::from_secs(6 * 3_600);

/// Longest time that a `Retry-After` of the authority may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Largest deviation of a back-off, as a part of it: instances that failed together do not return
/// together.
const JITTER: f64 = 0.1;

/// Shortest time between two certificates of one name, if a third of its lifetime is not shorter.
/// It bounds the orders that a wrong renewal time of the authority causes.
const RENEWAL_GAP: Duration = Duration::from_secs(3_600);

/// Renewal window that the authority suggests (RFC 9773).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// First moment.
    pub(crate) begin: SystemTime,
    /// Last moment.
    pub(crate) end: SystemTime,
}

impl Validity {
    /// Returns the time of the renewal without a suggestion of the authority: two thirds of the
    /// lifetime.
    pub(crate) fn renewal(self) -> SystemTime {
        self.begin + self.lifetime() * 2 / 3
    }

    /// Returns a time in a suggested window (RFC 9773 section 4.2); `random` is in 0..1. It is
    /// never in the last tenth of the lifetime.
    pub(crate) fn renewal_within(self, window: Window, random: f64) -> SystemTime {
        let length = window.end.duration_since(window.begin).unwrap_or_default();
        let chosen = window.begin + length.mul_f64(random);
        chosen.min(self.end - self.lifetime() / 10)
    }

    /// Returns the earliest time of a renewal of a certificate that was obtained at `obtained`.
    pub(crate) fn earliest_renewal(self, obtained: SystemTime) -> SystemTime {
        obtained + RENEWAL_GAP.min(self.lifetime() / 3)
    }
}

/// Returns the time between the last of `failures` failed attempts, at least one, and the next
/// attempt. `random` is in 0..1.
pub(crate) fn back_off(failures: u32, retry_after: Option<Duration>, random: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let doubled = BACK_OFF_MIN.saturating_mul(1 << doublings).min(BACK_OFF_MAX);
    let jittered = doubled.mul_f64(1.0 - JITTER + 2.0 * JITTER * random);
    jittered.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(days: u32) -> SystemTime {
        UNIX_EPOCH + DAY * days
    }

    #[test]
    fn a_failed_attempt_is_repeated_after_a_growing_time() {
        let rows = [
            (1, None, 60),
            (2, None, 120),
            (5, None, 960),
            (9, None, 15_360),
            (10, None, 21_600),
            (1_000_000, None, 21_600),
            (1, Some(10), 60),
            (1, Some(3_600), 3_600),
            (10, Some(86_400 * 30), 86_400),
        ];
        for (failures, retry_after, seconds) in rows {
            let retry_after = retry_after.map(Duration::from_secs);
            let waited = back_off(failures, retry_after, 0.5);
            assert_eq!(waited.as_secs_f64().round(), f64::from(seconds), "{failures}");
        }
        assert_eq!(back_off(1, None, 0.0).as_secs(), 54);
        assert_eq!(back_off(1, None, 1.0).as_secs(), 66);
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_or_as_suggested() {
        let validity = Validity { begin: at(0), end: at(90) };
        assert_eq!(validity.renewal(), at(60));
        let window = |begin, end| Window { begin: at(begin), end: at(end) };
        assert_eq!(validity.renewal_within(window(50, 52), 0.0), at(50));
        assert_eq!(validity.renewal_within(window(50, 52), 0.5), at(51));
        // An instance that was off, or a window after the end.
        assert_eq!(validity.renewal_within(window(0, 0), 0.9), at(0));
        assert_eq!(validity.renewal_within(window(100, 110), 0.1), at(81));
    }

    #[test]
    fn a_wrong_suggestion_does_not_cause_an_order_each_minute() {
        let long = Validity { begin: at(0), end: at(90) };
        assert_eq!(long.earliest_renewal(at(1)), at(1) + Duration::from_secs(3_600));
        let short = Validity { begin: at(0), end: at(0) + Duration::from_secs(30) };
        assert_eq!(short.earliest_renewal(at(0)), at(0) + Duration::from_secs(10));
    }

    #[test]
    fn the_last_tenth_is_the_end() {
        let validity = Validity { begin: at(0), end: at(90) };
        assert!(!validity.is_ending(at(80)) && validity.is_ending(at(82)));
        assert!(validity.is_ending(at(100)));
    }
}

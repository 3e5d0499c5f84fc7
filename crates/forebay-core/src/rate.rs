//! Rate limit of one client: the generic cell rate algorithm, a token bucket in one number.

use std::time::Duration;

use crate::Timestamp;

/// Rate limit for each client on its own: an average rate, and the number of requests that may come
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Time between two requests at the exact rate, in microseconds; at least one.
    interval: i64,
    /// Number of requests that may come at once; at least one.
    burst: u32,
}

/// State of one client: the time at which its bucket is full again, in microseconds. The default is
/// a client without earlier requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketFull(i64);

impl Default for BucketFull {
    fn default() -> Self {
        Self(i64::MIN)
    }
}

impl RateLimit {
    /// Creates a limit of `requests` per `period` on average. After a pause, up to `burst` requests
    /// may come at once. Zero requests or a zero burst count as one.
    #[must_use]
    pub fn new(requests: u32, period: Duration, burst: u32) -> Self {
        let interval = period.as_micros() / u128::from(requests.max(1));
        Self { interval: i64::try_from(interval).unwrap_or(i64::MAX).max(1), burst: burst.max(1) }
    }

    /// Admits a request at `now`, and returns the new state of the client.
    ///
    /// # Errors
    /// The time after which the next request is admitted, if the client has used up its burst. The
    /// caller then keeps the previous state: refused requests do not count.
    pub fn admit(self, state: BucketFull, now: Timestamp) -> Result<BucketFull, Duration> {
        let now = now.as_millis().saturating_mul(1_000);
        let full = state.0.max(now).saturating_add(self.interval);
        let burst = self.interval.saturating_mul(i64::from(self.burst));
        match full.saturating_sub(burst).saturating_sub(now) {
            wait if wait > 0 => Err(Duration::from_micros(wait.unsigned_abs())),
            _ => Ok(BucketFull(full)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Number of requests admitted if `asked` come at each of these times.
    fn admitted(limit: RateLimit, times: impl Iterator<Item = i64>, asked: u32) -> u32 {
        let mut state = BucketFull::default();
        let mut count = 0;
        for time in times {
            for _ in 0..asked {
                if let Ok(after) = limit.admit(state, at(time)) {
                    (state, count) = (after, count + 1);
                }
            }
        }
        count
    }

    #[test]
    fn a_burst_passes_then_the_rate() {
        let limit = RateLimit::new(50, Duration::from_secs(1), 100);
        assert_eq!(admitted(limit, 0..1, 1_000), 100);
        // 10 s at 1,000 requests per second: the burst, and 50 in each second.
        assert_eq!(admitted(limit, 0..10_000, 1), 100 + 499);
        assert_eq!(admitted(limit, (0..10_000).step_by(20), 1), 500);
        // A client that was away has its burst again, and no more.
        assert_eq!(admitted(limit, [0, 3_600_000].into_iter(), 1_000), 200);
        assert_eq!(admitted(limit, [-5_000, 0].into_iter(), 1_000), 200);
    }

    #[test]
    fn a_refused_client_learns_when_to_return() {
        let limit = RateLimit::new(1, Duration::from_secs(60), 2);
        let first = limit.admit(BucketFull::default(), at(0)).unwrap();
        let second = limit.admit(first, at(0)).unwrap();
        assert_eq!(limit.admit(second, at(0)), Err(Duration::from_secs(60)));
        assert_eq!(limit.admit(second, at(59_000)), Err(Duration::from_secs(1)));
        assert!(limit.admit(second, at(60_000)).is_ok());
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        for limit in [
            RateLimit::new(0, Duration::MAX, 0),
            RateLimit::new(u32::MAX, Duration::ZERO, u32::MAX),
        ] {
            for time in [i64::MIN, -1, 0, i64::MAX] {
                let state = limit.admit(BucketFull::default(), at(time));
                let _ = limit.admit(state.unwrap_or_default(), at(i64::MIN));
            }
        }
    }
}

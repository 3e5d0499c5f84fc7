//! Budget of retries: requests that may be sent again, as a share of all requests.

use std::time::Duration;

use crate::time::Timestamp;

/// Time over which unused retries are kept.
const WINDOW: Duration = Duration::from_secs(10);

/// Retries per second that are always possible.
const RETRIES_PER_SECOND: f64 = 3.0;

/// Budget of the retries of one origin: a share of the requests of the last 10 seconds, and 3 per
/// second.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    /// Retries for each request.
    share: f64,
    /// Retries that are possible now.
    balance: f64,
    /// Number of requests at the last call.
    requests: u64,
    at: Timestamp,
}

impl RetryBudget {
    /// Creates a budget that permits retries for this percentage of the requests, and 3 per second.
    /// `requests` is the number of requests before `now`: they permit no retries.
    #[must_use]
    pub fn new(percent: u32, requests: u64, now: Timestamp) -> Self {
        let balance = RETRIES_PER_SECOND * WINDOW.as_secs_f64();
        Self { share: f64::from(percent) / 100.0, balance, requests, at: now }
    }

    /// Takes one retry. `requests` is the number of all requests so far, without retries. Returns
    /// `false` if there is no retry left.
    pub fn take(&mut self, requests: u64, now: Timestamp) -> bool {
        let passed = now.since(self.at).as_secs_f64();
        let part = (passed / WINDOW.as_secs_f64()).min(1.0);
        let new = requests.saturating_sub(self.requests);
        // Of a longer time, only the part of the last window counts.
        let recent = new as f64 * (WINDOW.as_secs_f64() / passed.max(WINDOW.as_secs_f64()));
        self.balance = self.balance * (1.0 - part)
            + recent * self.share
            + passed.min(WINDOW.as_secs_f64()) * RETRIES_PER_SECOND;
        self.at = self.at.max(now);
        self.requests = self.requests.max(requests);
        if self.balance < 1.0 {
            return false;
        }
        self.balance -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Sends `rate` requests a second, each of which fails; returns all requests and the retries.
    fn all_fail(percent: u32, rate: i64, seconds: i64) -> (u64, u64) {
        let mut budget = RetryBudget::new(percent, 0, at(0));
        let (mut loads, mut retries) = (0, 0);
        for number in 0..rate * seconds {
            loads += 1;
            if budget.take(loads, at(number * 1_000 / rate)) {
                retries += 1;
            }
        }
        (loads, retries)
    }

    #[test]
    fn retries_are_a_share_of_the_requests_and_three_per_second() {
        for (percent, rate) in [(10, 500), (10, 10), (0, 500), (20, 50)] {
            let (loads, retries) = all_fail(percent, rate, 60);
            let (loads, retries) = (loads as f64, retries as f64);
            let most = loads * f64::from(percent) / 100.0 + 3.0 * 60.0 + 30.0;
            let least = (3.0_f64 * 59.0).min(loads);
            assert!(retries <= most && retries >= least, "{percent} {rate}: {retries} of {loads}");
        }
    }

    #[test]
    fn a_quiet_time_leaves_retries_for_ten_seconds() {
        let mut budget = RetryBudget::new(10, 0, at(0));
        let taken = |budget: &mut RetryBudget, requests, now| {
            (0..1_000).take_while(|_| budget.take(requests, now)).count()
        };
        assert_eq!(taken(&mut budget, 0, at(0)), 30);
        assert_eq!(taken(&mut budget, 0, at(1_000)), 3);
        assert_eq!(taken(&mut budget, 0, at(1_000_000)), 30);
        // A hundred requests in ten seconds, at the same rate as in the time before.
        assert_eq!(taken(&mut budget, 1_000, at(1_100_000)), 40);
    }
}

//! Adaptive limit on concurrent calls: additive increase, multiplicative decrease (AIMD).

/// Smallest limit. Below it, one slow call would hold up too many others.
const LIMIT_MIN: usize = 8;

/// Limit at the start. Few origins cannot serve so many calls at once, and fast ones reach a higher
/// limit within a second.
const LIMIT_FIRST: usize = 32;

/// Factor of a decrease.
const DECREASE: f64 = 0.9;

/// Part of the limit that must be used for an increase.
const USED: f64 = 0.8;

/// Limit on concurrent calls to an origin that follows the results of the calls.
///
/// A window has as many calls as the limit. A window without an overload, in which at least 80
/// percent of the limit was used, raises the limit by one. An overload lowers it to 90 percent, once
/// for all calls that were running then.
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    limit: f64,
    max: f64,
    /// Number of decreases.
    decreases: u64,
    /// Calls of this window that have ended.
    ended: usize,
    /// Maximum number of concurrent calls in this window.
    peak: usize,
}

/// Call that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedCall {
    /// Number of decreases at its begin.
    decreases: u64,
}

/// Result of a call for an [`AdaptiveLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSign {
    /// The origin answered.
    Worked,
    /// The origin shows that it has too much to do: a timeout, a refused connection, 429 or 503.
    Overloaded,
    /// The call tells nothing about the load of the origin.
    Unknown,
}

impl AdaptiveLimit {
    /// Creates a limit between 8 and `max`; it is `max` if that is less than 8.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let max = max as f64;
        Self { limit: (LIMIT_FIRST as f64).min(max), max, decreases: 0, ended: 0, peak: 0 }
    }

    /// Returns the maximum number of concurrent calls.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "between 1 and the maximum")]
    pub const fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Records the begin of a call. `in_flight` is the number of calls that run, with this one.
    pub fn began(&mut self, in_flight: usize) -> LimitedCall {
        self.peak = self.peak.max(in_flight);
        LimitedCall { decreases: self.decreases }
    }

    /// Records the result of a call.
    pub fn ended(&mut self, call: LimitedCall, sign: LoadSign) {
        match sign {
            LoadSign::Unknown => return,
            // The decrease that came since its begin answers this overload, too.
            LoadSign::Overloaded if call.decreases < self.decreases => return self.begin_window(),
            LoadSign::Overloaded => {
                let least = (LIMIT_MIN as f64).min(self.max);
                self.limit = (self.limit * DECREASE).max(least);
                self.decreases += 1;
                return self.begin_window();
            }
            LoadSign::Worked => self.ended += 1,
        }
        if self.ended >= self.limit() {
            if self.peak as f64 >= self.limit().max(1) as f64 * USED {
                self.limit = (self.limit + 1.0).min(self.max);
            }
            self.begin_window();
        }
    }

    const fn begin_window(&mut self) {
        self.ended = 0;
        self.peak = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Runs windows of calls with this result, all at once.
    #[expect(clippy::cast_possible_truncation, reason = "a part of a small number")]
    fn run(limit: &mut AdaptiveLimit, windows: usize, sign: LoadSign, used: f64) {
        for _ in 0..windows {
            let size = limit.limit();
            let at_once = ((size as f64) * used).ceil() as usize;
            for _ in 0..size {
                let call = limit.began(at_once);
                limit.ended(call, sign);
            }
        }
    }

    #[test]
    fn a_used_window_raises_the_limit_and_an_unused_one_does_not() {
        for (max, windows, used, expected) in [
            (1_024, 0, 1.0, 32),
            (1_024, 10, 1.0, 42),
            (1_024, 10, 0.8, 42),
            (1_024, 10, 0.7, 32),
            (40, 100, 1.0, 40),
            (5, 10, 1.0, 5),
            (1, 10, 1.0, 1),
        ] {
            let mut limit = AdaptiveLimit::new(max);
            run(&mut limit, windows, LoadSign::Worked, used);
            assert_eq!(limit.limit(), expected, "{max} {windows} {used}");
            run(&mut limit, 10, LoadSign::Unknown, 1.0);
            assert_eq!(limit.limit(), expected, "calls without a sign change nothing");
        }
    }

    #[test]
    fn an_overload_lowers_the_limit_once_for_all_running_calls() {
        let mut limit = AdaptiveLimit::new(1_024);
        let running: Vec<_> = (1..=32).map(|number| limit.began(number)).collect();
        for call in running {
            limit.ended(call, LoadSign::Overloaded);
        }
        assert_eq!(limit.limit(), 28);
        for _ in 0..100 {
            let call = limit.began(1);
            limit.ended(call, LoadSign::Overloaded);
        }
        assert_eq!(limit.limit(), 8, "never below the smallest limit");
        let mut small = AdaptiveLimit::new(4);
        run(&mut small, 10, LoadSign::Overloaded, 1.0);
        assert_eq!(small.limit(), 4);
    }

    /// Offers 128 concurrent calls to an origin that serves 32 at once, for one step each, and
    /// refuses further ones at once. Returns served and refused calls per step.
    fn offered_128_of_32() -> (f64, f64) {
        const STEPS: usize = 5_000;
        let mut limit = AdaptiveLimit::new(1_024);
        let mut running: VecDeque<(usize, LimitedCall)> = VecDeque::new();
        let (mut served, mut refused) = (0, 0);
        // Each step is a tenth of the time of a call, so that calls begin and end at all times.
        for step in 0..STEPS * 10 {
            while running.front().is_some_and(|(end, _)| *end <= step) {
                if let Some((_, call)) = running.pop_front() {
                    limit.ended(call, LoadSign::Worked);
                    served += 1;
                }
            }
            let free = limit.limit().saturating_sub(running.len()).min(13);
            for _ in 0..free {
                let call = limit.began(running.len() + 1);
                if running.len() < 32 {
                    running.push_back((step + 10, call));
                } else {
                    limit.ended(call, LoadSign::Overloaded);
                    refused += 1;
                }
            }
        }
        (f64::from(served) / STEPS as f64, f64::from(refused) / STEPS as f64)
    }

    #[test]
    fn an_overloaded_origin_keeps_nine_tenths_of_its_rate_and_refuses_one_in_twenty() {
        let (served, refused) = offered_128_of_32();
        assert!(served >= 0.9 * 32.0, "{served} of 32 per step");
        assert!(refused <= 0.05 * (served + refused), "{refused} refused, {served} served");
    }
}

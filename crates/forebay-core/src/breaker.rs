//! Circuit breaker: stops calls to a failing dependency, and tries again after a pause.

use std::time::Duration;

use crate::time::Timestamp;

/// Thresholds of a circuit breaker, which stops calls to a failing dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Number of consecutive failed calls that open the breaker. Also the minimum number of calls
    /// in a window before `failed_percent` applies.
    pub calls_min: u32,
    /// Percentage of failed calls in one window that opens the breaker, once the window has
    /// `calls_min` calls.
    pub failed_percent: u32,
    /// Length of the window in which calls are counted. The next window counts from zero.
    pub window: Duration,
    /// Pause between the opening of the breaker and the next trial call. A random part of up to one
    /// half is subtracted, so that instances whose breakers opened together do not try at the same
    /// moment. A trial call without a result counts as lost after this time.
    pub open_for: Duration,
}

/// Decision of a circuit breaker about one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The call may be made: the breaker is closed.
    Admitted,
    /// The call may be made as the trial call of a half-open breaker: its result closes or opens
    /// the breaker.
    Trial,
    /// The call must not be made: the breaker is open, or half-open with another trial call in
    /// progress.
    Refused,
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The breaker is closed: calls are admitted.
    Closed,
    /// The breaker is half-open: one trial call is under way, and other calls are refused.
    HalfOpen,
    /// The breaker is open: calls are refused until its pause is over. The first one after it is a
    /// trial call.
    Open,
}

/// Circuit breaker for one dependency.
///
/// A closed breaker opens after `calls_min` consecutive failures, or when `failed_percent` of at
/// least `calls_min` calls in one window failed. An open breaker admits one trial call after `open_for`; a
/// successful trial closes it, a failed one opens it again.
#[derive(Clone, Debug)]
pub struct Breaker {
    rules: BreakerRules,
    state: State,
    in_a_row: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed(Window),
    Open {
        until: Timestamp,
    },
    /// A trial call without a result until then counts as lost, and another one is admitted.
    HalfOpen {
        until: Timestamp,
    },
}

impl Breaker {
    /// Returns a closed circuit breaker with these thresholds.
    #[must_use]
    pub const fn new(rules: BreakerRules, now: Timestamp) -> Self {
        Self { rules, state: State::Closed(Window::new(now)), in_a_row: 0 }
    }

    /// Returns the state of the circuit breaker.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match self.state {
            State::Closed(_) => Condition::Closed,
            State::HalfOpen { .. } => Condition::HalfOpen,
            State::Open { .. } => Condition::Open,
        }
    }

    /// Decides whether a call to the dependency may be made at `now`. An open breaker becomes
    /// half-open here when its pause is over.
    pub fn admit(&mut self, now: Timestamp) -> Admission {
        match self.state {
            State::Closed(_) => Admission::Admitted,
            State::Open { until } | State::HalfOpen { until } if now < until => Admission::Refused,
            State::Open { .. } | State::HalfOpen { .. } => {
                self.state = State::HalfOpen { until: now.plus(self.rules.open_for) };
                Admission::Trial
            }
        }
    }

    /// Records that an admitted call to the dependency succeeded. A successful trial call closes
    /// the breaker; while the breaker is open, the result is ignored.
    pub fn worked(&mut self, now: Timestamp) {
        self.in_a_row = 0;
        match &mut self.state {
            State::Closed(window) => window.count(self.rules, now),
            State::HalfOpen { .. } => *self = Self::new(self.rules, now),
            // The call began before the breaker opened; only a trial call may close it.
            State::Open { .. } => {}
        }
    }

    /// Records that an admitted call to the dependency failed, which may open the breaker; while
    /// the breaker is open, the result is ignored. `chance`, a random number in (0, 1], shortens the pause before the next trial call by up to
    /// one half.
    pub fn failed(&mut self, now: Timestamp, chance: f64) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        match &mut self.state {
            State::Closed(window) => {
                window.count(self.rules, now);
                window.failed = window.failed.saturating_add(1);
                let (calls, failed) = (u64::from(window.calls), u64::from(window.failed));
                let too_many = calls >= u64::from(self.rules.calls_min)
                    && failed * 100 >= calls * u64::from(self.rules.failed_percent);
                if too_many || self.in_a_row >= self.rules.calls_min {
                    self.open(now, chance);
                }
            }
            State::HalfOpen { .. } => self.open(now, chance),
            State::Open { .. } => {}
        }
    }

    fn open(&mut self, now: Timestamp, chance: f64) {
        let span = self.rules.open_for.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0);
        self.state = State::Open { until: now.plus(span) };
    }
}

/// Calls counted in one window of a closed breaker.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Timestamp,
    calls: u32,
    failed: u32,
}

impl Window {
    const fn new(since: Timestamp) -> Self {
        Self { since, calls: 0, failed: 0 }
    }

    /// Counts one call at `now`, in a new window if this one is over.
    fn count(&mut self, rules: BreakerRules, now: Timestamp) {
        if now.since(self.since) >= rules.window {
            *self = Self::new(now);
        }
        self.calls = self.calls.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: BreakerRules = BreakerRules {
        calls_min: 5,
        failed_percent: 50,
        window: Duration::from_secs(1),
        open_for: Duration::from_millis(100),
    };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn fail(breaker: &mut Breaker, millis: i64) {
        breaker.failed(at(millis), 0.0);
    }

    #[test]
    fn five_consecutive_failures_open_it_at_any_interval() {
        let mut breaker = Breaker::new(RULES, at(0));
        for second in 0..4 {
            fail(&mut breaker, second * 10_000);
            assert_eq!(breaker.admit(at(second * 10_000)), Admission::Admitted);
        }
        fail(&mut breaker, 40_000);
        assert_eq!(breaker.condition(), Condition::Open);
        assert_eq!(breaker.admit(at(40_099)), Admission::Refused);
    }

    #[test]
    fn a_failure_rate_of_50_percent_opens_it_and_a_lower_one_does_not() {
        let mut breaker = Breaker::new(RULES, at(0));
        for round in 0..100 {
            breaker.worked(at(round));
            breaker.worked(at(round));
            fail(&mut breaker, round);
        }
        assert_eq!(breaker.condition(), Condition::Closed);
        // A new window starts from zero.
        for round in 0..2 {
            fail(&mut breaker, 1_100);
            breaker.worked(at(1_100 + round));
        }
        assert_eq!(breaker.condition(), Condition::Closed);
        fail(&mut breaker, 1_102);
        assert_eq!(breaker.condition(), Condition::Open);
    }

    #[test]
    fn a_single_trial_closes_it_or_opens_it_again() {
        let mut breaker = Breaker::new(RULES, at(0));
        (0..5).for_each(|_| fail(&mut breaker, 0));
        assert_eq!(breaker.admit(at(100)), Admission::Trial);
        assert_eq!(breaker.condition(), Condition::HalfOpen);
        assert_eq!(breaker.admit(at(101)), Admission::Refused);
        fail(&mut breaker, 150);
        assert_eq!(breaker.admit(at(249)), Admission::Refused);
        assert_eq!(breaker.admit(at(250)), Admission::Trial);
        breaker.worked(at(251));
        assert_eq!(breaker.condition(), Condition::Closed);
        assert_eq!(breaker.admit(at(251)), Admission::Admitted);
        fail(&mut breaker, 252);
        assert_eq!(breaker.condition(), Condition::Closed, "the old failures are forgotten");
    }

    #[test]
    fn a_trial_without_a_result_is_replaced() {
        let mut breaker = Breaker::new(RULES, at(0));
        (0..5).for_each(|_| fail(&mut breaker, 0));
        assert_eq!(breaker.admit(at(100)), Admission::Trial);
        assert_eq!(breaker.admit(at(199)), Admission::Refused);
        assert_eq!(breaker.admit(at(200)), Admission::Trial);
    }

    #[test]
    fn results_of_calls_from_before_it_opened_are_ignored() {
        let mut breaker = Breaker::new(RULES, at(0));
        (0..5).for_each(|_| fail(&mut breaker, 0));
        breaker.worked(at(1));
        fail(&mut breaker, 99);
        assert_eq!(breaker.condition(), Condition::Open);
        assert_eq!(breaker.admit(at(100)), Admission::Trial, "the time was not prolonged");
    }

    #[test]
    fn chance_shortens_the_pause_by_up_to_one_half() {
        for (chance, opens_at) in [(0.0, 100), (0.5, 75), (1.0, 50)] {
            let mut breaker = Breaker::new(RULES, at(0));
            (0..5).for_each(|_| breaker.failed(at(0), chance));
            assert_eq!(breaker.admit(at(opens_at - 1)), Admission::Refused, "{chance}");
            assert_eq!(breaker.admit(at(opens_at)), Admission::Trial, "{chance}");
        }
    }
}

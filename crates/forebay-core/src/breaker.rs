//! When to stop asking something that fails, and when to ask it again.

use std::time::Duration;

use crate::time::Timestamp;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// How many calls must have failed in a row, or how many there must have been in a window
    /// before their failures count as a part of them.
    pub calls_min: u32,
    /// The part of a window's calls that must have failed, in percent.
    pub failed_percent: u32,
    /// How long calls are counted together.
    pub window: Duration,
    /// How long nothing is asked until one call may try again. Up to half of it is taken away by
    /// chance, so that many who have opened together do not try together.
    pub open_for: Duration,
}

/// What a call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go.
    Admitted,
    /// Go, and try whether it works again: this is the only one that does.
    Trial,
    /// Do not even ask.
    Refused,
}

/// What a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Calls go through.
    Closed,
    /// One call tries whether it works again.
    HalfOpen,
    /// Nothing is asked.
    Open,
}

/// Counts the failures of one thing that can fail.
///
/// Closed, it opens after `calls_min` failures in a row, or when in one window the part of calls
/// that failed is too large. Open, it admits one trial when its time is over; a trial that works
/// closes it, one that fails opens it again.
#[derive(Clone, Debug)]
pub struct Breaker {
    rules: BreakerRules,
    state: State,
    in_a_row: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        since: Timestamp,
        calls: u32,
        failed: u32,
    },
    Open {
        until: Timestamp,
    },
    /// A trial that has not come back by then is lost, and there may be another.
    HalfOpen {
        until: Timestamp,
    },
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub const fn new(rules: BreakerRules, now: Timestamp) -> Self {
        Self { rules, state: State::Closed { since: now, calls: 0, failed: 0 }, in_a_row: 0 }
    }

    /// What it is.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        match self.state {
            State::Closed { .. } => Condition::Closed,
            State::HalfOpen { .. } => Condition::HalfOpen,
            State::Open { .. } => Condition::Open,
        }
    }

    /// Whether a call may go, at `now`.
    pub fn admit(&mut self, now: Timestamp) -> Admission {
        match self.state {
            State::Closed { .. } => Admission::Admitted,
            State::Open { until } | State::HalfOpen { until } if now < until => Admission::Refused,
            State::Open { .. } | State::HalfOpen { .. } => {
                self.state = State::HalfOpen { until: now.plus(self.rules.open_for) };
                Admission::Trial
            }
        }
    }

    /// A call has worked.
    pub fn worked(&mut self, now: Timestamp) {
        self.in_a_row = 0;
        match &mut self.state {
            State::Closed { since, calls, failed } => {
                begin_window(self.rules, (since, calls, failed), now);
                *calls = calls.saturating_add(1);
            }
            State::HalfOpen { .. } => *self = Self::new(self.rules, now),
            // It had gone before; what is true now is for the trial to find out.
            State::Open { .. } => {}
        }
    }

    /// A call has failed. `chance` in (0, 1] shortens the time until the next trial.
    pub fn failed(&mut self, now: Timestamp, chance: f64) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        match &mut self.state {
            State::Closed { since, calls, failed } => {
                begin_window(self.rules, (since, calls, failed), now);
                *calls = calls.saturating_add(1);
                *failed = failed.saturating_add(1);
                let (calls, failed) = (u64::from(*calls), u64::from(*failed));
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

fn begin_window(
    rules: BreakerRules,
    (since, calls, failed): (&mut Timestamp, &mut u32, &mut u32),
    now: Timestamp,
) {
    if now.since(*since) >= rules.window {
        (*since, *calls, *failed) = (now, 0, 0);
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
    fn five_failures_in_a_row_open_it_however_far_apart() {
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
    fn half_of_a_windows_calls_open_it_and_fewer_do_not() {
        let mut breaker = Breaker::new(RULES, at(0));
        for round in 0..100 {
            breaker.worked(at(round));
            breaker.worked(at(round));
            fail(&mut breaker, round);
        }
        assert_eq!(breaker.condition(), Condition::Closed);
        // A new window knows nothing of the old one.
        for round in 0..2 {
            fail(&mut breaker, 1_100);
            breaker.worked(at(1_100 + round));
        }
        assert_eq!(breaker.condition(), Condition::Closed);
        fail(&mut breaker, 1_102);
        assert_eq!(breaker.condition(), Condition::Open);
    }

    #[test]
    fn one_trial_at_a_time_closes_it_or_opens_it_again() {
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
    fn a_trial_that_never_comes_back_is_replaced() {
        let mut breaker = Breaker::new(RULES, at(0));
        (0..5).for_each(|_| fail(&mut breaker, 0));
        assert_eq!(breaker.admit(at(100)), Admission::Trial);
        assert_eq!(breaker.admit(at(199)), Admission::Refused);
        assert_eq!(breaker.admit(at(200)), Admission::Trial);
    }

    #[test]
    fn what_had_gone_before_it_opened_changes_nothing() {
        let mut breaker = Breaker::new(RULES, at(0));
        (0..5).for_each(|_| fail(&mut breaker, 0));
        breaker.worked(at(1));
        fail(&mut breaker, 99);
        assert_eq!(breaker.condition(), Condition::Open);
        assert_eq!(breaker.admit(at(100)), Admission::Trial, "the time was not prolonged");
    }

    #[test]
    fn chance_takes_up_to_half_of_the_time_away() {
        for (chance, opens_at) in [(0.0, 100), (0.5, 75), (1.0, 50)] {
            let mut breaker = Breaker::new(RULES, at(0));
            (0..5).for_each(|_| breaker.failed(at(0), chance));
            assert_eq!(breaker.admit(at(opens_at - 1)), Admission::Refused, "{chance}");
            assert_eq!(breaker.admit(at(opens_at)), Admission::Trial, "{chance}");
        }
    }
}

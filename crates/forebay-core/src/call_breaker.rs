//! Circuit breaker of an origin: counts failed and slow calls, also those that still run.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// Number of parts of a time window. The oldest part is forgotten at once.
const PARTS: u32 = 10;

/// Thresholds of the circuit breaker of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRules {
    /// Percentage of failed calls in the window that opens the breaker.
    pub failed_percent: u32,
    /// Minimum number of calls in the window before a percentage counts.
    pub calls_min: u32,
    /// Window of the calls that are counted: those of the last period, or a number of last ones.
    pub window: CallWindow,
    /// Duration after which a call is slow, even if it still runs; zero means never.
    pub slow_call: Duration,
    /// Percentage of slow calls in the window that opens the breaker.
    pub slow_percent: u32,
    /// Time for which an open breaker rejects calls. Also the time after which trial calls without
    /// a result count as lost.
    pub open_for: Duration,
    /// Maximum number of concurrent trial calls.
    pub trials: u32,
}

/// Window of the calls that a [`CallBreaker`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallWindow {
    /// Calls of the last period of this length.
    Time(Duration),
    /// Last calls, up to this number; at least one.
    Calls(u32),
}

/// Decision of a [`CallBreaker`] about one call to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAdmission {
    /// The call may be made: the breaker is closed.
    Admitted(CallTicket),
    /// The call may be made to find out whether the origin works again: the breaker is half-open.
    Trial(CallTicket),
    /// The call must not be made: the breaker is open, or half-open with its maximum number of
    /// trials. The duration is the time until the next trial, at most.
    Rejected(Duration),
}

/// Call that was admitted. Its result is recorded with [`CallBreaker::ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTicket {
    /// Period of the breaker in which the call began; later periods ignore its result.
    period: u64,
    is_slow: bool,
}

/// Result of a call to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// The origin answered.
    Worked,
    /// The origin did not answer, or its answer is invalid or has a status that counts as a
    /// failure.
    Failed,
    /// The call says nothing about the origin, for example because the caller gave up. It counts
    /// neither as a success nor as a failure.
    Abandoned,
}

/// State of a [`CallBreaker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// The breaker is closed: calls are admitted.
    Closed,
    /// The breaker is half-open: trial calls are admitted, and other calls are rejected.
    HalfOpen,
    /// The breaker is open: calls are rejected. The first call after the time is over is a trial.
    Open,
}

/// Circuit breaker of an origin. It opens when too many calls in its window fail or are slow, and
/// admits trial calls after `open_for`. A successful trial closes it; a failed or slow one opens it
/// again.
#[derive(Clone, Debug)]
pub struct CallBreaker {
    rules: CallRules,
    state: State,
    /// Number of the period; a change of state begins a new one.
    period: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Timestamp },
    HalfOpen { running: u32, lost_at: Timestamp },
}

impl CallBreaker {
    /// Returns a closed circuit breaker with these thresholds.
    #[must_use]
    pub fn new(rules: CallRules) -> Self {
        Self { rules, state: State::Closed, period: 0, counts: Counts::new(rules.window) }
    }

    /// Returns the state of the circuit breaker.
    #[must_use]
    pub const fn state(&self) -> CallState {
        match self.state {
            State::Closed => CallState::Closed,
            State::HalfOpen { .. } => CallState::HalfOpen,
            State::Open { .. } => CallState::Open,
        }
    }

    /// Returns the time until the next trial call, at most; zero if the breaker is closed. While it
    /// is half-open, this is the time until the running trials count as lost.
    #[must_use]
    pub fn time_left(&self, now: Timestamp) -> Duration {
        match self.state {
            State::Closed => Duration::ZERO,
            State::Open { until } => until.since(now),
            State::HalfOpen { lost_at, .. } => lost_at.since(now),
        }
    }

    /// Decides whether a call to the origin may be made at `now`. An open breaker becomes half-open
    /// here when its time is over.
    pub fn admit(&mut self, now: Timestamp) -> CallAdmission {
        let open_for = self.rules.open_for;
        match &mut self.state {
            State::Closed => return CallAdmission::Admitted(self.ticket()),
            State::Open { until } if now < *until => {
                return CallAdmission::Rejected(until.since(now));
            }
            State::Open { .. } => {
                self.period += 1;
                self.state = State::HalfOpen { running: 1, lost_at: now.plus(open_for) };
            }
            State::HalfOpen { running, lost_at } => {
                if now >= *lost_at {
                    // The trials have no result; they count as lost.
                    *running = 0;
                }
                if *running >= self.rules.trials {
                    return CallAdmission::Rejected(lost_at.since(now));
                }
                *running += 1;
                *lost_at = now.plus(open_for);
            }
        }
        CallAdmission::Trial(self.ticket())
    }

    /// Records that a call has become slow and still runs, which may open the breaker. A slow trial
    /// call opens it. Repeated reports of one call count once.
    pub fn became_slow(&mut self, ticket: &mut CallTicket, now: Timestamp) {
        if ticket.period != self.period || ticket.is_slow {
            return;
        }
        ticket.is_slow = true;
        match self.state {
            State::Closed => {
                self.counts.add(Call { is_failed: false, is_slow: true }, now);
                self.open_if_needed(now);
            }
            // The call is a trial.
            State::HalfOpen { .. } => self.open(now, self.rules.open_for),
            State::Open { .. } => {}
        }
    }

    /// Records the result of a call, which may open or close the breaker. A result from before the
    /// last change of its state is ignored. `retry_after` is the time that the origin asked for:
    /// after a failed trial call, it can shorten the time for which the breaker is open.
    pub fn ended(
        &mut self,
        ticket: CallTicket,
        result: CallResult,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) {
        if ticket.period != self.period {
            return;
        }
        let is_failed = result == CallResult::Failed;
        match &mut self.state {
            State::Closed => {
                match (ticket.is_slow, result) {
                    // The call is counted already.
                    (true, CallResult::Failed) => self.counts.fail_counted(now),
                    (true, _) | (false, CallResult::Abandoned) => return,
                    (false, _) => self.counts.add(Call { is_failed, is_slow: false }, now),
                }
                self.open_if_needed(now);
            }
            State::HalfOpen { running, .. } => match result {
                CallResult::Worked => self.close(),
                CallResult::Failed => {
                    let open_for = self.rules.open_for;
                    self.open(now, retry_after.map_or(open_for, |after| after.min(open_for)));
                }
                CallResult::Abandoned => *running = running.saturating_sub(1),
            },
            State::Open { .. } => {}
        }
    }

    const fn ticket(&self) -> CallTicket {
        CallTicket { period: self.period, is_slow: false }
    }

    fn open_if_needed(&mut self, now: Timestamp) {
        let sum = self.counts.sum(now);
        let reaches = |part: u32, percent: u32| {
            u64::from(part) * 100 >= u64::from(sum.calls) * u64::from(percent)
        };
        let too_slow =
            !self.rules.slow_call.is_zero() && reaches(sum.slow, self.rules.slow_percent);
        if sum.calls >= self.rules.calls_min
            && (reaches(sum.failed, self.rules.failed_percent) || too_slow)
        {
            self.open(now, self.rules.open_for);
        }
    }

    fn open(&mut self, now: Timestamp, open_for: Duration) {
        self.period += 1;
        self.state = State::Open { until: now.plus(open_for) };
        self.counts = Counts::new(self.rules.window);
    }

    fn close(&mut self) {
        self.period += 1;
        self.state = State::Closed;
        self.counts = Counts::new(self.rules.window);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u32,
    failed: u32,
    slow: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    is_failed: bool,
    is_slow: bool,
}

impl Sum {
    fn add(&mut self, call: Call) {
        self.calls = self.calls.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(call.is_failed));
        self.slow = self.slow.saturating_add(u32::from(call.is_slow));
    }
}

/// Calls of the window.
#[derive(Clone, Debug)]
enum Counts {
    /// Sums of the parts of the period, each with its beginning; the newest is the last one.
    Time { window: Duration, parts: VecDeque<(Timestamp, Sum)> },
    /// The last calls; the newest is the last one.
    Calls { max: usize, calls: VecDeque<Call> },
}

impl Counts {
    fn new(window: CallWindow) -> Self {
        match window {
            CallWindow::Time(window) => Self::Time { window, parts: VecDeque::new() },
            CallWindow::Calls(max) => Self::Calls {
                max: usize::try_from(max).unwrap_or(usize::MAX).max(1),
                calls: VecDeque::new(),
            },
        }
    }

    fn add(&mut self, call: Call, now: Timestamp) {
        match self {
            Self::Time { window, parts } => {
                let part = *window / PARTS;
                match parts.back_mut() {
                    Some((since, sum)) if now.since(*since) < part => sum.add(call),
                    _ => {
                        let mut sum = Sum::default();
                        sum.add(call);
                        parts.push_back((now, sum));
                    }
                }
                while parts.front().is_some_and(|(since, _)| now.since(*since) >= *window) {
                    parts.pop_front();
                }
            }
            Self::Calls { max, calls } => {
                if calls.len() >= *max {
                    calls.pop_front();
                }
                calls.push_back(call);
            }
        }
    }

    /// Marks a counted slow call as failed.
    fn fail_counted(&mut self, now: Timestamp) {
        match self {
            Self::Time { window, parts } => {
                let counted = |(since, sum): &&mut (Timestamp, Sum)| {
                    now.since(*since) < *window && sum.failed < sum.calls
                };
                if let Some((_, sum)) = parts.iter_mut().rev().find(counted) {
                    sum.failed += 1;
                }
            }
            Self::Calls { calls, .. } => {
                let counted = |call: &&mut Call| call.is_slow && !call.is_failed;
                if let Some(call) = calls.iter_mut().rev().find(counted) {
                    call.is_failed = true;
                }
            }
        }
    }

    fn sum(&self, now: Timestamp) -> Sum {
        let mut all = Sum::default();
        match self {
            Self::Time { window, parts } => {
                for (_, sum) in parts.iter().filter(|(since, _)| now.since(*since) < *window) {
                    all.calls = all.calls.saturating_add(sum.calls);
                    all.failed = all.failed.saturating_add(sum.failed);
                    all.slow = all.slow.saturating_add(sum.slow);
                }
            }
            Self::Calls { calls, .. } => calls.iter().for_each(|call| all.add(*call)),
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: CallRules = CallRules {
        failed_percent: 50,
        calls_min: 10,
        window: CallWindow::Time(Duration::from_secs(10)),
        slow_call: Duration::from_secs(5),
        slow_percent: 80,
        open_for: Duration::from_secs(30),
        trials: 1,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn begin(breaker: &mut CallBreaker, now: Timestamp) -> CallTicket {
        match breaker.admit(now) {
            CallAdmission::Admitted(ticket) | CallAdmission::Trial(ticket) => ticket,
            CallAdmission::Rejected(left) => panic!("rejected for {left:?}"),
        }
    }

    fn call(breaker: &mut CallBreaker, result: CallResult, now: Timestamp) {
        let ticket = begin(breaker, now);
        breaker.ended(ticket, result, None, now);
    }

    fn opened(rules: CallRules) -> CallBreaker {
        let mut breaker = CallBreaker::new(rules);
        (0..10).for_each(|_| call(&mut breaker, CallResult::Failed, at(0)));
        assert_eq!(breaker.state(), CallState::Open);
        breaker
    }

    #[test]
    fn failures_open_it_from_the_minimum_number_of_calls_and_the_percentage_on() {
        for (worked, failed, expected) in [
            (0, 9, CallState::Closed),
            (0, 10, CallState::Open),
            (5, 5, CallState::Open),
            (6, 5, CallState::Closed),
            (100, 99, CallState::Closed),
            (100, 100, CallState::Open),
        ] {
            let mut breaker = CallBreaker::new(RULES);
            (0..worked).for_each(|_| call(&mut breaker, CallResult::Worked, at(0)));
            for _ in 0..failed {
                call(&mut breaker, CallResult::Failed, at(0));
            }
            assert_eq!(breaker.state(), expected, "{worked} {failed}");
        }
    }

    #[test]
    fn calls_outside_the_window_are_forgotten() {
        let mut breaker = CallBreaker::new(RULES);
        (0..9).for_each(|_| call(&mut breaker, CallResult::Failed, at(0)));
        call(&mut breaker, CallResult::Failed, at(10));
        assert_eq!(breaker.state(), CallState::Closed);
        (0..8).for_each(|_| call(&mut breaker, CallResult::Failed, at(15)));
        assert_eq!(breaker.state(), CallState::Closed);
        call(&mut breaker, CallResult::Failed, at(19));
        assert_eq!(breaker.state(), CallState::Open);
        let rules = CallRules { window: CallWindow::Calls(20), ..RULES };
        let mut breaker = CallBreaker::new(rules);
        (0..40).for_each(|_| call(&mut breaker, CallResult::Worked, at(0)));
        (0..9).for_each(|_| call(&mut breaker, CallResult::Failed, at(1_000)));
        assert_eq!(breaker.state(), CallState::Closed);
        call(&mut breaker, CallResult::Failed, at(9_999));
        assert_eq!(breaker.state(), CallState::Open);
    }

    /// A hung origin ends no call at all.
    #[test]
    fn calls_that_still_run_open_it_when_they_become_slow() {
        let mut breaker = CallBreaker::new(RULES);
        let mut running: Vec<_> = (0..10).map(|_| begin(&mut breaker, at(0))).collect();
        let last = running.pop();
        running.iter_mut().for_each(|ticket| breaker.became_slow(ticket, at(5)));
        assert_eq!(breaker.state(), CallState::Closed);
        breaker.became_slow(&mut last.unwrap(), at(5));
        assert_eq!(breaker.state(), CallState::Open);
        assert_eq!(breaker.admit(at(6)), CallAdmission::Rejected(Duration::from_secs(29)));
    }

    #[test]
    fn a_slow_call_counts_once_also_if_it_fails_later() {
        let mut breaker = CallBreaker::new(CallRules { slow_percent: 100, ..RULES });
        (0..6).for_each(|_| call(&mut breaker, CallResult::Worked, at(0)));
        for _ in 0..5 {
            let mut ticket = begin(&mut breaker, at(0));
            breaker.became_slow(&mut ticket, at(5));
            breaker.became_slow(&mut ticket, at(6));
            breaker.ended(ticket, CallResult::Failed, None, at(7));
        }
        assert_eq!(breaker.state(), CallState::Closed, "5 of 11 failed");
        call(&mut breaker, CallResult::Failed, at(7));
        assert_eq!(breaker.state(), CallState::Open, "6 of 12 failed");
    }

    #[test]
    fn one_trial_at_a_time_closes_it_or_opens_it_again() {
        let mut breaker = opened(RULES);
        assert_eq!(breaker.admit(at(29)), CallAdmission::Rejected(Duration::from_secs(1)));
        let trial = begin(&mut breaker, at(30));
        assert_eq!(breaker.state(), CallState::HalfOpen);
        assert!(matches!(breaker.admit(at(31)), CallAdmission::Rejected(_)));
        breaker.ended(trial, CallResult::Failed, None, at(32));
        assert_eq!(breaker.admit(at(61)), CallAdmission::Rejected(Duration::from_secs(1)));
        let trial = begin(&mut breaker, at(62));
        breaker.ended(trial, CallResult::Worked, None, at(63));
        assert_eq!(breaker.state(), CallState::Closed);
        (0..9).for_each(|_| call(&mut breaker, CallResult::Failed, at(63)));
        assert_eq!(breaker.state(), CallState::Closed, "the old failures are forgotten");
    }

    #[test]
    fn a_slow_abandoned_or_lost_trial_makes_way_for_another() {
        let mut breaker = opened(RULES);
        let mut trial = begin(&mut breaker, at(30));
        breaker.became_slow(&mut trial, at(35));
        assert_eq!(breaker.state(), CallState::Open);
        breaker.ended(trial, CallResult::Worked, None, at(36));
        assert_eq!(breaker.state(), CallState::Open, "the result came too late");
        let trial = begin(&mut breaker, at(65));
        breaker.ended(trial, CallResult::Abandoned, None, at(66));
        let _lost = begin(&mut breaker, at(66));
        assert!(matches!(breaker.admit(at(95)), CallAdmission::Rejected(_)));
        assert!(matches!(breaker.admit(at(96)), CallAdmission::Trial(_)));
    }

    #[test]
    fn retry_after_of_the_origin_can_only_shorten_the_time() {
        for (after, expected) in [(5, 5), (300, 30)] {
            let mut breaker = opened(RULES);
            let trial = begin(&mut breaker, at(30));
            breaker.ended(trial, CallResult::Failed, Some(Duration::from_secs(after)), at(30));
            let left = Duration::from_secs(expected);
            assert_eq!(breaker.admit(at(30)), CallAdmission::Rejected(left));
        }
    }

    proptest! {
        /// Whatever happens, there are never more trials at once than allowed, and a rejection never
        /// lasts longer than `open_for`.
        #[test]
        fn trials_and_rejections_are_bounded(
            steps in prop::collection::vec((0_u8..6, 0_i64..9_000), 1..300),
            trials in 1_u32..4,
        ) {
            let mut breaker = CallBreaker::new(CallRules { calls_min: 3, trials, ..RULES });
            let (mut now, mut tickets) = (Timestamp::default(), Vec::new());
            for (step, millis) in steps {
                now = now.plus(Duration::from_millis(millis.unsigned_abs()));
                let before = breaker.state();
                match step {
                    0 | 1 => match breaker.admit(now) {
                        CallAdmission::Admitted(ticket) => {
                            prop_assert_eq!(before, CallState::Closed);
                            tickets.push(ticket);
                        }
                        CallAdmission::Trial(ticket) => {
                            prop_assert_ne!(before, CallState::Closed);
                            tickets.push(ticket);
                        }
                        CallAdmission::Rejected(left) => {
                            prop_assert!(left <= RULES.open_for);
                        }
                    },
                    2 => if let Some(ticket) = tickets.last_mut() {
                        breaker.became_slow(ticket, now);
                    },
                    result => if let Some(ticket) = tickets.pop() {
                        let result = [CallResult::Worked, CallResult::Failed, CallResult::Abandoned]
                            [usize::from(result - 3)];
                        breaker.ended(ticket, result, None, now);
                    },
                }
                let counted = match breaker.state {
                    State::HalfOpen { running, .. } => running,
                    _ => 0,
                };
                prop_assert!(counted <= trials);
            }
        }
    }
}

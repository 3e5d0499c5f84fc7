//! Circuit breaker of a site: rejects requests to an origin that fails or is too slow.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use forebay_core::{CallAdmission, CallBreaker, CallResult, CallState, CallTicket, Timestamp};
use forebay_engine::LoadError;
use http::header::RETRY_AFTER;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use super::fault::ClientFault;
use super::response::OriginResponse;
use super::urgency::Urgency;
use crate::settings::BreakerSettings;

/// Time between the ends of two calls that an opening breaker ends. A thousand calls that end at
/// once, with all who wait for them, would hold up new requests for tens of milliseconds.
const END_INTERVAL: Duration = Duration::from_micros(250);

/// Time after the opening within which all calls have ended, however many there are.
const ENDS_MAX: Duration = Duration::from_millis(500);

/// Circuit breaker of one site in this process.
#[derive(Debug)]
pub(super) struct SiteBreaker {
    breaker: Mutex<CallBreaker>,
    slow_call: Duration,
    failure_statuses: Vec<u16>,
    begun: Instant,
    /// Notified when the breaker opens.
    opened: Notify,
    /// Number of calls that the last opening has ended so far.
    calls_ended: AtomicU32,
}

/// Cell with the time at which limits and budget admitted a call; empty until then.
pub(super) type AdmittedAt = OnceLock<Instant>;

/// Decision about one call.
pub(super) enum Decision<'b> {
    /// The call may be made.
    Call(RunningCall<'b>),
    /// The call may be made as a trial.
    Trial(RunningCall<'b>),
}

/// Call whose result is not known yet. A call that is dropped without a result does not count.
pub(super) struct RunningCall<'b> {
    breaker: &'b SiteBreaker,
    ticket: CallTicket,
    /// Set if the call counts as slow when it takes long. Time spent on a client's request body does
    /// not tell anything about the origin.
    is_timed: bool,
    is_done: bool,
}

/// Phase of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It waits for limits or the budget, in this process.
    Queued,
    /// It becomes slow when the timer ends.
    Timed,
    /// It has become slow, or cannot.
    Untimed,
    /// The breaker has opened, and the call ends when the timer ends.
    Ending,
}

impl SiteBreaker {
    pub(super) fn new(settings: &BreakerSettings) -> Self {
        Self {
            breaker: Mutex::new(CallBreaker::new(settings.rules)),
            slow_call: settings.rules.slow_call,
            failure_statuses: settings.failure_statuses.clone(),
            begun: Instant::now(),
            opened: Notify::new(),
            calls_ended: AtomicU32::new(0),
        }
    }

    pub(super) fn state(&self) -> CallState {
        self.breaker.lock().state()
    }

    /// Returns the time until the next trial call, at most; zero if the breaker is closed.
    pub(super) fn time_left(&self) -> Duration {
        let now = self.timestamp(Instant::now());
        self.breaker.lock().time_left(now)
    }

    /// Returns `true` if the call can count as slow. Then [`run`](Self::run) polls its exchange again
    /// `slow_call` after the admission.
    fn watches(&self, call: &RunningCall<'_>) -> bool {
        call.is_timed && !self.slow_call.is_zero()
    }

    /// Returns the time from the admission after which [`run`](Self::run) polls the exchange again;
    /// `None` if the call cannot count as slow.
    pub(super) fn next_poll_after(&self, call: &RunningCall<'_>) -> Option<Duration> {
        self.watches(call).then_some(self.slow_call)
    }

    /// Decides about a call that begins now. `is_timed` is true if it counts as slow when it takes long.
    ///
    /// # Errors
    /// [`LoadError::Unavailable`] if the breaker is open.
    pub(super) fn admit(&self, is_timed: bool, now: Instant) -> Result<Decision<'_>, LoadError> {
        let call = |ticket| RunningCall { breaker: self, ticket, is_timed, is_done: false };
        match self.breaker.lock().admit(self.timestamp(now)) {
            CallAdmission::Admitted(ticket) => Ok(Decision::Call(call(ticket))),
            CallAdmission::Trial(ticket) => Ok(Decision::Trial(call(ticket))),
            CallAdmission::Rejected(left) => Err(LoadError::Unavailable(left)),
        }
    }

    /// Returns the error of a call that is not made because the breaker is not closed.
    pub(super) fn unavailable(&self) -> LoadError {
        LoadError::Unavailable(self.time_left())
    }

    /// Makes a call and records its result. The timer for slow calls starts at the time in `admitted`:
    /// the wait in a queue of this process before says nothing about the origin. If the breaker opens,
    /// the call of a `shared` load accepts no further followers and ends soon, see [`END_INTERVAL`]:
    /// otherwise all who wait for it would wait for an origin that does not answer.
    pub(super) async fn run<B>(
        &self,
        mut call: RunningCall<'_>,
        shared: Option<&Urgency>,
        admitted: &AdmittedAt,
        mut exchange: Pin<&mut impl Future<Output = Result<OriginResponse<B>, LoadError>>>,
    ) -> Result<OriginResponse<B>, LoadError> {
        let (mut opened, mut timer) = (pin!(self.opened.notified()), pin!(None::<Sleep>));
        let mut phase = if self.watches(&call) { Phase::Queued } else { Phase::Untimed };
        let result = poll_fn(|cx| {
            loop {
                if let Poll::Ready(result) = exchange.as_mut().poll(cx) {
                    return Poll::Ready(result);
                }
                if phase == Phase::Queued
                    && let Some(at) = admitted.get()
                {
                    phase = Phase::Timed;
                    timer.set(Some(sleep_until(*at + self.slow_call)));
                }
                let due = timer.as_mut().as_pin_mut().is_some_and(|it| it.poll(cx).is_ready());
                match phase {
                    Phase::Timed if due => {
                        phase = Phase::Untimed;
                        timer.set(None);
                        call.became_slow();
                    }
                    Phase::Ending if due => return Poll::Ready(Err(self.unavailable())),
                    Phase::Ending => return Poll::Pending,
                    _ => {
                        let Some(urgency) = shared else { return Poll::Pending };
                        ready!(opened.as_mut().poll(cx));
                        urgency.close();
                        phase = Phase::Ending;
                        timer.set(Some(sleep_until(Instant::now() + self.time_to_end())));
                    }
                }
            }
        })
        .await;
        call.end(&result);
        result
    }

    /// Returns when, after the opening, the next of its calls ends.
    fn time_to_end(&self) -> Duration {
        let before = self.calls_ended.fetch_add(1, Ordering::Relaxed);
        END_INTERVAL.saturating_mul(before).min(ENDS_MAX)
    }

    fn timestamp(&self, at: Instant) -> Timestamp {
        Timestamp::default().plus(at.saturating_duration_since(self.begun))
    }

    fn result_of<B>(&self, result: &Result<OriginResponse<B>, LoadError>) -> CallResult {
        match result {
            Ok(response) if self.failure_statuses.contains(&response.status().as_u16()) => {
                CallResult::Failed
            }
            Ok(_) => CallResult::Worked,
            Err(LoadError::Overloaded(_) | LoadError::OverBudget | LoadError::Unavailable(_)) => {
                CallResult::Abandoned
            }
            Err(error) if ClientFault::in_error(error).is_some() => CallResult::Abandoned,
            Err(_) => CallResult::Failed,
        }
    }
}

impl RunningCall<'_> {
    fn became_slow(&mut self) {
        let now = self.breaker.timestamp(Instant::now());
        self.breaker.change(|breaker| breaker.became_slow(&mut self.ticket, now));
    }

    fn end<B>(&mut self, result: &Result<OriginResponse<B>, LoadError>) {
        self.is_done = true;
        let (result, after) = (self.breaker.result_of(result), result.as_ref().ok());
        let after = after.and_then(|response| str::from_utf8(response.field(&RETRY_AFTER)?).ok());
        let after = after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        self.record(result, after);
    }

    fn record(&self, result: CallResult, after: Option<Duration>) {
        let now = self.breaker.timestamp(Instant::now());
        self.breaker.change(|breaker| breaker.ended(self.ticket, result, after, now));
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.record(CallResult::Abandoned, None);
        }
    }
}

impl SiteBreaker {
    /// Changes the breaker, and notifies the running calls if it opens.
    fn change(&self, change: impl FnOnce(&mut CallBreaker)) {
        let has_opened = {
            let mut breaker = self.breaker.lock();
            let before = breaker.state();
            change(&mut breaker);
            before != CallState::Open && breaker.state() == CallState::Open
        };
        if has_opened {
            self.calls_ended.store(0, Ordering::Relaxed);
            self.opened.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use forebay_core::{CallRules, CallWindow};
    use futures_util::future::join_all;

    use super::*;

    type Answer = Result<OriginResponse<()>, LoadError>;

    fn breaker() -> SiteBreaker {
        let rules = CallRules {
            failed_percent: 50,
            calls_min: 20,
            window: CallWindow::Time(Duration::from_secs(10)),
            slow_call: Duration::from_secs(5),
            slow_percent: 50,
            open_for: Duration::from_secs(10),
            trials: 1,
        };
        SiteBreaker::new(&BreakerSettings { rules, failure_statuses: Vec::new() })
    }

    async fn run(breaker: &SiteBreaker, shared: Option<&Urgency>) -> Answer {
        let now = Instant::now();
        let Decision::Call(call) = breaker.admit(true, now)? else { panic!("a trial") };
        let admitted = AdmittedAt::from(now);
        breaker.run(call, shared, &admitted, pin!(pending())).await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_end_one_after_another_when_the_breaker_opens() {
        let (breaker, urgency) = (breaker(), Urgency::default());
        let begun = Instant::now();
        let calls = (0..4_000).map(|_| async {
            let answer = run(&breaker, Some(&urgency)).await;
            assert!(matches!(answer, Err(LoadError::Unavailable(_))));
            begun.elapsed().saturating_sub(breaker.slow_call)
        });
        let ended = join_all(calls).await;
        let within = |time| ended.iter().filter(|ended| **ended <= time).count();
        // Timers have a resolution of 1 ms.
        assert!((1..=8).contains(&within(Duration::from_millis(1))), "{:?}", &ended[..20]);
        assert!((390..=410).contains(&within(Duration::from_millis(100))));
        assert_eq!(within(ENDS_MAX + Duration::from_millis(1)), 4_000);
    }
}

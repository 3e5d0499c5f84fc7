//! Admission of requests to an origin: the limit on concurrent ones, the budget that all instances
//! share, and the queue before both.

mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{LimitedCall, LoadSign, OriginBudget};
use forebay_engine::LoadError;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::budget;
use super::urgency::Urgency;
use crate::origin_status::{ADMISSION_RESULTS, BudgetStatus, OriginLoad};
use crate::settings::OriginSettings;
use state::{Denied, State};

/// Error text for a request that was not admitted in time.
const LIMIT_REACHED: &str = "the maximum number of concurrent requests to the origin is reached; raise \
                             `in_flight_max` or `connections_max` if the origin allows it";

/// Error text for a request that found a full queue.
const QUEUE_FULL: &str = "the queue of requests to the origin is full";

/// Admission of the requests to one origin.
#[derive(Debug)]
pub(super) struct Admission {
    settings: OriginSettings,
    begun: Instant,
    state: Mutex<State>,
    counts: [AtomicU64; ADMISSION_RESULTS],
    /// Notified when a request waits for a slot of the budget, and at the end.
    pub(super) needs_slots: Arc<Notify>,
    /// Notified when a request waits for the rate of the budget, and at the end.
    pub(super) needs_rate: Arc<Notify>,
}

/// Result of a request for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmissionResult {
    AtOnce,
    Queued,
    TimedOut,
    QueueFull,
    OverBudget,
}

impl AdmissionResult {
    /// Names in metrics, in the order of declaration.
    const NAMES: [&str; ADMISSION_RESULTS] =
        ["at-once", "queued", "timed-out", "queue-full", "over-budget"];
}

/// Permission for one request to the origin. Dropping it admits the next request.
#[derive(Debug)]
pub(super) struct RequestPermit {
    admission: Arc<Admission>,
    /// The call, until its result is recorded; absent with a fixed limit.
    call: Option<LimitedCall>,
    in_budget: bool,
}

impl Admission {
    /// Creates the admission to an origin, and starts the tasks of its budget, which end with it.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime if there is a budget.
    pub(super) fn new(settings: &OriginSettings) -> Arc<Self> {
        let member = settings.budget.as_ref().map(budget::member);
        let admission = Arc::new(Self {
            settings: settings.clone(),
            begun: Instant::now(),
            state: Mutex::new(State::new(settings, member)),
            counts: Default::default(),
            needs_slots: Arc::default(),
            needs_rate: Arc::default(),
        });
        if let Some(settings) = &settings.budget {
            budget::start(&admission, settings);
        }
        admission
    }

    /// Returns `true` if these settings have the limit and budget of this admission.
    pub(super) fn is_of(&self, settings: &OriginSettings) -> bool {
        let limits = |one: &OriginSettings| (one.requests_max(), one.adaptive);
        limits(&self.settings) == limits(settings) && self.settings.budget == settings.budget
    }

    /// Waits for the permission to send a request, at most until `due`. Returns the permit and the time at
    /// which it was granted: `now` if there was no wait.
    ///
    /// # Errors
    /// [`LoadError::Overloaded`] or [`LoadError::OverBudget`] if the request was not admitted in
    /// time or may not wait, or the queue is full.
    pub(super) async fn admit(
        self: &Arc<Self>,
        urgency: &Urgency,
        now: Instant,
        due: Instant,
    ) -> Result<(RequestPermit, Instant), LoadError> {
        let Some(admitted) = self.pass(urgency)? else {
            self.count(AdmissionResult::AtOnce);
            return Ok((self.permit(), now));
        };
        let mut place = Place { admission: self, admitted };
        let is_admitted = timeout_at(due, &mut place.admitted).await;
        if let Ok(Ok(())) = is_admitted {
            self.count(AdmissionResult::Queued);
            return Ok((self.permit(), Instant::now()));
        }
        drop(place);
        Err(self.refuse(self.state.lock().obstacle(self.now())))
    }

    /// Admits a request at once, or returns the receiver that completes when it is admitted.
    fn pass(&self, urgency: &Urgency) -> Result<Option<oneshot::Receiver<()>>, LoadError> {
        let mut state = self.state.lock();
        let Err(denied) = state.pass(urgency.rank(), self.now()) else { return Ok(None) };
        if denied == Denied::Budget && urgency.has_stale {
            drop(state);
            self.count(AdmissionResult::OverBudget);
            return Err(LoadError::OverBudget);
        }
        // The tasks of the budget know of a queue that is not empty.
        let is_first = !state.has_queue();
        let Some(receiver) = state.enqueue(urgency) else {
            drop(state);
            self.count(AdmissionResult::QueueFull);
            return Err(LoadError::Overloaded(QUEUE_FULL));
        };
        drop(state);
        if denied == Denied::Budget && is_first {
            self.needs_slots.notify_one();
            self.needs_rate.notify_one();
        }
        Ok(Some(receiver))
    }

    fn permit(self: &Arc<Self>) -> RequestPermit {
        let call = if self.settings.adaptive { self.state.lock().begin() } else { None };
        RequestPermit { admission: self.clone(), call, in_budget: true }
    }

    /// Counts a request that was not admitted in time, and returns its error.
    fn refuse(&self, denied: Denied) -> LoadError {
        match denied {
            Denied::Limit => {
                self.count(AdmissionResult::TimedOut);
                LoadError::Overloaded(LIMIT_REACHED)
            }
            Denied::Budget => {
                self.count(AdmissionResult::OverBudget);
                LoadError::OverBudget
            }
        }
    }

    /// Returns the error of a request that a client waits for, if it would not be sent at once and
    /// might not wait; `None` if it would be sent. It counts nothing.
    pub(super) fn obstacle(&self) -> Option<LoadError> {
        let denied = self.state.lock().obstacle_now(self.now())?;
        Some(match denied {
            Denied::Limit => LoadError::Overloaded(LIMIT_REACHED),
            Denied::Budget => LoadError::OverBudget,
        })
    }

    /// Returns `true` if the budget permits a request that has a permit to be sent again.
    pub(super) fn may_repeat(&self) -> bool {
        self.state.lock().may_repeat(self.now())
    }

    /// Returns the maximum number of concurrent requests, without overloads.
    pub(super) fn requests_max(&self) -> usize {
        self.settings.requests_max()
    }

    /// Returns the load of the origin by this process.
    pub(super) fn load(&self) -> OriginLoad {
        let total = |index: usize| self.counts[index].load(Ordering::Relaxed);
        let results = std::array::from_fn(|index| (AdmissionResult::NAMES[index], total(index)));
        OriginLoad { results, ..self.state.lock().load() }
    }

    /// Returns the status of the budget, if there is one.
    pub(super) fn budget_status(&self) -> Option<BudgetStatus> {
        self.state.lock().budget_status(self.now())
    }

    fn count(&self, result: AdmissionResult) {
        self.counts[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the time since the begin. Only a budget needs it.
    pub(super) fn now(&self) -> Duration {
        match self.settings.budget {
            Some(_) => self.begun.elapsed(),
            None => Duration::ZERO,
        }
    }

    /// Changes the state, and admits those that may be sent then. Returns the time after which the
    /// rate of the budget permits the next one.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> (T, Option<Duration>) {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let wait = state.admit_waiting(self.now());
        (result, wait)
    }

    /// Admits waiting requests. Returns the time after which the rate of the budget permits the next
    /// one.
    pub(super) fn admit_waiting(&self) -> Option<Duration> {
        self.change(|_| ()).1
    }

    /// Runs `change` on the budget with the number of waiting requests, then admits requests.
    pub(super) fn change_budget<T>(
        &self,
        change: impl FnOnce(&mut OriginBudget, u64) -> T,
    ) -> Option<T> {
        let (result, wait) = self.change(|state| {
            let waiting = state.waiting() as u64;
            state.budget.as_mut().map(|budget| change(budget, waiting))
        });
        if wait.is_some() {
            self.needs_rate.notify_one();
        }
        result
    }

    fn release(&self, in_budget: bool) {
        let (_, wait) = self.change(|state| state.release(in_budget));
        if wait.is_some() {
            self.needs_rate.notify_one();
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.needs_slots.notify_one();
        self.needs_rate.notify_one();
    }
}

/// Place in the queue. Dropping it gives an admission back that came too late.
struct Place<'a> {
    admission: &'a Admission,
    admitted: oneshot::Receiver<()>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.admitted.close();
        // After a completed wait, the channel is empty.
        if self.admitted.try_recv().is_ok() {
            self.admission.release(true);
        }
    }
}

impl RequestPermit {
    /// Records what the result of the request says about the load of the origin.
    pub(super) fn record(&mut self, sign: LoadSign) {
        if let Some(call) = self.call.take() {
            self.admission.change(|state| state.ended(call, sign));
        }
    }

    /// Gives the slot of the budget back: a tunnel is not a request.
    pub(super) fn leave_budget(&mut self) {
        if std::mem::take(&mut self.in_budget) {
            self.admission.change(State::leave_budget);
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.admission.release(self.in_budget);
    }
}

#[cfg(test)]
mod tests;

//! Retries of requests: when a request is sent again, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{RetryBudget, Timestamp};
use forebay_engine::LoadError;
use http::Request;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::admission::Admission;
use super::balance::EndpointSet;
use super::group::RequestResult;
use super::idle::is_idle_close;
use super::link::Link;
use super::outgoing::BuildRequest;
use super::progress::{Progress, TrackedBody};
use super::response::OriginResponse;
use crate::settings::{RetryOn, RetrySettings};

/// Mean wait before a request is sent to the same endpoint again, varied by half: an origin that
/// restarts needs a moment.
const SAME_ENDPOINT_WAIT: Duration = Duration::from_millis(25);

/// Response head of one exchange, with its connection.
pub(super) type Exchanged = (OriginResponse<Incoming>, Link);

/// Failed exchange.
pub(super) struct FailedExchange {
    pub(super) error: LoadError,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Box<Request<TrackedBody>>>,
}

impl FailedExchange {
    pub(super) const fn unsent(error: LoadError, request: Box<Request<TrackedBody>>) -> Self {
        Self { error, unsent: Some(request) }
    }
}

impl From<LoadError> for FailedExchange {
    fn from(error: LoadError) -> Self {
        Self { error, unsent: None }
    }
}

/// Retries of one origin.
#[derive(Debug)]
pub(super) struct Retries {
    settings: RetrySettings,
    begun: Instant,
    budget: Mutex<RetryBudget>,
    pub(super) counts: Arc<RetryCounts>,
}

/// Numbers of retries of one origin.
#[derive(Debug, Default)]
pub(super) struct RetryCounts {
    worked: AtomicU64,
    failed: AtomicU64,
    /// Retries that were not made because the budget was used up.
    refused: AtomicU64,
}

impl RetryCounts {
    fn made(&self) -> u64 {
        self.worked.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }

    /// Returns the numbers by result.
    pub(super) fn totals(&self) -> [(&'static str, u64); 3] {
        [
            ("ok", self.worked.load(Ordering::Relaxed)),
            ("failed", self.failed.load(Ordering::Relaxed)),
            ("budget", self.refused.load(Ordering::Relaxed)),
        ]
    }
}

impl Retries {
    /// Creates the retries of an origin that has had this number of requests.
    pub(super) fn new(settings: &RetrySettings, requests: u64, counts: Arc<RetryCounts>) -> Self {
        let first = requests.saturating_sub(counts.made());
        let budget = RetryBudget::new(settings.budget_percent, first, Timestamp::default());
        let (settings, begun) = (settings.clone(), Instant::now());
        Self { settings, begun, budget: Mutex::new(budget), counts }
    }

    /// Takes one retry from the budget. `requests` is the number of all requests so far.
    fn take(&self, requests: u64) -> bool {
        let now = Timestamp::default().plus(self.begun.elapsed());
        let first = requests.saturating_sub(self.counts.made());
        let is_taken = self.budget.lock().take(first, now);
        if !is_taken {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }
}

/// State of the retries of one request.
pub(super) struct Retrying<'a> {
    retries: Option<&'a Retries>,
    again: Option<&'a BuildRequest<'a>>,
    /// Number of retries that are left.
    left: u32,
    /// Endpoints that the request was sent to.
    tried: EndpointSet,
}

/// Continuation after an exchange.
pub(super) enum Next<'a> {
    /// The result is final.
    Done(Result<Exchanged, FailedExchange>),
    /// The request is sent, because nothing of it was sent before.
    Unsent(Box<Request<TrackedBody>>),
    /// The request is built and sent again.
    Again(&'a BuildRequest<'a>),
}

impl<'a> Retrying<'a> {
    pub(super) fn new(retries: Option<&'a Retries>, again: Option<&'a BuildRequest<'a>>) -> Self {
        let left = retries.map_or(0, |retries| retries.settings.attempts);
        Self { retries, again, left, tried: EndpointSet::default() }
    }

    pub(super) const fn tried(&self) -> EndpointSet {
        self.tried
    }

    /// Returns the time limit of the next exchange, from the beginning of the first one. If a timeout
    /// permits a retry, each exchange that is possible gets an equal part of the time.
    pub(super) fn limit(&self, progress: &Progress, whole: Duration) -> Duration {
        let splits = |retries: &Retries| retries.settings.on.contains(&RetryOn::Timeout);
        if self.left == 0 || self.again.is_none() || !self.retries.is_some_and(splits) {
            return whole;
        }
        let passed = progress.due(Duration::ZERO).elapsed();
        passed + whole.saturating_sub(passed) / (self.left + 1)
    }

    /// Records an exchange with an endpoint.
    pub(super) fn tried_at(&mut self, index: usize, result: RequestResult) {
        if let Some(retries) = self.retries.filter(|_| !self.tried.is_empty()) {
            let counts = &retries.counts;
            let has_worked = result == RequestResult::Worked;
            let counter = if has_worked { &counts.worked } else { &counts.failed };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.tried = self.tried.with(index);
    }

    /// Decides about a retry. `requests` returns the number of all requests to the origin so far;
    /// `admission` has the budget of the origin, which counts retries, too.
    pub(super) fn next(
        &mut self,
        exchanged: Result<Exchanged, FailedExchange>,
        requests: impl FnOnce() -> u64,
        admission: &Admission,
    ) -> Next<'a> {
        let cause = if self.left == 0 { None } else { cause(&exchanged) };
        let Some((retries, cause)) = self.retries.zip(cause) else { return Next::Done(exchanged) };
        let is_possible = cause == RetryOn::Connect || self.again.is_some();
        let is_wanted = is_possible && retries.settings.on.contains(&cause);
        if !is_wanted || !retries.take(requests()) || !admission.may_repeat() {
            return Next::Done(exchanged);
        }
        self.left -= 1;
        match (exchanged, self.again) {
            (Err(FailedExchange { unsent: Some(unsent), .. }), _) => Next::Unsent(unsent),
            (_, Some(again)) => Next::Again(again),
            (exchanged, None) => Next::Done(exchanged),
        }
    }
}

/// Waits before a request is sent to the same endpoint again.
pub(super) async fn wait_for_same_endpoint() {
    tokio::time::sleep(SAME_ENDPOINT_WAIT.mul_f64(0.5 + fastrand::f64())).await;
}

fn cause(exchanged: &Result<Exchanged, FailedExchange>) -> Option<RetryOn> {
    match exchanged {
        Ok((response, _)) => match response.status().as_u16() {
            status @ 502..=504 => Some(RetryOn::Status(status)),
            _ => None,
        },
        Err(FailedExchange { unsent: Some(_), .. }) => Some(RetryOn::Connect),
        Err(FailedExchange { error: LoadError::TimedOut(_), .. }) => Some(RetryOn::Timeout),
        // A request on a connection that was closed while idle is sent again by its sender.
        Err(FailedExchange { error, .. }) if is_idle_close(error) => None,
        Err(FailedExchange { error: LoadError::Unreachable(_), .. }) => Some(RetryOn::Closed),
        Err(_) => None,
    }
}

//! Connections to an origin server, with all their timeouts.
//!
//! The address comes from the configuration alone: a request cannot change it, and redirects are
//! not followed.
//!
//! | module | contents |
//! |---|---|
//! | `group`, `balance` | the servers of an origin, and the choice among them |
//! | `health`, `check` | their health, and the checks of it |
//! | `endpoint`, `names` | one server: connecting to it, and its addresses |
//! | `offer`, `link` | versions of HTTP; the connection of one request |
//! | `pool`, `connection`, `stream` | idle HTTP/1.1 connections; one connection, with or without hyper; the socket below it |
//! | `http2` | HTTP/2 connections |
//! | `admission`, `urgency` | limit on concurrent requests, budget and queue; which request goes first |
//! | `budget` | exchanges about the budget that all instances share |
//! | `accept` | validation of response heads |
//! | `breaker` | circuit breaker |
//! | `body`, `progress` | response bodies; time spent waiting for a client's request body |
//! | `exchange`, `retry` | sending a request, and sending it again |
//! | `outgoing`, `encoded` | requests that are not sent yet; their bytes in HTTP/1.1 |
//! | `response` | responses whose head has arrived |
//! | `fault`, `idle` | errors; connections that were closed while idle |
//! | `switch` | protocol switches |

mod accept;
mod admission;
mod balance;
mod body;
mod breaker;
mod budget;
mod check;
mod connection;
mod encoded;
mod endpoint;
mod exchange;
mod fault;
mod group;
mod health;
mod http2;
mod idle;
mod link;
mod names;
mod offer;
mod outgoing;
mod pool;
mod progress;
mod response;
mod retry;
mod stream;
mod switch;
mod urgency;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::CallState;
use forebay_engine::{Audience, LoadError};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::endpoint_status::{EndpointStatus, OriginUsage};
use crate::origin_status::{BudgetStatus, OriginLoad};
use crate::settings::{OriginSettings, SiteSettings};
use accept::{HeadLimits, InvalidHead};
use admission::Admission;
use body::Exchange;
pub(crate) use body::OriginBody;
use breaker::{Decision, SiteBreaker};
use check::Checks;
pub(crate) use encoded::EncodedRequest;
use exchange::{Answered, RequestTimes};
pub(crate) use fault::{ClientFault, code};
use group::Group;
pub(crate) use idle::is_idle_close;
pub(crate) use outgoing::{BuildRequest, EncodeRequest, FetchRequest, Outgoing, UnbuiltGet};
use progress::Progress;
pub(crate) use response::{OriginResponse, PlainResponse};
use retry::Retries;
pub(crate) use switch::SwitchOutcome;
pub(crate) use urgency::{LoadUrgency, Urgency};

/// Returns how many of the concurrent requests to an origin may have unshared responses. Such a
/// request runs while its client reads, so slow clients could occupy all of them; a quarter is
/// reserved for shared responses.
const fn unshared_max(requests_max: usize) -> usize {
    requests_max - requests_max / 4
}

/// Error text for an unshared response that found no connection.
const UNSHARED_LIMIT_REACHED: &str = "all connections to the origin for responses that cannot be \
                                      shared are in use; raise `connections_max` if the origin \
                                      allows it";

/// Body of a request to an origin.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Origin server with its connections.
#[derive(Debug)]
pub(crate) struct Origin {
    group: Arc<Group>,
    admission: Arc<Admission>,
    unshared: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
    retries: Option<Retries>,
    breaker: Option<SiteBreaker>,
    limits: HeadLimits,
    fetch_timeout: Duration,
    body_timeout: Duration,
}

impl Origin {
    /// Creates an origin, and starts the checks of its endpoints and the tasks of its budget.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime if there are checks or a budget.
    pub(crate) fn new(settings: &SiteSettings) -> Self {
        Self::with(settings, None)
    }

    /// Creates the origin that replaces this one after a reload. It keeps the endpoints whose settings
    /// are the same, with their connections, and the running requests if their bounds are the same.
    pub(crate) fn replaced(&self, settings: &SiteSettings) -> Self {
        Self::with(settings, Some(self))
    }

    fn with(settings: &SiteSettings, before: Option<&Self>) -> Self {
        let (origin, fetch_timeout) = (&settings.origin, settings.fetch_timeout);
        let requests_max = origin.requests_max();
        let group = Group::new(settings, before.map(|before| &*before.group));
        Checks::start(origin, &group);
        let known_admission = before.map(|before| &before.admission);
        let known_admission = known_admission.filter(|known| known.is_of(origin)).cloned();
        let known = before.and_then(|before| before.retries.as_ref());
        let counts = known.map_or_else(Arc::default, |retries| retries.counts.clone());
        let retries = |retry| Retries::new(retry, group.requests(), counts);
        Self {
            retries: origin.retry.as_ref().map(retries),
            group,
            admission: known_admission.unwrap_or_else(|| Admission::new(origin)),
            unshared: Arc::new(Semaphore::new(unshared_max(requests_max))),
            tunnels: switch::tunnel_semaphore(requests_max),
            breaker: origin.breaker.as_ref().map(SiteBreaker::new),
            limits: HeadLimits::of(origin),
            fetch_timeout,
            body_timeout: origin.timeouts.body.unwrap_or(fetch_timeout),
        }
    }

    /// Returns `true` if two sites can share one `Origin`. In that case the connections and their
    /// permits survive a reload.
    pub(crate) fn shares_pool(one: &SiteSettings, other: &SiteSettings) -> bool {
        // `host` is part of each request.
        let hostless = |origin: &OriginSettings| OriginSettings { host: None, ..origin.clone() };
        hostless(&one.origin) == hostless(&other.origin) && one.fetch_timeout == other.fetch_timeout
    }

    /// Sends a request and returns the response head. The wait for limits and budget, connecting and
    /// receiving the head take at most the site's `fetch_timeout` together, the wait at most half of
    /// it, retries included, not counting time spent waiting for the client's request body. A request
    /// that cannot be built again is sent again only if nothing of it was sent.
    ///
    /// # Errors
    /// Returns an error if limits or budget are used up, the origin cannot be reached, the head does not
    /// arrive in time, or the head is invalid.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        request: Outgoing<'_>,
        company: Audience,
    ) -> Result<OriginResponse, LoadError> {
        let now = Instant::now();
        let Some(breaker) = &self.breaker else {
            return self.fetch_admitted(request, company, &RequestTimes::new(now, None)).await;
        };
        let has_no_body = request.has_no_body();
        match breaker.admit(has_no_body, now)? {
            Decision::Trial(call) if has_no_body && request.is_safe() => {
                drop(call);
                self.try_in_background(request.into_built());
                Err(breaker.unavailable())
            }
            Decision::Call(call) | Decision::Trial(call) => {
                let shared = (company == Audience::Shared).then(|| request.urgency().clone());
                let times = RequestTimes::new(now, breaker.next_poll_after(&call));
                // By value, the future of the breaker would reserve space for it twice.
                let fetched = pin!(self.fetch_admitted(request, company, &times));
                breaker.run(call, shared.as_ref(), &times.admitted, fetched).await
            }
        }
    }

    /// Sends a request as the trial of a half-open breaker. Nobody waits for the response, because it
    /// may take as long as those that opened the breaker.
    fn try_in_background(self: &Arc<Self>, request: Box<FetchRequest>) {
        let origin = self.clone();
        tokio::spawn(async move {
            let Some(breaker) = &origin.breaker else { return };
            let now = Instant::now();
            if let Ok(Decision::Trial(call)) = breaker.admit(true, now) {
                let times = RequestTimes::new(now, breaker.next_poll_after(&call));
                let urgency = request.urgency.clone();
                let request = Outgoing::Built(request, None);
                let fetched = pin!(origin.fetch_admitted(request, Audience::Shared, &times));
                let _ = breaker.run(call, Some(&urgency), &times.admitted, fetched).await;
            }
        });
    }

    /// Returns how many connections are in use, and how many requests wait for one.
    pub(crate) fn usage(&self) -> OriginUsage {
        let OriginLoad { in_flight, waiting, .. } = self.load();
        let connections_max = self.admission.requests_max();
        OriginUsage { connections: in_flight, connections_max, waiting }
    }

    /// Returns the state of the circuit breaker; `None` if there is none.
    pub(crate) fn breaker_state(&self) -> Option<CallState> {
        self.breaker.as_ref().map(SiteBreaker::state)
    }

    /// Returns the error that a request without a body gets now because the circuit breaker is not
    /// closed; `None` if it is closed or there is none. A safe request gets it also while it starts a
    /// trial in the background.
    pub(crate) fn rejects(&self, method: &Method) -> Option<LoadError> {
        let breaker = self.breaker.as_ref().filter(|it| it.state() != CallState::Closed)?;
        let is_rejected = method.is_safe() || !breaker.time_left().is_zero();
        is_rejected.then(|| breaker.unavailable())
    }

    /// Returns the error that a request would get now if it might not wait for limits and budget;
    /// `None` if it would be sent at once.
    pub(crate) fn obstacle(&self) -> Option<LoadError> {
        self.admission.obstacle()
    }

    /// Returns the time until the next trial request of an open circuit breaker, at most.
    pub(crate) fn breaker_time_left(&self) -> Duration {
        self.breaker.as_ref().map_or(Duration::ZERO, SiteBreaker::time_left)
    }

    /// Returns the status of each endpoint.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = EndpointStatus> {
        self.group.statuses()
    }

    /// Returns the load of the origin by this process.
    pub(crate) fn load(&self) -> OriginLoad {
        self.admission.load()
    }

    /// Returns the status of the budget, if there is one.
    pub(crate) fn budget_status(&self) -> Option<BudgetStatus> {
        self.admission.budget_status()
    }

    /// Returns the numbers of retries by result; `None` if there are no retries.
    pub(crate) fn retries(&self) -> Option<[(&'static str, u64); 3]> {
        self.retries.as_ref().map(|retries| retries.counts.totals())
    }

    /// Fetches a request that the breaker has admitted.
    async fn fetch_admitted(
        &self,
        request: Outgoing<'_>,
        company: Audience,
        times: &RequestTimes,
    ) -> Result<OriginResponse, LoadError> {
        let progress = Progress::begin(times.begun, request.has_no_body());
        let (unshared, now) = match company {
            Audience::Shared => (None, times.begun),
            Audience::Single => self.acquire_unshared(&progress, times.begun).await?,
        };
        let mut answered = self.exchange_in_time(request, &progress, times, now).await?;
        answered.permits.unshared = unshared;
        self.receive(answered, &progress)
    }

    /// Returns the maximum wait for the permission to send a request: half of the time, so that the
    /// origin has the other half. Otherwise no request would be answered in time under overload.
    pub(super) fn admission_timeout(&self) -> Duration {
        self.fetch_timeout / 2
    }

    /// Waits for the permit of an unshared response. Returns it and the time at which it was granted:
    /// `now` if there was no wait.
    async fn acquire_unshared(
        &self,
        progress: &Progress,
        now: Instant,
    ) -> Result<(Option<OwnedSemaphorePermit>, Instant), LoadError> {
        if let Ok(permit) = self.unshared.clone().try_acquire_owned() {
            return Ok((Some(permit), now));
        }
        let permit = self.unshared.clone().acquire_owned();
        match tokio::time::timeout_at(progress.due(self.admission_timeout()), permit).await {
            Ok(Ok(permit)) => Ok((Some(permit), Instant::now())),
            _ => Err(LoadError::Overloaded(UNSHARED_LIMIT_REACHED)),
        }
    }

    /// Marks a response that was fetched for sharing as unshared. Fails if the maximum number of
    /// unshared responses is reached: waiting would occupy the connection.
    pub(crate) fn mark_unshared(&self, body: &mut OriginBody) -> Result<(), LoadError> {
        let Some(permits) = body.permits().filter(|permits| permits.unshared.is_none()) else {
            return Ok(());
        };
        let permit = self.unshared.clone().try_acquire_owned();
        permits.unshared = Some(permit.map_err(|_| LoadError::Overloaded(UNSHARED_LIMIT_REACHED))?);
        Ok(())
    }

    /// Returns a response whose head has been validated.
    fn receive(
        &self,
        answered: Answered,
        progress: &Progress,
    ) -> Result<OriginResponse, LoadError> {
        let Answered { response, mut connection, permits } = answered;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(LoadError::origin(InvalidHead::Switched));
        }
        if !progress.is_body_sent()
            && let Some(connection) = connection.get()
        {
            // The rest of the request body is sent even if the client does not read the response.
            connection.drive_in_background();
        }
        // The connection of a plain response is released here.
        let exchange = Exchange { connection, permits };
        Ok(response.map(|body| OriginBody::new(body, exchange, self.body_timeout)))
    }
}

/// Returns an empty request body.
#[must_use]
pub(crate) fn no_body() -> RequestBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

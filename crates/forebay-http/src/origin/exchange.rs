//! One request to an origin: the choice of an endpoint, the exchange with it, and retries.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use forebay_core::LoadSign;
use forebay_engine::LoadError;
use http::StatusCode;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Origin;
use super::accept::{InterimRelay, InvalidHead, validate_head};
use super::body::ConnectionPermits;
use super::breaker::AdmittedAt;
use super::connection::SendError;
use super::endpoint::{Endpoint, InFlight};
use super::fault::{self, ClientFault};
use super::group::{Chosen, RequestResult};
use super::idle::is_idle_close;
use super::link::Link;
use super::outgoing::{Message, Outgoing};
use super::progress::Progress;
use super::response::OriginResponse;
use super::retry::{self, Exchanged, FailedExchange, Next, Retrying};

/// Error text for an origin without endpoints.
const NO_ENDPOINT: &str = "the origin has no endpoint";

/// Maximum number of connections that end under one request before it fails. An origin that restarts
/// ends each connection once.
const RETIRED_MAX: usize = 4;

/// Error text for a request whose connections ended one after another.
const RETIRED: &str = "the origin ended several HTTP/2 connections (GOAWAY) before it processed the \
                       request";

/// Head of a response, with its connection.
pub(super) struct Answered {
    pub(super) response: OriginResponse<Incoming>,
    pub(super) connection: Link,
    pub(super) permits: ConnectionPermits,
}

/// Start and admission of a request, and when the circuit breaker polls its exchange again.
pub(super) struct RequestTimes {
    /// Time at which it began.
    pub(super) begun: Instant,
    /// Time at which limits and budget admitted it; empty until then.
    pub(super) admitted: AdmittedAt,
    /// Time from the admission after which the circuit breaker polls the exchange again; `None` if the
    /// breaker sets no timer for slow calls.
    pub(super) next_poll_after: Option<Duration>,
}

impl RequestTimes {
    pub(super) const fn new(begun: Instant, next_poll_after: Option<Duration>) -> Self {
        Self { begun, admitted: AdmittedAt::new(), next_poll_after }
    }
}

impl Origin {
    /// Waits for limits and budget from `now` on, sets the time of the admission in `times`, sends the
    /// request, and sends it again where the settings allow it. Returns the response head, which is
    /// validated unless it is a 101.
    pub(super) async fn exchange_in_time(
        &self,
        request: Outgoing<'_>,
        progress: &Progress,
        times: &RequestTimes,
        now: Instant,
    ) -> Result<Answered, LoadError> {
        let due = progress.due(self.admission_timeout());
        let (mut permit, at) = self.admission.admit(request.urgency(), now, due).await?;
        let _ = times.admitted.set(at);
        let next_poll_at = times.next_poll_after.map(|after| at + after);
        let answered = self.attempts(request, progress, at, next_poll_at).await;
        permit.record(sign_of(&answered));
        let (exchanged, in_flight) = answered?;
        let permits = ConnectionPermits { request: permit, unshared: None, in_flight };
        let (response, connection) = exchanged;
        Ok(Answered { response, connection, permits })
    }

    /// Sends a request at `at`, until its result permits no retry. The circuit breaker polls the first
    /// attempt again at `next_poll_at`.
    async fn attempts(
        &self,
        request: Outgoing<'_>,
        progress: &Progress,
        mut at: Instant,
        mut next_poll_at: Option<Instant>,
    ) -> Result<(Exchanged, Option<InFlight>), LoadError> {
        let interims = Arc::new(InterimRelay::new(request.interims().clone()));
        let mut retrying = Retrying::new(self.retries.as_ref(), request.again());
        let (affinity, request) = self.group.affinity(request);
        let mut message = Message::new(request, progress);
        loop {
            let Some(chosen) = self.group.choose(affinity, retrying.tried()) else {
                return Err(LoadError::unreachable(NO_ENDPOINT));
            };
            let Chosen { endpoint, index, in_flight } = chosen;
            if retrying.tried().has(index) {
                retry::wait_for_same_endpoint().await;
            }
            let limit = retrying.limit(progress, self.fetch_timeout);
            let exchange = pin!(self.exchange(endpoint, message, at, &interims));
            let exchanged = in_time(exchange, progress, limit, next_poll_at.take()).await;
            let result = result_of(&exchanged);
            self.group.record(index, result);
            retrying.tried_at(index, result);
            let requests = || self.group.requests();
            message = match retrying.next(exchanged, requests, &self.admission) {
                Next::Done(exchanged) => {
                    return exchanged
                        .map(|exchanged| (exchanged, in_flight))
                        .map_err(|failed| failed.error);
                }
                Next::Unsent(unsent) => Message::Built(unsent),
                Next::Again(build) => Message::of(build(), progress),
            };
            at = Instant::now();
        }
    }

    /// Sends a request at `at`, on an idle connection or on a new one.
    async fn exchange(
        &self,
        endpoint: &Arc<Endpoint>,
        mut message: Message<'_>,
        at: Instant,
        interims: &Arc<InterimRelay>,
    ) -> Result<Exchanged, FailedExchange> {
        let kind = message.kind();
        let mut retired = 0;
        // Each iteration uses up an idle connection, or one of the retired ones.
        loop {
            let mut link = match endpoint.link(kind, at).await {
                Ok(link) => link,
                Err(error) => {
                    let request = message.into_request();
                    return Err(FailedExchange::unsent(error.into(), request));
                }
            };
            let error = match link.send(message, interims).await {
                Ok(mut response) => {
                    let limits = self.limits;
                    let validated = match &mut response {
                        // Its framing is unambiguous, and in the form of this cache.
                        OriginResponse::Plain(plain) => limits.check(&plain.fields),
                        OriginResponse::Hyper(head) => match head.status() {
                            StatusCode::SWITCHING_PROTOCOLS => Ok(()),
                            _ => validate_head(head, limits),
                        },
                    };
                    validated.map_err(LoadError::origin)?;
                    return Ok((response, link));
                }
                Err(error) => error,
            };
            match error {
                SendError::Unsent(unsent, _) if link.is_used() => {
                    message = Message::Built(unsent);
                }
                SendError::Retired(unsent) if retired < RETIRED_MAX => {
                    retired += 1;
                    message = Message::Built(unsent);
                }
                error => {
                    let failed = self.failed(error, endpoint, &mut link);
                    // The origin closes its other idle connections, too, such as at a reload: the
                    // repeated request needs a new one.
                    if is_idle_close(&failed.error) {
                        endpoint.retire_idle();
                    }
                    return Err(failed);
                }
            }
        }
    }

    /// Returns the failure of an exchange that is not repeated on another connection.
    fn failed(&self, error: SendError, endpoint: &Endpoint, link: &mut Link) -> FailedExchange {
        let label = &endpoint.label;
        match error {
            SendError::Unsent(unsent, error) => {
                let error = fault::explain(&error, label, link, self.limits);
                FailedExchange::unsent(error, unsent)
            }
            SendError::Retired(unsent) => {
                FailedExchange::unsent(LoadError::unreachable(RETIRED), unsent)
            }
            SendError::Refused(Some(unsent), error) => {
                let text = fault::sentence(&error, label);
                FailedExchange::unsent(LoadError::unreachable(text), unsent)
            }
            SendError::Refused(None, error) => {
                LoadError::unreachable(fault::sentence(&error, label)).into()
            }
            SendError::GoneAway(error) => fault::unprocessed(&error, label).into(),
            SendError::Failed(error) => fault::explain(&error, label, link, self.limits).into(),
            SendError::Client(fault) => LoadError::origin(fault).into(),
            SendError::Interims => LoadError::origin(InvalidHead::Interims).into(),
        }
    }
}

/// Awaits `exchange` until the timeout. If a timer ends but the client delayed its request body, a new
/// timer is set; the client timeouts bound that. `exchange` is passed by reference: by value, the
/// future would reserve space for it twice.
///
/// With `next_poll_at`, the circuit breaker polls this future again at that time. If that is not after
/// the timeout, the first wait sets no timer: most exchanges are complete by then.
async fn in_time(
    mut exchange: Pin<&mut impl Future<Output = Result<Exchanged, FailedExchange>>>,
    progress: &Progress,
    limit: Duration,
    next_poll_at: Option<Instant>,
) -> Result<Exchanged, FailedExchange> {
    let mut needs_timer = next_poll_at.is_none_or(|at| at > progress.due(limit));
    let mut timer = pin!(None::<Sleep>);
    poll_fn(|cx| {
        if let Poll::Ready(exchanged) = exchange.as_mut().poll(cx) {
            return Poll::Ready(exchanged);
        }
        if !mem::replace(&mut needs_timer, true) {
            return Poll::Pending;
        }
        loop {
            if let Some(running) = timer.as_mut().as_pin_mut() {
                ready!(running.poll(cx));
                if progress.due(limit) <= Instant::now() {
                    return Poll::Ready(Err(LoadError::TimedOut(limit).into()));
                }
            }
            timer.set(Some(sleep_until(progress.due(limit))));
        }
    })
    .await
}

/// Returns what the result of a request says about the load of the origin.
fn sign_of(answered: &Result<(Exchanged, Option<InFlight>), LoadError>) -> LoadSign {
    match answered {
        Ok(((response, _), _)) if matches!(response.status().as_u16(), 429 | 503) => {
            LoadSign::Overloaded
        }
        Ok(_) => LoadSign::Worked,
        Err(LoadError::TimedOut(_)) => LoadSign::Overloaded,
        Err(error) if fault::is_refused(error) => LoadSign::Overloaded,
        Err(_) => LoadSign::Unknown,
    }
}

/// Returns the result of an exchange for the health of its endpoint.
fn result_of(exchanged: &Result<Exchanged, FailedExchange>) -> RequestResult {
    match exchanged {
        Ok((response, _)) if matches!(response.status().as_u16(), 502..=504) => {
            RequestResult::Failed
        }
        Ok(_) => RequestResult::Worked,
        Err(FailedExchange { error, .. }) => {
            let is_of_client = ClientFault::in_error(error).is_some();
            match is_of_client || is_idle_close(error) {
                true => RequestResult::Unknown,
                false => RequestResult::Failed,
            }
        }
    }
}

//! One request to an origin: the choice of an endpoint, the exchange with it, and retries.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::LoadSign;
use forebay_engine::LoadError;
use http::header::TRANSFER_ENCODING;
use http::uri::Uri;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::accept::{InterimRelay, InvalidHead, validate_head};
use super::body::{ConnectionPermits, ReceivedBody};
use super::connection::SendError;
use super::endpoint::{Endpoint, InFlight, RequestKind};
use super::fault::{self, ClientFault};
use super::group::{Chosen, RequestResult};
use super::idle::is_idle_close;
use super::link::Link;
use super::progress::{Progress, TrackedBody};
use super::retry::{self, Again, Exchanged, FailedExchange, Next, Retrying};
use super::{FetchRequest, Origin};

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
    pub(super) response: Response<ReceivedBody>,
    pub(super) connection: Link,
    pub(super) permits: ConnectionPermits,
}

impl Origin {
    /// Sends a request when limits and budget permit it, then notifies `admitted`; and sends it again
    /// where the settings allow it. Returns the response head, which is validated unless it is a 101.
    pub(super) async fn exchange_in_time(
        &self,
        request: Box<FetchRequest>,
        again: Again<'_>,
        progress: &Progress,
        admitted: &Notify,
    ) -> Result<Answered, LoadError> {
        let due = progress.due(self.admission_timeout());
        let mut permit = self.admission.admit(&request.urgency, due).await?;
        admitted.notify_one();
        let answered = self.attempts(request, again, progress).await;
        permit.record(sign_of(&answered));
        let (exchanged, in_flight) = answered?;
        let permits = ConnectionPermits { request: permit, unshared: None, in_flight };
        let (response, connection) = exchanged;
        Ok(Answered { response, connection, permits })
    }

    /// Sends a request until its result permits no retry.
    async fn attempts(
        &self,
        request: Box<FetchRequest>,
        again: Again<'_>,
        progress: &Progress,
    ) -> Result<(Exchanged, Option<InFlight>), LoadError> {
        let interims = Arc::new(InterimRelay::new(request.interims.clone()));
        let affinity = self.group.affinity(&request);
        let mut request = http_request(*request, progress);
        let mut retrying = Retrying::new(self.retries.as_ref(), again);
        loop {
            let Some(chosen) = self.group.choose(affinity, retrying.tried()) else {
                return Err(LoadError::unreachable(NO_ENDPOINT));
            };
            let Chosen { endpoint, index, in_flight } = chosen;
            if retrying.tried().has(index) {
                retry::wait_for_same_endpoint().await;
            }
            let limit = retrying.limit(progress, self.fetch_timeout);
            let exchange = pin!(self.exchange(endpoint, request, &interims));
            let exchanged = in_time(exchange, progress, limit).await;
            let result = result_of(&exchanged);
            self.group.record(index, result);
            retrying.tried_at(index, result);
            let requests = || self.group.requests();
            request = match retrying.next(exchanged, requests, &self.admission) {
                Next::Done(exchanged) => {
                    return exchanged
                        .map(|exchanged| (exchanged, in_flight))
                        .map_err(|failed| failed.error);
                }
                Next::Unsent(unsent) => unsent,
                Next::Again(again) => http_request(again(), progress),
            };
        }
    }

    /// Sends a request on an idle connection, or on a new one.
    async fn exchange(
        &self,
        endpoint: &Arc<Endpoint>,
        mut request: Box<Request<TrackedBody>>,
        interims: &Arc<InterimRelay>,
    ) -> Result<Exchanged, FailedExchange> {
        let kind = RequestKind::of(&request);
        let mut retired = 0;
        // Each iteration uses up an idle connection, or one of the retired ones.
        loop {
            let mut link = match endpoint.link(kind).await {
                Ok(link) => link,
                Err(error) => return Err(FailedExchange::unsent(error.into(), request)),
            };
            let error = match link.send(request, interims).await {
                Ok(mut response) => {
                    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                        validate_head(&mut response, self.limits).map_err(LoadError::origin)?;
                    }
                    return Ok((response, link));
                }
                Err(error) => error,
            };
            match error {
                SendError::Unsent(unsent, _) if link.is_used() => request = unsent,
                SendError::Retired(unsent) if retired < RETIRED_MAX => {
                    retired += 1;
                    request = unsent;
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

/// Returns a request in the form of hyper.
fn http_request(request: FetchRequest, progress: &Progress) -> Box<Request<TrackedBody>> {
    let FetchRequest { method, target, headers, body, .. } = request;
    let is_sized = body.size_hint().exact().is_some();
    let mut request = Box::new(Request::new(progress.track(body)));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target);
    *request.headers_mut() = headers;
    if !is_sized {
        // Without it, hyper sends no body with a GET.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

/// Awaits `exchange`, with a timeout. Each iteration of the loop means that the client delayed its
/// request body, which the client timeouts bound. `exchange` is passed by reference: by value, the
/// future would reserve space for it twice.
async fn in_time(
    mut exchange: Pin<&mut impl Future<Output = Result<Exchanged, FailedExchange>>>,
    progress: &Progress,
    limit: Duration,
) -> Result<Exchanged, FailedExchange> {
    loop {
        let due = progress.due(limit);
        if let Ok(exchanged) = tokio::time::timeout_at(due, exchange.as_mut()).await {
            return exchanged;
        }
        if progress.due(limit) <= Instant::now() {
            return Err(LoadError::TimedOut(limit).into());
        }
    }
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

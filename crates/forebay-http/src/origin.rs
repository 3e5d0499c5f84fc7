//! Connections to an origin server, with all their timeouts.
//!
//! The address comes from the configuration alone: a request cannot change it, and redirects are
//! not followed.
//!
//! | module | contents |
//! |---|---|
//! | `endpoint`, `names` | one server: connecting to it, and its addresses |
//! | `pool`, `connection`, `stream` | idle connections; one connection, and the socket below it |
//! | `accept` | validation of response heads |
//! | `breaker` | circuit breaker |
//! | `body`, `progress` | response bodies; time spent waiting for a client's request body |
//! | `fault`, `idle` | errors; connections that were closed while idle |
//! | `switch` | protocol switches |

mod accept;
mod body;
mod breaker;
mod connection;
mod endpoint;
mod fault;
mod idle;
mod names;
mod pool;
mod progress;
mod stream;
mod switch;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::CallState;
use forebay_engine::{Audience, LoadError};
use http::header::TRANSFER_ENCODING;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::request_guard::Interims;
use crate::settings::{OriginSettings, SiteSettings};
use accept::{HeadLimits, InterimCounter, InvalidHead, forward_interim, validate_head};
pub(crate) use body::OriginBody;
use body::{ConnectionPermits, Exchange};
use breaker::{Decision, SiteBreaker};
use connection::SendError;
use endpoint::{Endpoint, Repeatable};
pub(crate) use fault::{ClientFault, code};
pub(crate) use idle::is_idle_close;
use pool::PooledConnection;
use progress::{Progress, TrackedBody};
pub(crate) use switch::SwitchOutcome;

/// Returns how many of an origin's connections may carry unshared responses. Such a connection is
/// in use while its client reads, so slow clients could occupy all of them; a quarter is reserved
/// for shared responses.
const fn unshared_connections_max(connections_max: usize) -> usize {
    connections_max - connections_max / 4
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
    endpoint: Arc<Endpoint>,
    connections: Arc<Semaphore>,
    unshared: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
    breaker: Option<SiteBreaker>,
    limits: HeadLimits,
    fetch_timeout: Duration,
    body_timeout: Duration,
}

/// Request to an origin.
#[derive(Debug)]
pub(crate) struct FetchRequest {
    /// Request method.
    pub(crate) method: Method,
    /// Path and query, in the same form as in the key.
    pub(crate) target: PathAndQuery,
    /// Header fields, including `Host`.
    pub(crate) headers: HeaderMap,
    /// Request body.
    pub(crate) body: RequestBody,
    /// Sender of interim responses to the requesting client.
    pub(crate) interims: Interims,
}

impl Origin {
    pub(crate) fn new(settings: &SiteSettings) -> Self {
        let (origin, fetch_timeout) = (&settings.origin, settings.fetch_timeout);
        let connections_max = origin.connections_max;
        Self {
            endpoint: Arc::new(Endpoint::new(&origin.endpoints[0], origin)),
            connections: Arc::new(Semaphore::new(connections_max)),
            unshared: Arc::new(Semaphore::new(unshared_connections_max(connections_max))),
            tunnels: switch::tunnel_semaphore(connections_max),
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

    /// Sends a request and returns the response head. Acquiring a connection, connecting and
    /// receiving the head take at most the site's `fetch_timeout` together, not counting time spent
    /// waiting for the client's request body.
    ///
    /// # Errors
    /// Returns an error if no connection is free, the origin cannot be reached, the head does not
    /// arrive in time, or the head is invalid.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        request: FetchRequest,
        company: Audience,
    ) -> Result<Response<OriginBody>, LoadError> {
        let Some(breaker) = &self.breaker else {
            return self.fetch_admitted(request, company).await;
        };
        let has_no_body = request.body.is_end_stream();
        match breaker.admit(has_no_body)? {
            Decision::Trial(call) if has_no_body && request.method.is_safe() => {
                drop(call);
                self.try_in_background(request);
                Err(breaker.unavailable())
            }
            Decision::Call(call) | Decision::Trial(call) => {
                breaker.run(call, company, self.fetch_admitted(request, company)).await
            }
        }
    }

    /// Sends a request as the trial of a half-open breaker. Nobody waits for the response, because it
    /// may take as long as those that opened the breaker.
    fn try_in_background(self: &Arc<Self>, request: FetchRequest) {
        let origin = self.clone();
        tokio::spawn(async move {
            let Some(breaker) = &origin.breaker else { return };
            if let Ok(Decision::Trial(call)) = breaker.admit(true) {
                let fetched = origin.fetch_admitted(request, Audience::Shared);
                let _ = breaker.run(call, Audience::Shared, fetched).await;
            }
        });
    }

    /// Returns the state of the circuit breaker; `None` if there is none.
    pub(crate) fn breaker_state(&self) -> Option<CallState> {
        self.breaker.as_ref().map(SiteBreaker::state)
    }

    async fn fetch_admitted(
        &self,
        request: FetchRequest,
        company: Audience,
    ) -> Result<Response<OriginBody>, LoadError> {
        let progress = Progress::begin();
        let unshared = match company {
            Audience::Shared => None,
            Audience::Single => Some(self.acquire_unshared(&progress).await?),
        };
        let mut answered = self.exchange_in_time(request, &progress).await?;
        answered.permits.unshared = unshared;
        self.receive(answered, &progress)
    }

    async fn acquire_unshared(
        &self,
        progress: &Progress,
    ) -> Result<OwnedSemaphorePermit, LoadError> {
        let permit = self.unshared.clone().acquire_owned();
        match tokio::time::timeout_at(progress.due(self.fetch_timeout), permit).await {
            Ok(Ok(permit)) => Ok(permit),
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

    /// Validates the head of a response.
    fn receive(
        &self,
        answered: Answered,
        progress: &Progress,
    ) -> Result<Response<OriginBody>, LoadError> {
        let Answered { mut response, mut connection, permits } = answered;
        validate_head(&mut response, self.limits).map_err(LoadError::origin)?;
        if !progress.is_body_sent()
            && let Some(connection) = connection.get()
        {
            // The rest of the request body is sent even if the client does not read the response.
            connection.drive_in_background();
        }
        let exchange = Exchange { connection, permits };
        Ok(response.map(|body| OriginBody::new(body, exchange, self.body_timeout)))
    }

    /// Sends a request and returns the unvalidated response head.
    async fn exchange_in_time(
        &self,
        request: FetchRequest,
        progress: &Progress,
    ) -> Result<Answered, LoadError> {
        let permit = self.connections.clone().acquire_owned();
        let permit = tokio::time::timeout_at(progress.due(self.fetch_timeout), permit);
        let Ok(Ok(permit)) = permit.await else {
            return Err(LoadError::Overloaded(
                "all connections to the origin are in use; raise `connections_max` if the origin allows it",
            ));
        };
        let interims = Arc::new(InterimCounter::default());
        let request = self.http_request(request, progress, &interims);
        let exchange = pin!(self.exchange(request, &interims));
        let (response, connection) = self.in_time(exchange, progress).await?;
        let permits = ConnectionPermits { connection: permit, unshared: None };
        Ok(Answered { response, connection, permits })
    }

    /// Awaits `exchange`, with the fetch timeout. Each iteration of the loop means that the client
    /// delayed its request body, which the client timeouts bound. `exchange` is passed by
    /// reference: by value, the future would reserve space for it twice.
    async fn in_time<T>(
        &self,
        mut exchange: Pin<&mut impl Future<Output = Result<T, LoadError>>>,
        progress: &Progress,
    ) -> Result<T, LoadError> {
        loop {
            let due = progress.due(self.fetch_timeout);
            if let Ok(exchanged) = tokio::time::timeout_at(due, exchange.as_mut()).await {
                return exchanged;
            }
            if progress.due(self.fetch_timeout) <= Instant::now() {
                return Err(LoadError::TimedOut(self.fetch_timeout));
            }
        }
    }

    /// Sends a request on an idle connection, or on a new one.
    async fn exchange(
        &self,
        mut request: Request<TrackedBody>,
        interims: &InterimCounter,
    ) -> Result<(Response<Incoming>, PooledConnection), LoadError> {
        let endpoint = &self.endpoint;
        let repeatable = if request.method().is_safe() { Repeatable::Yes } else { Repeatable::No };
        // Each iteration uses up an idle connection; a new connection ends the loop.
        loop {
            let mut pooled = endpoint.connection(repeatable).await?;
            let Some(connection) = pooled.get() else { continue };
            match connection.send(request, interims).await {
                Ok(response) => return Ok((response, pooled)),
                Err(SendError::Unsent(unsent, _)) if connection.is_used => request = *unsent,
                Err(SendError::Unsent(_, error) | SendError::Failed(error)) => {
                    return Err(fault::explain(&error, &endpoint.label, connection, self.limits));
                }
                Err(SendError::Interims) => return Err(LoadError::origin(InvalidHead::Interims)),
            }
        }
    }

    fn http_request(
        &self,
        request: FetchRequest,
        progress: &Progress,
        interims: &Arc<InterimCounter>,
    ) -> Request<TrackedBody> {
        let FetchRequest { method, target, headers, body, interims: client } = request;
        let is_sized = body.size_hint().exact().is_some();
        let mut request = Request::new(progress.track(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(target);
        *request.headers_mut() = headers;
        if !is_sized {
            // Without it, hyper sends no body with a GET.
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let counted = interims.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            counted.count();
            forward_interim(&client, interim.status(), interim.headers());
        });
        request
    }
}

/// Unvalidated head of a response, with its connection.
struct Answered {
    response: Response<Incoming>,
    connection: PooledConnection,
    permits: ConnectionPermits,
}

/// Returns an empty request body.
#[must_use]
pub(crate) fn no_body() -> RequestBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

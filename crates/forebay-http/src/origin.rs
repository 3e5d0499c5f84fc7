//! Connections to an origin server, with all their timeouts.
//!
//! The address comes from the configuration alone: a request cannot change it, and redirects are
//! not followed. `accept.rs` validates response heads, `progress.rs` times an exchange while the
//! request body is being sent, `idle.rs` detects connections that were closed while idle,
//! `stream.rs` reads responses after a failed write, and `switch.rs` switches protocols.

mod accept;
mod idle;
mod progress;
mod stream;
mod switch;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::{Audience, BrokenBody, LoadError};
use http::header::TRANSFER_ENCODING;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::failure::Failure;
use crate::request_guard::{ExpiredTimeout, FramingError, Interims};
use crate::settings::{OriginSettings, SiteSettings};
use accept::{HeadLimits, InterimCounter, forward_interim, validate_head};
pub(crate) use idle::is_idle_close;
use idle::{ClosedIdle, UsedConnections, is_close};
use progress::{Progress, TrackedBody};
use stream::{Connector, Received};
pub(crate) use switch::SwitchOutcome;

/// Maximum time for connecting to an origin, if the site's fetch timeout is not shorter.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of idle connections kept to one origin.
const IDLE_MAX: usize = 512;

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

/// Maximum idle time of a connection for a request that must not be repeated. An origin may close
/// an idle connection at any moment, and a request sent at that moment is lost; most origins keep
/// idle connections for 2 to 75 seconds.
const UNREPEATABLE_KEEP_ALIVE_MAX: Duration = Duration::from_secs(1);

/// Body of a request to an origin.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Origin server with its connection pool.
#[derive(Debug)]
pub(crate) struct Origin {
    authority: Authority,
    client: Client<Connector, TrackedBody>,
    /// Client for requests that must not be repeated: its connections are never idle for long.
    unrepeatable_client: Client<Connector, TrackedBody>,
    connections: Arc<Semaphore>,
    unshared: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
    used_connections: UsedConnections,
    limits: HeadLimits,
    fetch_timeout: Duration,
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
        let keep_alive = settings.origin.keep_alive;
        Self {
            authority: settings.origin.authority.clone(),
            client: client(settings, keep_alive),
            unrepeatable_client: client(settings, keep_alive.min(UNREPEATABLE_KEEP_ALIVE_MAX)),
            connections: Arc::new(Semaphore::new(settings.origin.connections_max)),
            unshared: Arc::new(Semaphore::new(unshared_connections_max(
                settings.origin.connections_max,
            ))),
            tunnels: switch::tunnel_semaphore(settings.origin.connections_max),
            used_connections: UsedConnections::default(),
            limits: HeadLimits::of(&settings.origin),
            fetch_timeout: settings.fetch_timeout,
        }
    }

    /// Returns `true` if two sites can share one `Origin`. In that case the connections and their
    /// permits survive a reload.
    pub(crate) fn shares_pool(one: &SiteSettings, other: &SiteSettings) -> bool {
        // All fields are listed, so that a new setting cannot be forgotten here. `host` is part of
        // each request.
        let OriginSettings {
            authority,
            host: _,
            connections_max,
            keep_alive,
            fields_max,
            head_max,
        } = &one.origin;
        *authority == other.origin.authority
            && *connections_max == other.origin.connections_max
            && *keep_alive == other.origin.keep_alive
            && *fields_max == other.origin.fields_max
            && *head_max == other.origin.head_max
            && one.fetch_timeout == other.fetch_timeout
    }

    /// Sends a request and returns the response head. Acquiring a connection, connecting and
    /// receiving the head take at most the site's `fetch_timeout` together, not counting time spent
    /// waiting for the client's request body.
    ///
    /// # Errors
    /// Returns an error if no connection is free, the origin cannot be reached, the head does not
    /// arrive in time, or the head is invalid.
    pub(crate) async fn fetch(
        &self,
        request: FetchRequest,
        company: Audience,
    ) -> Result<Response<OriginBody>, LoadError> {
        let progress = Progress::begin();
        let unshared = match company {
            Audience::Shared => None,
            Audience::Single => Some(self.acquire_unshared(&progress).await?),
        };
        let (mut response, connection) = self.exchange_in_time(request, &progress).await?;
        validate_head(&mut response, self.limits).map_err(LoadError::origin)?;
        let permits = ConnectionPermits { _connection: connection, unshared };
        Ok(response.map(|body| OriginBody::new(body, permits, self.fetch_timeout)))
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
        if body.permits.unshared.is_none() {
            let permit = self.unshared.clone().try_acquire_owned();
            body.permits.unshared =
                Some(permit.map_err(|_| LoadError::Overloaded(UNSHARED_LIMIT_REACHED))?);
        }
        Ok(())
    }

    /// Sends a request and returns the unvalidated response head with the connection permit.
    async fn exchange_in_time(
        &self,
        request: FetchRequest,
        progress: &Progress,
    ) -> Result<(Response<Incoming>, OwnedSemaphorePermit), LoadError> {
        let permit = self.connections.clone().acquire_owned();
        let permit = tokio::time::timeout_at(progress.due(self.fetch_timeout), permit);
        let Ok(Ok(permit)) = permit.await else {
            return Err(LoadError::Overloaded(
                "all connections to the origin are in use; raise `connections_max` if the origin allows it",
            ));
        };
        let interims = request.interims.clone();
        let request = self.http_request(request, progress)?;
        let exchange = pin!(self.exchange(request, interims));
        let response = self.in_time(exchange, progress).await?;
        self.used_connections.record(&response);
        Ok((response, permit))
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

    async fn exchange(
        &self,
        mut request: Request<TrackedBody>,
        interims: Interims,
    ) -> Result<Response<Incoming>, LoadError> {
        let interim_count = Arc::new(InterimCounter::default());
        let counted = interim_count.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            counted.count();
            forward_interim(&interims, interim.status(), interim.headers());
        });
        tokio::select! {
            biased;
            interim_count = interim_count.exceeded() => Err(LoadError::origin(interim_count)),
            response = self.client_for(request.method()).request(request) => {
                response.map_err(|error| self.explain(&error))
            }
        }
    }

    /// Returns the client for a method. An unsafe request may have taken effect when its connection
    /// closes (RFC 9112 section 9.3.1).
    fn client_for(&self, method: &Method) -> &Client<Connector, TrackedBody> {
        if method.is_safe() { &self.client } else { &self.unrepeatable_client }
    }

    fn http_request(
        &self,
        request: FetchRequest,
        progress: &Progress,
    ) -> Result<Request<TrackedBody>, LoadError> {
        let FetchRequest { method, target, headers, body, interims: _ } = request;
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(target)
            .build()
            .map_err(LoadError::origin)?;
        let is_sized = body.size_hint().exact().is_some();
        let mut request = Request::new(progress.track(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        if !is_sized {
            // Without it, hyper sends no body with a GET.
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Ok(request)
    }

    /// Converts an error of hyper. A slow client or an invalid request body is not a failure of the
    /// origin. All other errors are reported with their causes, because hyper's own message does
    /// not name them.
    fn explain(&self, error: &ClientError) -> LoadError {
        if let Some(fault) = ClientFault::in_chain(error) {
            return LoadError::origin(fault);
        }
        if causes(error)
            .any(|cause| cause.downcast_ref().is_some_and(hyper::Error::is_parse_too_large))
        {
            return LoadError::origin(self.limits.exceeded(received(error)));
        }
        if is_timeout(error) {
            return LoadError::TimedOut(self.fetch_timeout.min(CONNECT_TIMEOUT_MAX));
        }
        let mut text = format!("{}: {error}", self.authority);
        for cause in causes(error) {
            text.push_str(": ");
            text.push_str(&cause.to_string());
        }
        if self.used_connections.is_idle_close(error) {
            return LoadError::unreachable(ClosedIdle(text));
        }
        if error.is_connect() || is_close(error) {
            return LoadError::unreachable(text);
        }
        LoadError::origin(text)
    }
}

fn client(settings: &SiteSettings, idle_max: Duration) -> Client<Connector, TrackedBody> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT_MAX.min(settings.fetch_timeout)));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle_max)
        .pool_max_idle_per_host(IDLE_MAX)
        .http1_max_headers(settings.origin.fields_max)
        .http1_max_buf_size(settings.origin.head_max)
        .set_host(false)
        .build(Connector(connector))
}

/// Failure of a client while its request was being forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientFault {
    /// The request body violates a framing rule or a limit.
    #[error("the client's request body is rejected: {0}")]
    BadBody(FramingError),
    /// The request body arrived too slowly.
    #[error("the client's request body arrived too slowly")]
    TooSlow,
    /// The connection ended before the request body did.
    #[error("the client closed its connection before the end of its request body")]
    Gone,
}

impl ClientFault {
    /// Returns the fault that explains an error of a client's request body.
    pub(crate) fn of_body(error: &(dyn std::error::Error + 'static)) -> Self {
        if ExpiredTimeout::in_chain(error).is_some() {
            return Self::TooSlow;
        }
        FramingError::in_chain(error).map_or(Self::Gone, Self::BadBody)
    }

    /// Returns the client fault in the source chain of a failed exchange.
    fn in_chain(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        causes(error).find_map(|cause| cause.downcast_ref().copied())
    }

    /// Returns the client fault that caused a failed load, if there is one.
    #[must_use]
    pub(crate) fn in_error(error: &LoadError) -> Option<Self> {
        let LoadError::Origin(cause) = error else { return None };
        cause.downcast_ref().copied()
    }
}

impl From<ClientFault> for Failure {
    fn from(fault: ClientFault) -> Self {
        match fault {
            ClientFault::BadBody(why) => Self::Refused(why),
            ClientFault::TooSlow => Self::TooSlow,
            ClientFault::Gone => Self::ClientGone,
        }
    }
}

fn is_timeout(error: &ClientError) -> bool {
    causes(error).any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
    })
}

/// Returns the sources of an error, the nearest first.
fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |error| error.source())
}

/// Returns the number of bytes received in response to the failed request.
fn received(error: &ClientError) -> usize {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras.get::<Received>().map_or(0, Received::bytes)
}

/// Returns an empty request body.
#[must_use]
pub(crate) fn no_body() -> RequestBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Body of an origin's response. Fails if a piece takes longer than the fetch timeout. Holds the
/// permit of its connection until it is dropped.
pub(crate) struct OriginBody {
    inner: Incoming,
    permits: ConnectionPermits,
    piece_timeout: Duration,
    /// Timer for the next piece; armed only while waiting.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Permits that a response holds until its body has been received.
struct ConnectionPermits {
    _connection: OwnedSemaphorePermit,
    /// Permit of an unshared response.
    unshared: Option<OwnedSemaphorePermit>,
}

impl OriginBody {
    fn new(inner: Incoming, permits: ConnectionPermits, piece_timeout: Duration) -> Self {
        Self { inner, permits, piece_timeout, timer: None }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.piece_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        timer.as_mut().poll(cx)
    }

    /// Converts the body to a stream of pieces for the engine, without trailers.
    pub(crate) fn into_stream(self) -> forebay_engine::PieceStream {
        Box::pin(futures_util::stream::unfold(Some(self), |body| async {
            let mut body = body?;
            loop {
                match body.frame().await? {
                    // Trailers are not stored.
                    Ok(frame) => match frame.into_data() {
                        Ok(piece) if piece.is_empty() => {}
                        // A complete body ends the stream here, which releases its permit.
                        Ok(piece) => {
                            return Some((Ok(piece), (!body.is_end_stream()).then_some(body)));
                        }
                        Err(_) => {}
                    },
                    Err(broken) => return Some((Err(broken), None)),
                }
            }
        }))
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            self.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&error))));
        }
        ready!(self.poll_timeout(cx));
        let late = format!(
            "the origin sent no further part of the response body within {:?} (fetch_timeout)",
            self.piece_timeout
        );
        Poll::Ready(Some(Err(BrokenBody::Source(late.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn broken(error: &hyper::Error) -> BrokenBody {
    BrokenBody::Source(error.to_string().into())
}

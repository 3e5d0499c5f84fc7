//! Connections to an origin, with all their timeouts.
//!
//! The address comes from the configuration alone: nothing in a request can change it, and no
//! redirect is followed. In `accept.rs` stands what an answer's head must be, in `progress.rs` how
//! long an answer may take while the request's body is still on its way, in `idle.rs` what becomes
//! of a request on a connection that had been closed, and in `stream.rs` how a response is read
//! behind a failed write; `switch.rs` is for protocols other than HTTP.

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
use forebay_engine::{BrokenBody, Company, LoadError};
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
use crate::front::{Interims, Lapse, Refusal};
use crate::site::{OriginSettings, SiteSettings};
use accept::{Flood, HeadLimits, accept, pass_on};
pub(crate) use idle::closed_idle;
use idle::{ClosedIdle, Proven, is_close};
use progress::{Progress, Watched};
use stream::{Connector, Received};
pub(crate) use switch::Switched;

/// How long a connection to an origin may take to come about, where the site's own limit is not
/// shorter.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// How many idle connections to one origin are kept.
const IDLE_MAX: usize = 512;

/// How many of an origin's connections may serve one client each. Such a connection is held for as
/// long as its client takes to read, and clients that read slowly on purpose must not hold all of
/// them: a quarter is always left to what is shared.
const fn alone_max(connections_max: usize) -> usize {
    connections_max - connections_max / 4
}

/// What those are told for whom there is no such connection.
const NONE_ALONE: &str = "all connections for unshared responses are in use; raise `connections_max` if the origin allows it";

/// How long a connection may have been idle for a request that must not be sent twice. An origin
/// may close one at any moment, and the request that meets the close is lost; most keep theirs for
/// 2 to 75 seconds.
const UNREPEATABLE_KEEP_ALIVE_MAX: Duration = Duration::from_secs(1);

/// The body of a request to an origin.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// One origin, with its pool of connections.
#[derive(Debug)]
pub struct Origin {
    authority: Authority,
    client: Client<Connector, Watched>,
    /// For requests that cannot be sent once more: its connections are never idle for long.
    attentive: Client<Connector, Watched>,
    room: Arc<Semaphore>,
    alone: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
    proven: Proven,
    limits: HeadLimits,
    fetch_timeout: Duration,
}

/// What is asked of an origin.
#[derive(Debug)]
pub struct Question {
    /// The method.
    pub method: Method,
    /// Path and query, as they stand in the key.
    pub target: PathAndQuery,
    /// The fields, `Host` among them.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
    /// The way of interim responses to who asks.
    pub interims: Interims,
}

impl Origin {
    pub(crate) fn new(settings: &SiteSettings) -> Self {
        let keep_alive = settings.origin.keep_alive;
        Self {
            authority: settings.origin.authority.clone(),
            client: client(settings, keep_alive),
            attentive: client(settings, keep_alive.min(UNREPEATABLE_KEEP_ALIVE_MAX)),
            room: Arc::new(Semaphore::new(settings.origin.connections_max)),
            alone: Arc::new(Semaphore::new(alone_max(settings.origin.connections_max))),
            tunnels: switch::room_for_tunnels(settings.origin.connections_max),
            proven: Proven::default(),
            limits: HeadLimits::of(&settings.origin),
            fetch_timeout: settings.fetch_timeout,
        }
    }

    /// Whether what was made for one site serves another as well. If so, connections and the
    /// places that are taken among them outlive a reload.
    pub(crate) fn is_for_both(one: &SiteSettings, other: &SiteSettings) -> bool {
        // In full, so that a new setting cannot be forgotten here. `host` is in the question.
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

    /// Asks the origin, and comes back with the head of its answer. Waiting for a place among the
    /// connections, connecting and the head together take `fetch_timeout` at most, not counting the
    /// time in which it is the client who keeps a request body waiting.
    ///
    /// # Errors
    /// If there was no place, no connection, no head in time, or no sense in it.
    pub async fn ask(
        &self,
        question: Question,
        company: Company,
    ) -> Result<Response<OriginBody>, LoadError> {
        let progress = Progress::begin();
        let alone = match company {
            Company::Shared => None,
            Company::Alone => Some(self.place_alone(&progress).await?),
        };
        let (mut response, connection) = self.exchange_in_time(question, &progress).await?;
        accept(&mut response, self.limits).map_err(LoadError::origin)?;
        let places = Held { _connection: connection, alone };
        Ok(response.map(|body| OriginBody::new(body, places, self.fetch_timeout)))
    }

    async fn place_alone(&self, progress: &Progress) -> Result<OwnedSemaphorePermit, LoadError> {
        let place = self.alone.clone().acquire_owned();
        match tokio::time::timeout_at(progress.due(self.fetch_timeout), place).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(LoadError::Overloaded(NONE_ALONE)),
        }
    }

    /// Turns an answer that was meant to be shared into one for a single client. If there is no
    /// place for another of these, it is given up: waiting for one would hold the connection.
    pub(crate) fn set_alone(&self, body: &mut OriginBody) -> Result<(), LoadError> {
        if body.held.alone.is_none() {
            let place = self.alone.clone().try_acquire_owned();
            body.held.alone = Some(place.map_err(|_| LoadError::Overloaded(NONE_ALONE))?);
        }
        Ok(())
    }

    /// The head of an answer as it came, and the place that it has.
    async fn exchange_in_time(
        &self,
        question: Question,
        progress: &Progress,
    ) -> Result<(Response<Incoming>, OwnedSemaphorePermit), LoadError> {
        let place = self.room.clone().acquire_owned();
        let permit = tokio::time::timeout_at(progress.due(self.fetch_timeout), place);
        let Ok(Ok(permit)) = permit.await else {
            return Err(LoadError::Overloaded(
                "all connections to the origin are in use; raise `connections_max` if the origin allows it",
            ));
        };
        let interims = question.interims.clone();
        let request = self.request(question, progress)?;
        let exchange = pin!(self.exchange(request, interims));
        let response = self.in_time(exchange, progress).await?;
        self.proven.note(&response);
        Ok((response, permit))
    }

    /// Every turn of the loop is one in which the client let us wait; how often it may is bounded
    /// at the door. Taken by reference: by value, a slow request would have room for it twice.
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
        mut request: Request<Watched>,
        interims: Interims,
    ) -> Result<Response<Incoming>, LoadError> {
        let flood = Arc::new(Flood::default());
        let counted = flood.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            counted.count();
            pass_on(&interims, interim.status(), interim.headers());
        });
        tokio::select! {
            biased;
            flood = flood.exceeded() => Err(LoadError::origin(flood)),
            response = self.client_for(request.method()).request(request) => {
                response.map_err(|error| self.explain(&error))
            }
        }
    }

    /// RFC 9112 section 9.3.1: what is not safe may have taken effect when its connection closes.
    fn client_for(&self, method: &Method) -> &Client<Connector, Watched> {
        if method.is_safe() { &self.client } else { &self.attentive }
    }

    fn request(
        &self,
        question: Question,
        progress: &Progress,
    ) -> Result<Request<Watched>, LoadError> {
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(question.target)
            .build()
            .map_err(LoadError::origin)?;
        let is_sized = question.body.size_hint().exact().is_some();
        let mut request = Request::new(progress.watch(question.body));
        *request.method_mut() = question.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = question.headers;
        if !is_sized {
            // Of a GET, hyper would send the body only if it is told how.
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Ok(request)
    }

    /// A client that is too slow or makes no sense is not the origin's fault. Everything else in
    /// hyper's words, with their causes: "client error (Connect)" alone helps nobody.
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
        if self.proven.explains(error) {
            return LoadError::unreachable(ClosedIdle(text));
        }
        if error.is_connect() || is_close(error) {
            return LoadError::unreachable(text);
        }
        LoadError::origin(text)
    }
}

fn client(settings: &SiteSettings, idle_max: Duration) -> Client<Connector, Watched> {
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

/// A request that could not be forwarded since its own client failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// Its body broke a rule.
    #[error("the client's request body is malformed: {0}")]
    BadBody(Refusal),
    /// Its body came too slowly.
    #[error("the client's request body arrived too slowly")]
    TooSlow,
    /// Its connection ended before its body did.
    #[error("the client went away before its request body had ended")]
    Gone,
}

impl ClientFault {
    /// The fault behind an error of a client's request body.
    pub(crate) fn of_body(error: &(dyn std::error::Error + 'static)) -> Self {
        if Lapse::in_chain(error).is_some() {
            return Self::TooSlow;
        }
        Refusal::in_chain(error).map_or(Self::Gone, Self::BadBody)
    }

    /// The fault of a request body among the causes of a failed exchange.
    fn in_chain(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        causes(error).find_map(|cause| cause.downcast_ref().copied())
    }

    /// The client's fault behind a failed load, if it is one.
    #[must_use]
    pub fn in_error(error: &LoadError) -> Option<Self> {
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

/// The causes of an error, the nearest first.
fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |error| error.source())
}

/// Number of bytes that came in answer to the request that failed.
fn received(error: &ClientError) -> usize {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras.get::<Received>().map_or(0, Received::bytes)
}

/// No body.
#[must_use]
pub fn no_body() -> RequestBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// The body of an origin's answer: given up if a piece takes longer than it may. Holds its place
/// among the connections until it is dropped.
pub struct OriginBody {
    inner: Incoming,
    held: Held,
    piece_timeout: Duration,
    /// Armed only while we wait for a piece.
    patience: Option<Pin<Box<Sleep>>>,
}

/// What an answer holds at its origin until its body has come.
struct Held {
    _connection: OwnedSemaphorePermit,
    /// One of those that serve a single client.
    alone: Option<OwnedSemaphorePermit>,
}

impl OriginBody {
    fn new(inner: Incoming, held: Held, piece_timeout: Duration) -> Self {
        Self { inner, held, piece_timeout, patience: None }
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.piece_timeout;
        let patience = self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        patience.as_mut().poll(cx)
    }

    /// The body as pieces, for the engine.
    pub fn into_stream(self) -> forebay_engine::PieceStream {
        Box::pin(futures_util::stream::unfold(Some(self), |body| async {
            let mut body = body?;
            loop {
                match body.frame().await? {
                    // Trailers are not kept.
                    Ok(frame) => match frame.into_data() {
                        Ok(piece) if piece.is_empty() => {}
                        // What has all come needs no further look to know it, and its place is
                        // free.
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
            self.patience = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&error))));
        }
        ready!(self.poll_patience(cx));
        let late = format!("no piece within {:?}", self.piece_timeout);
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

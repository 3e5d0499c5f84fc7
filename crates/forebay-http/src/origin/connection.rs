//! One HTTP/1.1 connection to an origin.
//!
//! A small response to a request without a body is read here ([`plain`]); hyper ([`driven`]) takes
//! over when a response is not plain, and keeps the socket for some exchanges: for an origin whose
//! responses come in pieces, its state would otherwise be set up for each.

mod driven;
mod plain;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use self::driven::Driven;
use self::plain::PlainResult;
use super::accept::{HeadLimits, InterimRelay, digits};
use super::encoded::EncodedRequest;
use super::fault::ClientFault;
use super::outgoing::Message;
use super::progress::TrackedBody;
use super::response::{OriginResponse, PlainResponse};
use super::stream::{OriginStream, Received};

/// Number of exchanges in a row that hyper was not needed for, after which the socket is taken back
/// from it.
const NEEDLESS_MAX: u8 = 4;

/// Largest stated length of a body in bytes that counts as one that hyper was not needed for: it
/// arrives with its head, as a rule.
const SMALL_MAX: u64 = 8 << 10;

/// Connection to an origin.
pub(super) struct Connection {
    http: Http,
    limits: HeadLimits,
    received: Received,
    /// Address of the origin; `None` for a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    /// Set if the connection has delivered a response.
    pub(super) is_used: bool,
    /// Number of exchanges in a row that hyper was not needed for.
    needless: u8,
    _open: OpenConnection,
}

/// Owner of the socket.
enum Http {
    /// The socket between exchanges, not owned by hyper.
    Idle(OriginStream),
    Hyper(Box<Driven>),
    /// The socket was taken: an exchange without hyper is in progress or was abandoned, or hyper could
    /// not take it over.
    Over,
}

/// Count of an open connection, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnection {
    pub(super) fn count(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Failure of an exchange on one connection.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nothing of the request was sent.
    Unsent(Box<Request<TrackedBody>>, hyper::Error),
    /// The connection takes no further requests, and the origin did not process this one.
    Retired(Box<Request<TrackedBody>>),
    /// As [`Retired`](Self::Retired), but the body of the request is used up.
    GoneAway(hyper::Error),
    /// The origin refused to process the request now. It is absent if its body is used up.
    Refused(Option<Box<Request<TrackedBody>>>, hyper::Error),
    /// The client did not send its request body correctly.
    Client(ClientFault),
    /// The connection failed during the exchange.
    Failed(hyper::Error),
    /// There were more interim responses than a response may have.
    Interims,
}

impl Connection {
    /// Starts HTTP on a stream.
    pub(super) fn new(stream: OriginStream, limits: HeadLimits, open: OpenConnection) -> Self {
        let (received, peer) = (stream.received(), stream.peer());
        let http = Http::Idle(stream);
        Self { http, limits, received, peer, is_used: false, needless: 0, _open: open }
    }

    /// Sends a request, and returns the head of the final response.
    pub(super) async fn send(
        &mut self,
        message: Message<'_>,
        interims: &Arc<InterimRelay>,
    ) -> Result<OriginResponse<Incoming>, SendError> {
        let answered = self.exchange(message, interims).await;
        self.is_used |= answered.is_ok();
        answered
    }

    async fn exchange(
        &mut self,
        message: Message<'_>,
        interims: &Arc<InterimRelay>,
    ) -> Result<OriginResponse<Incoming>, SendError> {
        if matches!(self.http, Http::Idle(_))
            && let Some(encoded) = message.encoded()
            && let Some(response) = self.exchange_plainly(&encoded).await
        {
            return Ok(OriginResponse::Plain(response));
        }
        let request = message.into_request();
        if let Some(stream) = self.http.take_idle() {
            match Driven::begin(stream, self.limits).await {
                Ok(driven) => self.http = Http::Hyper(Box::new(driven)),
                Err(error) => return Err(SendError::Unsent(request, error)),
            }
        }
        let Http::Hyper(driven) = &mut self.http else { return Err(SendError::Retired(request)) };
        let may_be_plain = matches!(*request.method(), Method::GET | Method::HEAD);
        let response = driven.send(request, interims).await?;
        let is_needless = may_be_plain && is_small(&response);
        self.needless = if is_needless { self.needless.saturating_add(1) } else { 0 };
        Ok(OriginResponse::Hyper(response))
    }

    /// Sends a request without hyper. Returns `None` if hyper must read the response. If this is
    /// dropped, the connection is, too.
    async fn exchange_plainly(&mut self, request: &EncodedRequest) -> Option<Box<PlainResponse>> {
        let mut stream = self.http.take_idle()?;
        let exchanged = plain::exchange(request, &mut stream).await;
        let response = match exchanged {
            PlainResult::Response(response) => Some(response),
            PlainResult::Takeover(takeover) => {
                stream.resume(takeover);
                None
            }
        };
        self.http = Http::Idle(stream);
        response
    }

    /// Returns hyper's connection, if it has one.
    fn hyper(&mut self) -> Option<&mut Driven> {
        match &mut self.http {
            Http::Hyper(driven) => Some(driven),
            Http::Idle(_) | Http::Over => None,
        }
    }

    /// Lets the connection make progress.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driven) = self.hyper() {
            driven.drive(cx);
        }
    }

    /// Moves the connection to a task of its own. It is not used again.
    pub(super) fn drive_in_background(&mut self) {
        if let Some(driven) = self.hyper() {
            driven.drive_in_background();
        }
    }

    /// Returns `true` if [`drive`](Self::drive) makes progress; otherwise the exchange is complete, a
    /// task drives the connection, or it has ended.
    pub(super) fn is_driven_here(&self) -> bool {
        matches!(&self.http, Http::Hyper(driven) if driven.is_driven_here())
    }

    /// Returns the socket and the bytes that were read from it after a 101.
    pub(super) fn into_switched(self) -> Option<(OriginStream, Bytes)> {
        match self.http {
            Http::Hyper(driven) => driven.into_switched(),
            Http::Idle(_) | Http::Over => None,
        }
    }

    /// Returns `true` if the last exchange is complete. An idle connection may be closed all the same:
    /// [`is_reusable`](Self::is_reusable) tells it before the next use.
    pub(super) fn is_complete(&mut self) -> bool {
        match &mut self.http {
            Http::Idle(stream) => !stream.has_failed(),
            Http::Hyper(driven) => driven.is_reusable(),
            Http::Over => false,
        }
    }

    /// Returns `true` if the last exchange is complete, the origin has not closed the connection, and
    /// no unexpected byte is waiting.
    pub(super) fn is_reusable(&mut self) -> bool {
        match &mut self.http {
            Http::Idle(stream) => stream.is_quiet(),
            Http::Hyper(driven) => driven.is_reusable(),
            Http::Over => false,
        }
    }

    /// Takes the socket of a reusable connection back from hyper after [`NEEDLESS_MAX`] exchanges.
    pub(super) fn rest(&mut self) {
        if self.needless < NEEDLESS_MAX {
            return;
        }
        self.needless = 0;
        if let Http::Hyper(driven) = std::mem::replace(&mut self.http, Http::Over)
            && let Some(stream) = driven.into_idle()
        {
            self.http = Http::Idle(stream);
        }
    }

    /// Returns the number of bytes received since the last request was written.
    pub(super) fn received(&self) -> usize {
        self.received.bytes()
    }
}

impl Http {
    /// Takes the socket if no exchange is under way.
    fn take_idle(&mut self) -> Option<OriginStream> {
        match std::mem::replace(self, Self::Over) {
            Self::Idle(stream) => Some(stream),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Returns `true` if the body of a response is so short that it probably arrives with its head.
fn is_small(response: &Response<Incoming>) -> bool {
    let stated = response.headers().get(CONTENT_LENGTH);
    let length = stated.and_then(|stated| digits(stated.as_bytes()));
    response.body().is_end_stream() || length.is_some_and(|length| length <= SMALL_MAX)
}

impl From<TrySendError<Request<TrackedBody>>> for SendError {
    fn from(mut error: TrySendError<Request<TrackedBody>>) -> Self {
        match error.take_message() {
            Some(request) => Self::Unsent(Box::new(request), error.into_error()),
            None => Self::Failed(error.into_error()),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

//! One HTTP/1.1 connection to an origin, driven by the task that uses it.
//!
//! hyper's connection is a future that must be polled for its request to make progress. It is polled
//! by the exchange, and then by the body: a task of its own would cost a wake-up in each direction
//! per exchange. An idle connection is not polled; the pool polls it once before it is
//! used again, which detects a close and unexpected bytes.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::accept::{HeadLimits, InterimCounter};
use super::fault::ClientFault;
use super::progress::TrackedBody;
use super::stream::{OriginStream, Received};

type Driver = http1::Connection<TokioIo<OriginStream>, TrackedBody>;

/// Connection to an origin.
pub(super) struct Connection {
    sender: SendRequest<TrackedBody>,
    /// `None` if the connection has ended, or if a task drives it.
    driver: Option<Driver>,
    /// Driver that has ended, which still owns the socket: the origin may have switched protocols.
    ended: Option<Driver>,
    received: Received,
    /// Address of the origin; `None` for a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    /// Set if the connection has delivered a response.
    pub(super) is_used: bool,
    _open: OpenConnection,
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
    pub(super) async fn begin(
        stream: OriginStream,
        limits: HeadLimits,
        open: OpenConnection,
    ) -> Result<Self, hyper::Error> {
        let (received, peer) = (stream.received(), stream.peer());
        let mut builder = http1::Builder::new();
        builder.max_headers(limits.fields_max()).max_buf_size(limits.head_max());
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender,
            driver: Some(driver),
            ended: None,
            received,
            peer,
            is_used: false,
            _open: open,
        })
    }

    /// Sends a request, and returns the head of the final response.
    pub(super) async fn send(
        &mut self,
        request: Box<Request<TrackedBody>>,
        interims: &InterimCounter,
    ) -> Result<Response<Incoming>, SendError> {
        let mut response = pin!(self.sender.try_send_request(*request));
        let answered = poll_fn(|cx| {
            let driven = poll(&mut self.driver, cx);
            if interims.is_exceeded() {
                return Poll::Ready(Err(SendError::Interims));
            }
            // The driver alone completes the response, and it has just been polled.
            let mut unwoken = Context::from_waker(Waker::noop());
            let polled = response.as_mut().poll(&mut unwoken);
            if driven.is_ready() {
                self.ended = self.driver.take();
            }
            if polled.is_pending() && self.driver.is_none() {
                // Dropping the driver completes a request that it did not answer.
                self.ended = None;
                return response.as_mut().poll(&mut unwoken).map_err(SendError::from);
            }
            polled.map_err(SendError::from)
        })
        .await;
        self.is_used |= answered.is_ok();
        answered
    }

    /// Lets the connection make progress.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if poll(&mut self.driver, cx).is_ready() {
            self.driver = None;
        }
    }

    /// Moves the driver to a task of its own. Such a connection is not used again.
    pub(super) fn drive_in_background(&mut self) {
        if let Some(driver) = self.driver.take() {
            tokio::spawn(driver);
        }
    }

    /// Returns `true` if [`drive`](Self::drive) makes progress; otherwise a task drives the
    /// connection, or it has ended.
    pub(super) const fn is_driven_here(&self) -> bool {
        self.driver.is_some()
    }

    /// Returns the socket and the bytes that were read from it after a 101.
    pub(super) fn into_switched(self) -> Option<(OriginStream, Bytes)> {
        let parts = self.ended?.into_parts();
        Some((parts.io.into_inner(), parts.read_buf))
    }

    /// Returns `true` if the last exchange is complete, the origin has not closed the connection, and
    /// no unexpected byte is waiting.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Returns the number of bytes received since the last request was written.
    pub(super) fn received(&self) -> usize {
        self.received.bytes()
    }
}

fn poll(driver: &mut Option<Driver>, cx: &mut Context<'_>) -> Poll<()> {
    // A failure is reported to the request that it concerns.
    driver.as_mut().map_or(Poll::Pending, |driver| driver.poll_without_shutdown(cx).map(drop))
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

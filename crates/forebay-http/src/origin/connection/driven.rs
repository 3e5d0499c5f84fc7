//! hyper's HTTP/1.1 connection, driven by the task that uses it.
//!
//! It is a future that must be polled for its request to make progress. It is polled by the
//! exchange, and then by the body: a task of its own would cost a wake-up in each direction per
//! exchange. An idle connection is not polled; the pool polls it once before it is used again, which
//! detects a close and unexpected bytes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::SendError;
use crate::origin::accept::{HeadLimits, InterimRelay};
use crate::origin::progress::TrackedBody;
use crate::origin::stream::OriginStream;

type Driver = http1::Connection<TokioIo<OriginStream>, TrackedBody>;

/// Connection of hyper.
pub(super) struct Driven {
    sender: SendRequest<TrackedBody>,
    /// `None` if the connection has ended, or if a task drives it.
    driver: Option<Driver>,
    /// Driver that has ended, which still owns the socket: the origin may have switched protocols.
    ended: Option<Driver>,
}

impl Driven {
    /// Starts HTTP on a stream.
    pub(super) async fn begin(
        stream: OriginStream,
        limits: HeadLimits,
    ) -> Result<Self, hyper::Error> {
        let mut builder = http1::Builder::new();
        builder.max_headers(limits.fields_max()).max_buf_size(limits.head_max());
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(driver), ended: None })
    }

    /// Sends a request, and returns the head of the final response.
    pub(super) async fn send(
        &mut self,
        mut request: Box<Request<TrackedBody>>,
        interims: &Arc<InterimRelay>,
    ) -> Result<Response<Incoming>, SendError> {
        let relay = interims.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            relay.forward(interim.status(), interim.headers());
        });
        let mut response = pin!(self.sender.try_send_request(*request));
        poll_fn(|cx| {
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
        .await
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

    /// Returns the socket of an idle connection.
    pub(super) fn into_idle(self) -> Option<OriginStream> {
        let parts = self.driver?.into_parts();
        parts.read_buf.is_empty().then(|| parts.io.into_inner())
    }

    /// Returns `true` if the last exchange is complete, the origin has not closed the connection, and
    /// no unexpected byte is waiting.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }
}

fn poll(driver: &mut Option<Driver>, cx: &mut Context<'_>) -> Poll<()> {
    // A failure is reported to the request that it concerns.
    driver.as_mut().map_or(Poll::Pending, |driver| driver.poll_without_shutdown(cx).map(drop))
}

//! Progress of a request body that is being sent to an origin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ClientFault, RequestBody};

/// Party that an exchange waits for: the origin or the client.
///
/// A long upload may take longer than the fetch timeout. The client timeouts bound the client; the
/// fetch timeout runs only while the exchange waits for the origin to read or to respond.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug)]
struct State {
    waiting_for: WaitingFor,
    is_body_sent: bool,
    /// Failure of the request body.
    fault: Option<ClientFault>,
}

#[derive(Clone, Copy, Debug)]
enum WaitingFor {
    Origin { since: Instant },
    Client,
}

impl Progress {
    /// Starts an exchange, which waits for the origin. `is_body_sent` is true if the request has no body.
    pub(super) fn begin(since: Instant, is_body_sent: bool) -> Self {
        let waiting_for = WaitingFor::Origin { since };
        Self(Arc::new(Mutex::new(State { waiting_for, is_body_sent, fault: None })))
    }

    /// Returns the time at which the origin times out, as of now.
    pub(super) fn due(&self, timeout: Duration) -> Instant {
        match self.0.lock().waiting_for {
            WaitingFor::Origin { since } => since + timeout,
            WaitingFor::Client => Instant::now() + timeout,
        }
    }

    /// Returns `true` if the whole request body was passed on.
    pub(super) fn is_body_sent(&self) -> bool {
        self.0.lock().is_body_sent
    }

    /// Returns the failure of the request body, if it failed.
    pub(super) fn fault(&self) -> Option<ClientFault> {
        self.0.lock().fault
    }

    /// Wraps a request body so that its progress is recorded.
    pub(super) fn track(&self, inner: RequestBody) -> TrackedBody {
        self.0.lock().is_body_sent = inner.is_end_stream();
        TrackedBody { inner, progress: self.clone() }
    }
}

/// Request body that records its progress.
#[derive(Debug)]
pub(super) struct TrackedBody {
    inner: RequestBody,
    progress: Progress,
}

impl TrackedBody {
    /// Returns the progress of the body.
    pub(super) const fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = ClientFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let waiting_for = match &polled {
            Poll::Ready(_) => WaitingFor::Origin { since: Instant::now() },
            Poll::Pending => WaitingFor::Client,
        };
        let is_body_sent = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream();
        let polled = polled.map_err(|error| ClientFault::of_body(&*error));
        let fault = match &polled {
            Poll::Ready(Some(Err(fault))) => Some(*fault),
            _ => None,
        };
        *self.progress.0.lock() = State { waiting_for, is_body_sent, fault };
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

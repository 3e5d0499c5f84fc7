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

/// State of an exchange that decides when the origin times out: it waits for the origin or for the
/// client.
///
/// A long upload may take longer than the fetch timeout. The client timeouts bound the client; the
/// fetch timeout runs only while the exchange waits for the origin to read or to respond.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// A request without a body. Its exchange has waited for the origin since this time.
    NoBody { since: Instant },
    /// A request with a body. The state changes when the body is polled.
    Tracked(Arc<Mutex<State>>),
}

/// State of a request body.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
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
    /// Creates the progress of an exchange that waits for the origin from `since` on.
    pub(super) fn begin(since: Instant, has_no_body: bool) -> Self {
        if has_no_body {
            return Self::NoBody { since };
        }
        let waiting_for = WaitingFor::Origin { since };
        Self::Tracked(Arc::new(Mutex::new(State { waiting_for, is_body_sent: false, fault: None })))
    }

    /// Returns the time at which the origin times out. While the exchange waits for the client, that is
    /// `timeout` from now.
    pub(super) fn due(&self, timeout: Duration) -> Instant {
        let waiting_for = match self {
            Self::NoBody { since } => return *since + timeout,
            Self::Tracked(state) => state.lock().waiting_for,
        };
        match waiting_for {
            WaitingFor::Origin { since } => since + timeout,
            WaitingFor::Client => Instant::now() + timeout,
        }
    }

    /// Returns `true` if the whole request body was passed on.
    pub(super) fn is_body_sent(&self) -> bool {
        match self {
            Self::NoBody { .. } => true,
            Self::Tracked(state) => state.lock().is_body_sent,
        }
    }

    /// Returns the failure of the request body, if it failed.
    pub(super) fn fault(&self) -> Option<ClientFault> {
        match self {
            Self::NoBody { .. } => None,
            Self::Tracked(state) => state.lock().fault,
        }
    }

    /// Wraps a request body so that its progress is recorded.
    pub(super) fn track(&self, inner: RequestBody) -> TrackedBody {
        if let Self::Tracked(state) = self {
            state.lock().is_body_sent = inner.is_end_stream();
        }
        TrackedBody { inner, progress: self.clone() }
    }

    fn set(&self, changed: State) {
        if let Self::Tracked(state) = self {
            *state.lock() = changed;
        }
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
        self.progress.set(State { waiting_for, is_body_sent, fault });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

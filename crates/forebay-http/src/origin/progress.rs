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
pub(super) struct Progress(Arc<Mutex<WaitingFor>>);

#[derive(Clone, Copy, Debug)]
enum WaitingFor {
    Origin { since: Instant },
    Client,
}

impl Progress {
    /// Starts an exchange, which waits for the origin.
    pub(super) fn begin() -> Self {
        Self(Arc::new(Mutex::new(WaitingFor::Origin { since: Instant::now() })))
    }

    /// Returns the time at which the origin times out, as of now.
    pub(super) fn due(&self, timeout: Duration) -> Instant {
        match *self.0.lock() {
            WaitingFor::Origin { since } => since + timeout,
            WaitingFor::Client => Instant::now() + timeout,
        }
    }

    /// Wraps a request body so that its progress is recorded.
    pub(super) fn track(&self, inner: RequestBody) -> TrackedBody {
        TrackedBody { inner, progress: self.clone() }
    }
}

/// Request body that records its progress.
#[derive(Debug)]
pub(super) struct TrackedBody {
    inner: RequestBody,
    progress: Progress,
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
        *self.progress.0.lock() = waiting_for;
        polled.map_err(|error| ClientFault::of_body(&*error))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

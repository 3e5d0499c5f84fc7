//! A request body on its way to an origin, and when it last moved.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ClientFault, RequestBody};

/// Since when the origin owes us something.
///
/// A long body may take longer than an origin may. How slow its client may be is bounded at the
/// door; the origin's time runs only while it is its turn, to take a piece or to answer.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Turn>>);

#[derive(Clone, Copy, Debug)]
enum Turn {
    Origin { since: Instant },
    Client,
}

impl Progress {
    /// It is the origin's turn from now on.
    pub(super) fn begin() -> Self {
        Self(Arc::new(Mutex::new(Turn::Origin { since: Instant::now() })))
    }

    /// When the origin, which may take that long, is too late, as far as can be said now.
    pub(super) fn due(&self, timeout: Duration) -> Instant {
        match *self.0.lock() {
            Turn::Origin { since } => since + timeout,
            Turn::Client => Instant::now() + timeout,
        }
    }

    /// The same body, watched.
    pub(super) fn watch(&self, inner: RequestBody) -> Watched {
        Watched { inner, progress: self.clone() }
    }
}

/// A body whose progress is noted.
#[derive(Debug)]
pub(super) struct Watched {
    inner: RequestBody,
    progress: Progress,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = ClientFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let turn = match &polled {
            Poll::Ready(_) => Turn::Origin { since: Instant::now() },
            Poll::Pending => Turn::Client,
        };
        *self.progress.0.lock() = turn;
        polled.map_err(|error| ClientFault::of_body(&*error))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

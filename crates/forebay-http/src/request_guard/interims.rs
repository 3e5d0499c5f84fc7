//! Interim responses to a client (RFC 9110 section 15.2).
//!
//! hyper's server cannot send interim responses, so they are written without it. An interim
//! response must be written after the last byte of the previous response and before the first byte
//! of its own. Three facts ensure this order:
//!
//! - the service opens a channel when it starts a response, and hyper starts the next request only
//!   after the whole previous response has been produced;
//! - [`Guarded`](super::Guarded) writes interim responses when hyper flushes, which hyper does only
//!   after it has written all the bytes it produced;
//! - [`Interims::before`] returns the final response only after all interim responses are written,
//!   and accepts none after that.
//!
//! The sender is a load, which may outlive the client's request. A channel whose client
//! disconnected or has its response discards everything.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::{Mutex, MutexGuard};

use super::exchanges::ExchangeState;

/// Maximum number of interim responses to one request, the same as the maximum from an origin.
pub(crate) const INTERIM_MAX: usize = 16;

/// Maximum number of bytes of all interim responses to one request. They stay in memory while the
/// client does not read.
const BYTES_MAX: usize = 64 << 10;

/// Sender of interim responses to the client of one exchange. The default sender discards them.
#[derive(Clone, Debug, Default)]
pub struct Interims(Option<Channel>);

#[derive(Clone, Debug)]
struct Channel {
    state: Arc<ExchangeState>,
    number: u64,
}

/// Interim responses that a connection must write before the current final response.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Set while interim responses are pending. A response without interim responses reads only
    /// this flag.
    any: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Number of channels opened so far on this connection; also the number of the latest channel.
    channels: u64,
    is_open: bool,
    /// Complete interim responses that have not been written yet.
    bytes: Vec<u8>,
    /// Number of interim responses accepted for the current exchange, and their total bytes.
    taken: (usize, usize),
    /// Task of the connection, which writes the interim responses and then the final response.
    task: Option<Waker>,
}

impl Interims {
    pub(super) fn open(state: Arc<ExchangeState>) -> Self {
        let mut queue = state.interims.queue.lock();
        let number = queue.channels + 1;
        *queue = Queue { channels: number, is_open: true, ..Queue::default() };
        drop(queue);
        Self(Some(Channel { state, number }))
    }

    /// Queues an interim response, which is written as soon as the client reads it. `fields` must
    /// be safe for the client and must not contain framing fields.
    ///
    /// Discards the response if the final response has begun or the exchange has ended. Also
    /// discards it, and counts that, beyond 16 interim responses or 64 KiB of them per request.
    pub fn send(&self, status: StatusCode, fields: &HeaderMap) {
        let Some(channel) = &self.0 else { return };
        let mut queue = channel.state.interims.queue.lock();
        if queue.channels != channel.number || !queue.is_open {
            return;
        }
        let (count, length) = queue.taken;
        let begin = queue.bytes.len();
        write_head(&mut queue.bytes, status, fields);
        let length = length + queue.bytes.len() - begin;
        if count >= INTERIM_MAX || length > BYTES_MAX {
            queue.bytes.truncate(begin);
            channel.state.counters.count_dropped_interim();
            return;
        }
        queue.taken = (count + 1, length);
        channel.state.interims.any.store(true, Ordering::Release);
        let task = queue.task.take();
        drop(queue);
        task.into_iter().for_each(Waker::wake);
    }

    /// Waits for `answer`, then until all interim responses queued before it are written, and
    /// returns it. Later interim responses are discarded. Must be polled by the task of the
    /// connection.
    pub(crate) async fn before<F: Future + Unpin>(self, mut answer: F) -> F::Output {
        let Some(channel) = self.0.map(Closing) else { return answer.await };
        let answer = poll_fn(|cx| {
            channel.wake_later(cx);
            answer.poll_unpin(cx)
        })
        .await;
        channel.queue().is_open = false;
        poll_fn(|cx| channel.poll_written(cx)).await;
        answer
    }
}

/// Closes a channel when dropped, which covers a response that is no longer awaited.
struct Closing(Channel);

impl Closing {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.state.interims.queue.lock()
    }

    fn wake_later(&self, cx: &Context<'_>) {
        let mut queue = self.queue();
        if !queue.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            queue.task = Some(cx.waker().clone());
        }
    }

    /// The write timeout of the guard bounds this wait.
    fn poll_written(&self, cx: &Context<'_>) -> Poll<()> {
        self.wake_later(cx);
        if self.0.state.interims.any() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut queue = self.queue();
        // Channel numbers are unique, so a late sender finds its channel closed.
        *queue = Queue { channels: queue.channels, ..Queue::default() };
    }
}

impl Pending {
    /// Returns `true` while an interim response is queued or being written.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes all queued bytes. Returns `None` if everything is written, so that the final response
    /// may follow.
    pub(super) fn take(&self) -> Option<Bytes> {
        let mut queue = self.queue.lock();
        if !queue.bytes.is_empty() {
            return Some(std::mem::take(&mut queue.bytes).into());
        }
        self.any.store(false, Ordering::Release);
        // Wakes the connection to continue with the final response once the channel is closed.
        let task = if queue.is_open { None } else { queue.task.take() };
        drop(queue);
        task.into_iter().for_each(Waker::wake);
        None
    }
}

fn write_head(bytes: &mut Vec<u8>, status: StatusCode, fields: &HeaderMap) {
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    bytes.extend_from_slice(b"\r\n");
    // hyper validates values less strictly than `HeaderValue`; a line ending must not pass.
    let sound = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).is_ok();
    for (name, value) in fields.iter().filter(|(_, value)| sound(value)) {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
}

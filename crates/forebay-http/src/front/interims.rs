//! Interim responses on their way to a client (RFC 9110 section 15.2).
//!
//! hyper's server has no way to send them, so they go past it. Their one place is between whole
//! answers: behind the last byte of the answer before, and before the first byte of the answer
//! that they announce. Both ends are held by when things happen:
//!
//! - a way is opened by the service when it answers a request, and hyper asks it for the answer to
//!   one request only when it has made the whole answer to the one before;
//! - [`Guarded`](super::Guarded) writes them where hyper flushes, which reaches it only once hyper
//!   has written all that it has made;
//! - [`Interims::before`] gives out the answer only when all of them are written, and none is taken
//!   after that.
//!
//! Whoever sends them belongs to no client: a way whose client has left, or has its answer, takes
//! nothing.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::{Mutex, MutexGuard};

use super::exchanges::Ledger;

/// Interim responses to one request, at most: as many as one answer of an origin may have.
pub(crate) const INTERIM_MAX: usize = 16;

/// Bytes of all interim responses to one request, at most. A client that does not read leaves them
/// here.
const BYTES_MAX: usize = 64 << 10;

/// The way of interim responses to the client of one exchange. By default it leads to nobody.
#[derive(Clone, Debug, Default)]
pub struct Interims(Option<Way>);

#[derive(Clone, Debug)]
struct Way {
    ledger: Arc<Ledger>,
    number: u64,
}

/// What a connection has to write before the answer under way.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Whether there is anything: all that an answer without interim responses looks at.
    any: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many ways there have been; a number for each.
    ways: u64,
    is_open: bool,
    /// Whole responses that nobody has begun to write.
    bytes: Vec<u8>,
    /// How many were taken for this exchange, and how many bytes they had.
    taken: (usize, usize),
    /// The connection, which both writes them and waits to go on with the answer.
    task: Option<Waker>,
}

impl Interims {
    pub(super) fn open(ledger: Arc<Ledger>) -> Self {
        let mut queue = ledger.interims.queue.lock();
        let number = queue.ways + 1;
        *queue = Queue { ways: number, is_open: true, ..Queue::default() };
        drop(queue);
        Self(Some(Way { ledger, number }))
    }

    /// Sends one, as soon as the client takes it. Its fields must be for the client, and none of
    /// them may say where a message ends.
    ///
    /// It is left out if the exchange is over, and, which is counted, if there were
    /// sixteen of them or more bytes than wait for a client.
    pub fn send(&self, status: StatusCode, fields: &HeaderMap) {
        let Some(way) = &self.0 else { return };
        let mut queue = way.ledger.interims.queue.lock();
        if queue.ways != way.number || !queue.is_open {
            return;
        }
        let (count, length) = queue.taken;
        let begin = queue.bytes.len();
        write_head(&mut queue.bytes, (status, fields));
        let length = length + queue.bytes.len() - begin;
        if count >= INTERIM_MAX || length > BYTES_MAX {
            queue.bytes.truncate(begin);
            way.ledger.counters.count_lost_interim();
            return;
        }
        queue.taken = (count + 1, length);
        way.ledger.interims.any.store(true, Ordering::Release);
        let task = queue.task.take();
        drop(queue);
        task.into_iter().for_each(Waker::wake);
    }

    /// Waits for the answer, and then until all that was sent before it is written; what is sent
    /// after it is left out. To be polled by the connection's own task.
    pub(crate) async fn before<F: Future + Unpin>(self, mut answer: F) -> F::Output {
        let Some(way) = self.0.map(Closing) else { return answer.await };
        let answer = poll_fn(|cx| {
            way.wake_later(cx);
            answer.poll_unpin(cx)
        })
        .await;
        way.queue().is_open = false;
        poll_fn(|cx| way.poll_written(cx)).await;
        answer
    }
}

/// Closes a way at the latest when nobody waits for the answer any more.
struct Closing(Way);

impl Closing {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.ledger.interims.queue.lock()
    }

    fn wake_later(&self, cx: &Context<'_>) {
        let mut queue = self.queue();
        if !queue.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            queue.task = Some(cx.waker().clone());
        }
    }

    /// How long the client may take is bounded where they are written.
    fn poll_written(&self, cx: &Context<'_>) -> Poll<()> {
        self.wake_later(cx);
        if self.0.ledger.interims.any() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut queue = self.queue();
        // No number is given twice, so that late senders find their way closed.
        *queue = Queue { ways: queue.ways, ..Queue::default() };
    }
}

impl Pending {
    /// Whether something waits, or is being written.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// All that waits. Nothing if all is written: the answer may follow.
    pub(super) fn take(&self) -> Option<Bytes> {
        let mut queue = self.queue.lock();
        if !queue.bytes.is_empty() {
            return Some(std::mem::take(&mut queue.bytes).into());
        }
        self.any.store(false, Ordering::Release);
        // A task that is told to go on with its answer; until then it waits for more of these.
        let task = if queue.is_open { None } else { queue.task.take() };
        drop(queue);
        task.into_iter().for_each(Waker::wake);
        None
    }
}

fn write_head(bytes: &mut Vec<u8>, (status, fields): (StatusCode, &HeaderMap)) {
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    bytes.extend_from_slice(b"\r\n");
    // hyper does not look at values as closely as their type does, and nothing that ends a line
    // may get through.
    let sound = |value: &HeaderValue| HeaderValue::from_bytes(value.as_bytes()).is_ok();
    for (name, value) in fields.iter().filter(|(_, value)| sound(value)) {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
}

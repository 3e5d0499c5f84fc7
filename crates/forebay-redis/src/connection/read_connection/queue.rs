//! Pending reads of a read-only connection, in the order of their requests.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::replies::{Malformed, Reply};

/// Maximum number of pending reads. Further reads use the main connection.
const PENDING_MAX: usize = 1_024;

/// Reason for a missing reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    TimedOut,
    Broken,
}

/// State of a read-only connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    Open,
    /// Closed; it may be reopened at this time, if there is one.
    Closed(Option<Instant>),
}

/// Pending reads.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Timeout of a read.
    wait_max: Duration,
    bytes_max: u64,
    /// Bytes of a command after the name.
    tail: Box<[u8]>,
}

struct State {
    phase: Phase,
    /// Encoded commands that the driver has not taken yet.
    unsent: Vec<u8>,
    pending: VecDeque<PendingRead>,
    /// Number of reads at the front that have timed out.
    expired: usize,
    /// Waker of the driver.
    driver: Option<Waker>,
}

struct PendingRead {
    at: Instant,
    slot: Arc<ReplySlot>,
}

/// Slot for one reply.
#[derive(Default)]
struct ReplySlot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    answer: Option<Result<Reply, NoReply>>,
    waker: Option<Waker>,
}

impl ReplySlot {
    /// Sets the reply unless there is one, and returns the waker of the caller.
    fn put(&self, answer: Result<Reply, NoReply>) -> Option<Waker> {
        let mut slot = self.0.lock();
        slot.answer.get_or_insert(answer);
        slot.waker.take()
    }
}

/// Future of one reply.
pub(crate) struct PendingReply(Arc<ReplySlot>);

impl Future for PendingReply {
    type Output = Result<Reply, NoReply>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.0.lock();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Queue {
    pub(crate) fn new(wait_max: Duration, bytes_max: u64) -> Self {
        let last = bytes_max.saturating_sub(1).to_string();
        let tail = format!("\r\n$1\r\n0\r\n${}\r\n{last}\r\n", last.len());
        let state = State {
            phase: Phase::Opening,
            unsent: Vec::new(),
            pending: VecDeque::new(),
            expired: 0,
            driver: None,
        };
        Self { state: Mutex::new(state), wait_max, bytes_max, tail: tail.into_bytes().into() }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Returns the maximum bytes of a value on this connection.
    pub(crate) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn open(&self) {
        self.state.lock().phase = Phase::Open;
    }

    /// Requests a value. `None` if the connection is not open or has too many pending reads.
    pub(crate) fn start_read(&self, name: &str) -> Option<PendingReply> {
        let at = Instant::now();
        let mut state = self.state.lock();
        if state.phase != Phase::Open || state.pending.len() >= PENDING_MAX {
            return None;
        }
        state.unsent.extend_from_slice(b"*4\r\n$8\r\nGETRANGE\r\n$");
        push_number(&mut state.unsent, name.len());
        state.unsent.extend_from_slice(b"\r\n");
        state.unsent.extend_from_slice(name.as_bytes());
        state.unsent.extend_from_slice(&self.tail);
        let slot = Arc::<ReplySlot>::default();
        state.pending.push_back(PendingRead { at, slot: slot.clone() });
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Some(PendingReply(slot))
    }

    /// Resolves when there are commands to send.
    pub(crate) fn poll_unsent(&self, task: &Context<'_>) -> Poll<Result<(), NoReply>> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Poll::Ready(Err(NoReply::Broken));
        }
        if !state.unsent.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.driver = Some(task.waker().clone());
        Poll::Pending
    }

    /// Appends the unsent commands to `sending`.
    pub(crate) fn take_unsent(&self, sending: &mut Vec<u8>) {
        let mut state = self.state.lock();
        if sending.is_empty() {
            std::mem::swap(sending, &mut state.unsent);
        } else {
            sending.append(&mut state.unsent);
        }
    }

    /// Delivers replies to the oldest pending reads.
    ///
    /// # Errors
    /// [`Malformed`] if there are more replies than pending reads.
    pub(crate) fn answer(&self, replies: &mut Vec<Reply>) -> Result<(), Malformed> {
        let mut state = self.state.lock();
        let count = replies.len();
        if count > state.pending.len() {
            return Err(Malformed);
        }
        state.expired = state.expired.saturating_sub(count);
        let pending: Vec<PendingRead> = state.pending.drain(..count).collect();
        drop(state);
        for (PendingRead { slot, .. }, reply) in pending.into_iter().zip(replies.drain(..)) {
            if let Some(waker) = slot.put(Ok(reply)) {
                waker.wake();
            }
        }
        Ok(())
    }

    /// Fails overdue reads. Returns the time of the next timeout and of the oldest request without
    /// a reply.
    pub(crate) fn expire(&self, now: Instant) -> Option<(Instant, Instant)> {
        let mut state = self.state.lock();
        let is_over =
            |pending: &&PendingRead| now.saturating_duration_since(pending.at) >= self.wait_max;
        let first = state.expired;
        let over: Vec<_> = state.pending.iter().skip(first).take_while(is_over).collect();
        let over: Vec<_> = over.into_iter().map(|pending| pending.slot.clone()).collect();
        state.expired += over.len();
        let oldest = state.pending.front().map(|pending| pending.at);
        let next = state.pending.get(state.expired).map(|pending| pending.at + self.wait_max);
        drop(state);
        wake_all(over, NoReply::TimedOut);
        oldest.map(|oldest| (next.unwrap_or(now + self.wait_max), oldest))
    }

    /// Fails all pending reads; `again` is the time of the next attempt.
    pub(crate) fn close(&self, again: Option<Instant>) {
        let mut state = self.state.lock();
        state.phase = Phase::Closed(again);
        state.unsent = Vec::new();
        state.expired = 0;
        let pending = std::mem::take(&mut state.pending);
        let driver = state.driver.take();
        drop(state);
        wake_all(pending.into_iter().map(|pending| pending.slot), NoReply::Broken);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

fn wake_all(slots: impl IntoIterator<Item = Arc<ReplySlot>>, lost: NoReply) {
    let wakers = slots.into_iter().filter_map(|slot| slot.put(Err(lost)));
    wakers.for_each(Waker::wake);
}

/// Formatting with `write!` would double the cost of a request.
fn push_number(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(b"0123456789"[number % 10]);
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const WAIT_MAX: Duration = Duration::from_millis(50);

    fn open() -> Queue {
        let queue = Queue::new(WAIT_MAX, 1_000);
        queue.open();
        queue
    }

    fn waits(waiting: PendingReply) -> Option<Result<String, NoReply>> {
        let answer = waiting.now_or_never()?;
        Some(answer.map(|reply| format!("{reply:?}")))
    }

    #[tokio::test(start_paused = true)]
    async fn read_is_encoded_as_a_command() {
        let queue = open();
        let mut sending = b"before ".to_vec();
        let _first = queue.start_read("name").unwrap();
        queue.take_unsent(&mut sending);
        let command = b"before *4\r\n$8\r\nGETRANGE\r\n$4\r\nname\r\n$1\r\n0\r\n$3\r\n999\r\n";
        assert_eq!(sending, command);
        sending.clear();
        let _second = queue.start_read(&"x".repeat(123)).unwrap();
        queue.take_unsent(&mut sending);
        assert!(sending.starts_with(b"*4\r\n$8\r\nGETRANGE\r\n$123\r\nxxx"));
    }

    #[tokio::test(start_paused = true)]
    async fn replies_are_delivered_in_request_order() {
        let queue = open();
        let (one, two) = (queue.start_read("one").unwrap(), queue.start_read("two").unwrap());
        drop(queue.start_read("gone").unwrap());
        let four = queue.start_read("four").unwrap();
        let mut replies = vec![Reply::Nothing, Reply::Done, Reply::Done];
        queue.answer(&mut replies).unwrap();
        assert_eq!(waits(one), Some(Ok("Nothing".to_owned())));
        assert_eq!(waits(two), Some(Ok("Done".to_owned())));
        let mut replies = vec![Reply::Done, Reply::Done];
        assert_eq!(queue.answer(&mut replies), Err(Malformed), "one more than was pending");
        queue.close(None);
        assert_eq!(waits(four), Some(Err(NoReply::Broken)));
        assert!(queue.start_read("five").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn timed_out_read_fails_and_its_late_reply_is_dropped() {
        let queue = open();
        let began = Instant::now();
        let early = queue.start_read("early").unwrap();
        tokio::time::advance(Duration::from_millis(20)).await;
        let late = queue.start_read("late").unwrap();
        let next = queue.expire(began + WAIT_MAX).unwrap();
        assert_eq!(next, (began + WAIT_MAX + Duration::from_millis(20), began));
        assert_eq!(waits(early), Some(Err(NoReply::TimedOut)));
        queue.answer(&mut vec![Reply::Nothing]).unwrap();
        queue.answer(&mut vec![Reply::Done]).unwrap();
        assert_eq!(waits(late), Some(Ok("Done".to_owned())));
        assert_eq!(queue.expire(began + WAIT_MAX * 2), None, "no read is pending");
    }

    #[tokio::test(start_paused = true)]
    async fn pending_reads_are_limited() {
        let queue = Queue::new(WAIT_MAX, 1_000);
        assert!(queue.start_read("x").is_none(), "it is not open yet");
        queue.open();
        let all: Vec<_> = (0..PENDING_MAX).map(|_| queue.start_read("x").unwrap()).collect();
        assert!(queue.start_read("x").is_none());
        queue.answer(&mut vec![Reply::Done]).unwrap();
        assert!(queue.start_read("x").is_some());
        drop(all);
    }
}

//! Who waits for an answer on a lane, in the order in which they have asked.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::replies::{Malformed, Reply};

/// How many may wait at once. More of them go another way: a server that does not answer must not
/// collect names.
const ASKED_MAX: usize = 1_024;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    TimedOut,
    Broken,
}

/// Where a lane is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Opening,
    Open,
    /// It may be opened again from then on, if ever.
    Closed(Option<Instant>),
}

/// All who wait.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// How long each of them does.
    patience: Duration,
    bytes_max: u64,
    /// What stands behind the name in a command.
    tail: Box<[u8]>,
}

struct State {
    standing: Standing,
    /// Commands that were not taken to be sent yet.
    unsent: Vec<u8>,
    asked: VecDeque<Asked>,
    /// How many of the first of these do not wait any more.
    expired: usize,
    /// Who sends.
    driver: Option<Waker>,
}

struct Asked {
    at: Instant,
    place: Arc<Place>,
}

/// Where an answer is put.
#[derive(Default)]
struct Place(Mutex<Answer>);

#[derive(Default)]
struct Answer {
    answer: Option<Result<Reply, Lost>>,
    waker: Option<Waker>,
}

impl Place {
    /// Puts an answer, unless there is one; who is to be woken.
    fn put(&self, answer: Result<Reply, Lost>) -> Option<Waker> {
        let mut place = self.0.lock();
        place.answer.get_or_insert(answer);
        place.waker.take()
    }
}

/// One who waits.
pub(crate) struct Waiting(Arc<Place>);

impl Future for Waiting {
    type Output = Result<Reply, Lost>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let mut place = self.0.0.lock();
        match place.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                place.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Queue {
    pub(crate) fn new(patience: Duration, bytes_max: u64) -> Self {
        let last = bytes_max.saturating_sub(1).to_string();
        let tail = format!("\r\n$1\r\n0\r\n${}\r\n{last}\r\n", last.len());
        let state = State {
            standing: Standing::Opening,
            unsent: Vec::new(),
            asked: VecDeque::new(),
            expired: 0,
            driver: None,
        };
        Self { state: Mutex::new(state), patience, bytes_max, tail: tail.into_bytes().into() }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// How long a value may be that is asked for here.
    pub(crate) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn open(&self) {
        self.state.lock().standing = Standing::Open;
    }

    /// Asks for the value of this name. Nothing if it is not open, or too many wait.
    pub(crate) fn ask(&self, name: &str) -> Option<Waiting> {
        let at = Instant::now();
        let mut state = self.state.lock();
        if state.standing != Standing::Open || state.asked.len() >= ASKED_MAX {
            return None;
        }
        state.unsent.extend_from_slice(b"*4\r\n$8\r\nGETRANGE\r\n$");
        push_number(&mut state.unsent, name.len());
        state.unsent.extend_from_slice(b"\r\n");
        state.unsent.extend_from_slice(name.as_bytes());
        state.unsent.extend_from_slice(&self.tail);
        let place = Arc::<Place>::default();
        state.asked.push_back(Asked { at, place: place.clone() });
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Some(Waiting(place))
    }

    /// Resolves when there is something to be sent.
    pub(crate) fn poll_unsent(&self, task: &Context<'_>) -> Poll<Result<(), Lost>> {
        let mut state = self.state.lock();
        if state.standing != Standing::Open {
            return Poll::Ready(Err(Lost::Broken));
        }
        if !state.unsent.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.driver = Some(task.waker().clone());
        Poll::Pending
    }

    /// Moves what is to be sent behind what is being sent.
    pub(crate) fn take_unsent(&self, sending: &mut Vec<u8>) {
        let mut state = self.state.lock();
        if sending.is_empty() {
            std::mem::swap(sending, &mut state.unsent);
        } else {
            sending.append(&mut state.unsent);
        }
    }

    /// Hands answers to those who have waited longest, all at once. Nobody has asked for more
    /// answers than there are askers.
    pub(crate) fn answer(&self, replies: &mut Vec<Reply>) -> Result<(), Malformed> {
        let mut state = self.state.lock();
        let count = replies.len();
        if count > state.asked.len() {
            return Err(Malformed);
        }
        state.expired = state.expired.saturating_sub(count);
        let asked: Vec<Asked> = state.asked.drain(..count).collect();
        drop(state);
        for (Asked { place, .. }, reply) in asked.into_iter().zip(replies.drain(..)) {
            if let Some(waker) = place.put(Ok(reply)) {
                waker.wake();
            }
        }
        Ok(())
    }

    /// Tells those whose time is over. When it is the next one's turn, and when the oldest question
    /// was asked that has no answer yet.
    pub(crate) fn expire(&self, now: Instant) -> Option<(Instant, Instant)> {
        let mut state = self.state.lock();
        let is_over = |asked: &&Asked| now.saturating_duration_since(asked.at) >= self.patience;
        let first = state.expired;
        let over: Vec<_> = state.asked.iter().skip(first).take_while(is_over).collect();
        let over: Vec<_> = over.into_iter().map(|asked| asked.place.clone()).collect();
        state.expired += over.len();
        let oldest = state.asked.front().map(|asked| asked.at);
        let next = state.asked.get(state.expired).map(|asked| asked.at + self.patience);
        drop(state);
        wake_all(over, Lost::TimedOut);
        oldest.map(|oldest| (next.unwrap_or(now + self.patience), oldest))
    }

    /// Nobody is answered any more; from when on it may be tried again.
    pub(crate) fn close(&self, again: Option<Instant>) {
        let mut state = self.state.lock();
        state.standing = Standing::Closed(again);
        state.unsent = Vec::new();
        state.expired = 0;
        let asked = std::mem::take(&mut state.asked);
        let driver = state.driver.take();
        drop(state);
        wake_all(asked.into_iter().map(|asked| asked.place), Lost::Broken);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

fn wake_all(places: impl IntoIterator<Item = Arc<Place>>, lost: Lost) {
    let wakers = places.into_iter().filter_map(|place| place.put(Err(lost)));
    wakers.for_each(Waker::wake);
}

/// What is formatted for each reading costs as much as all the rest of asking.
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

    const PATIENCE: Duration = Duration::from_millis(50);

    fn open() -> Queue {
        let queue = Queue::new(PATIENCE, 1_000);
        queue.open();
        queue
    }

    fn waits(waiting: Waiting) -> Option<Result<String, Lost>> {
        let answer = waiting.now_or_never()?;
        Some(answer.map(|reply| format!("{reply:?}")))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_is_a_command() {
        let queue = open();
        let mut sending = b"before ".to_vec();
        let _first = queue.ask("name").unwrap();
        queue.take_unsent(&mut sending);
        let command = b"before *4\r\n$8\r\nGETRANGE\r\n$4\r\nname\r\n$1\r\n0\r\n$3\r\n999\r\n";
        assert_eq!(sending, command);
        sending.clear();
        let _second = queue.ask(&"x".repeat(123)).unwrap();
        queue.take_unsent(&mut sending);
        assert!(sending.starts_with(b"*4\r\n$8\r\nGETRANGE\r\n$123\r\nxxx"));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_go_to_those_who_asked_in_that_order() {
        let queue = open();
        let (one, two) = (queue.ask("one").unwrap(), queue.ask("two").unwrap());
        drop(queue.ask("gone").unwrap());
        let four = queue.ask("four").unwrap();
        let mut replies = vec![Reply::Nothing, Reply::Done, Reply::Done];
        queue.answer(&mut replies).unwrap();
        assert_eq!(waits(one), Some(Ok("Nothing".to_owned())));
        assert_eq!(waits(two), Some(Ok("Done".to_owned())));
        let mut replies = vec![Reply::Done, Reply::Done];
        assert_eq!(queue.answer(&mut replies), Err(Malformed), "one more than was asked");
        queue.close(None);
        assert_eq!(waits(four), Some(Err(Lost::Broken)));
        assert!(queue.ask("five").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn whose_time_is_over_is_told_and_the_late_answer_is_nobody_elses() {
        let queue = open();
        let began = Instant::now();
        let early = queue.ask("early").unwrap();
        tokio::time::advance(Duration::from_millis(20)).await;
        let late = queue.ask("late").unwrap();
        let next = queue.expire(began + PATIENCE).unwrap();
        assert_eq!(next, (began + PATIENCE + Duration::from_millis(20), began));
        assert_eq!(waits(early), Some(Err(Lost::TimedOut)));
        queue.answer(&mut vec![Reply::Nothing]).unwrap();
        queue.answer(&mut vec![Reply::Done]).unwrap();
        assert_eq!(waits(late), Some(Ok("Done".to_owned())));
        assert_eq!(queue.expire(began + PATIENCE * 2), None, "nobody waits");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_may_wait_than_are_allowed() {
        let queue = Queue::new(PATIENCE, 1_000);
        assert!(queue.ask("x").is_none(), "it is not open yet");
        queue.open();
        let all: Vec<_> = (0..ASKED_MAX).map(|_| queue.ask("x").unwrap()).collect();
        assert!(queue.ask("x").is_none());
        queue.answer(&mut vec![Reply::Done]).unwrap();
        assert!(queue.ask("x").is_some());
        drop(all);
    }
}

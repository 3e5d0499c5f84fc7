//! A body on its way: one writer, any number of readers, each from byte 0 at its own pace.
//!
//! As long as it may be kept, everything stays, and no reader can hold the writer up: a client
//! that does not read never blocks the fill. Once it has outgrown every tier, only a window
//! stays, the slowest reader sets the pace, and nothing will be stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::BrokenBody;
use crate::sync::Mutex;
use crate::wakers::{Ticket, Wakers, wake_all};

/// What stays of a body that is too large to keep: enough for a reader to be a round trip behind.
const WINDOW_MAX: u64 = 1 << 20;

/// The bytes of all bodies in flight, and how many there may be before bodies stop being kept.
#[derive(Debug)]
pub(crate) struct InFlight {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl InFlight {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(0), bytes_max })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn has_room(&self, more: u64) -> bool {
        self.bytes().saturating_add(more) <= self.bytes_max
    }

    fn charge(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The body is still kept whole.
    Kept,
    /// The body is only passed on, through a window.
    Windowed,
}

/// A body in flight.
#[derive(Debug)]
pub(crate) struct Flow {
    state: Mutex<State>,
    in_flight: Arc<InFlight>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Piece>,
    written: u64,
    /// What of `written` is still held, and so charged.
    held: u64,
    windowed: bool,
    end: Option<Result<(), BrokenBody>>,
    /// Where each reader stands; its index is the reader's name.
    readers: Vec<Option<u64>>,
    waiting: Wakers,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Flow {
    /// A new flow; dropping the writer before the end breaks it for every reader.
    pub(crate) fn new(in_flight: Arc<InFlight>, kept_max: u64) -> (FlowWriter, Arc<Self>) {
        let flow = Arc::new(Self { state: Mutex::default(), in_flight });
        (FlowWriter { flow: flow.clone(), kept_max }, flow)
    }

    fn release(&self, state: &mut State, bytes: u64) {
        state.held -= bytes;
        self.in_flight.release(bytes);
    }

    /// Lets go of what lies behind every reader, as far as the window is too full.
    fn trim(&self, state: &mut State) {
        let slowest = state.readers.iter().flatten().min().copied().unwrap_or(state.written);
        while state.held > 0 && state.pieces.front().is_some_and(|front| front.end() <= slowest) {
            self.drop_front(state);
        }
    }

    fn drop_front(&self, state: &mut State) {
        if let Some(front) = state.pieces.pop_front() {
            self.release(state, front.bytes.len() as u64);
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let held = self.state.get_mut().held;
        self.in_flight.release(held);
    }
}

/// The one who writes a flow.
#[derive(Debug)]
pub(crate) struct FlowWriter {
    flow: Arc<Flow>,
    kept_max: u64,
}

impl FlowWriter {
    /// Adds a piece and wakes whoever waits for it.
    pub(crate) fn push(&self, bytes: Bytes) -> Pushed {
        let length = bytes.len() as u64;
        let mut state = self.flow.state.lock();
        let outgrown =
            state.written + length > self.kept_max || !self.flow.in_flight.has_room(length);
        state.windowed |= outgrown;
        let windowed = state.windowed;
        if length > 0 {
            let start = state.written;
            state.pieces.push_back(Piece { start, bytes });
            state.written += length;
            state.held += length;
            self.flow.in_flight.charge(length);
        }
        if windowed {
            self.flow.trim(&mut state);
        }
        let woken = state.waiting.take();
        drop(state);
        wake_all(woken);
        if windowed { Pushed::Windowed } else { Pushed::Kept }
    }

    /// Waits until the window has room. `false` if nobody reads a body that nobody keeps.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.flow.state.lock();
        if !state.windowed {
            return Poll::Ready(true);
        }
        if state.readers.iter().all(Option::is_none) {
            return Poll::Ready(false);
        }
        self.flow.trim(&mut state);
        if state.held < WINDOW_MAX {
            return Poll::Ready(true);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Makes room in the window at the expense of the slowest readers.
    pub(crate) fn leave_behind(&self) {
        let mut state = self.flow.state.lock();
        while state.held > WINDOW_MAX / 2 {
            self.flow.drop_front(&mut state);
        }
        let woken = state.waiting.take();
        drop(state);
        wake_all(woken);
    }

    /// Ends the body cleanly; gives back all of it if it was kept.
    pub(crate) fn finish(self) -> Option<Bytes> {
        let mut state = self.flow.state.lock();
        let whole = (!state.windowed).then(|| join(&mut state));
        if whole.is_some() {
            // From here on it is the tiers that hold it, and are charged for it.
            let held = state.held;
            self.flow.release(&mut state, held);
        }
        Self::end(state, Ok(()));
        whole
    }

    /// Breaks the body for every reader.
    pub(crate) fn fail(self, broken: BrokenBody) {
        Self::end(self.flow.state.lock(), Err(broken));
    }

    fn end(mut state: crate::sync::MutexGuard<'_, State>, end: Result<(), BrokenBody>) {
        if state.end.is_some() {
            return;
        }
        state.end = Some(end);
        let woken = state.waiting.take();
        drop(state);
        wake_all(woken);
    }
}

impl Drop for FlowWriter {
    fn drop(&mut self) {
        Self::end(self.flow.state.lock(), Err(BrokenBody::Abandoned));
    }
}

/// Makes one piece of all pieces, exact in size, so that nothing else stays pinned by it.
fn join(state: &mut State) -> Bytes {
    let mut all = Vec::with_capacity(usize::try_from(state.written).unwrap_or(0));
    for piece in state.pieces.drain(..) {
        all.extend_from_slice(&piece.bytes);
    }
    let all = Bytes::from(all);
    if !all.is_empty() {
        state.pieces.push_back(Piece { start: 0, bytes: all.clone() });
    }
    all
}

/// One reader's place in a flow.
#[derive(Debug)]
pub(crate) struct Reader {
    flow: Arc<Flow>,
    name: usize,
    ticket: Option<Ticket>,
}

impl Reader {
    pub(crate) fn new(flow: Arc<Flow>) -> Self {
        let mut state = flow.state.lock();
        let free = state.readers.iter().position(Option::is_none);
        let name = free.unwrap_or(state.readers.len());
        if free.is_none() {
            state.readers.push(None);
        }
        state.readers[name] = Some(0);
        drop(state);
        Self { flow, name, ticket: None }
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        let mut state = self.flow.state.lock();
        let Some(offset) = state.readers[self.name] else { return Poll::Ready(None) };
        if offset < state.written {
            return Poll::Ready(Some(self.read_at(&mut state, offset)));
        }
        match &state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(broken)) => Poll::Ready(Some(Err(broken.clone()))),
            None => {
                state.waiting.register(&mut self.ticket, cx.waker());
                Poll::Pending
            }
        }
    }

    fn read_at(&self, state: &mut State, offset: u64) -> Result<Bytes, BrokenBody> {
        let index = state.pieces.partition_point(|piece| piece.end() <= offset);
        let piece = state.pieces.get(index).filter(|piece| piece.start <= offset);
        let Some(piece) = piece else { return Err(BrokenBody::FellBehind) };
        let skip = usize::try_from(offset - piece.start).unwrap_or(usize::MAX);
        let bytes = piece.bytes.slice(skip.min(piece.bytes.len())..);
        state.readers[self.name] = Some(offset + bytes.len() as u64);
        if state.windowed {
            self.flow.trim(state);
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
        }
        Ok(bytes)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.flow.state.lock();
        state.readers[self.name] = None;
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

#[cfg(test)]
mod tests;

//! A body on its way: one writer, any number of readers, each from byte 0 at its own pace.
//!
//! As long as it may be kept, everything stays, and no reader can hold the writer up: a client
//! that does not read never blocks the fill. Once it has outgrown every tier, only a window
//! stays, the slowest reader sets the pace, and nothing will be stored.
//!
//! A reader has its place at byte 0 from the moment when it is told of the body, not only when it
//! begins to read: in between, the window could move on, and a body that nobody seems to read
//! would be given up. Those who are about to be told are *promised* a place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::BrokenBody;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::wakers::{Ticket, Wakers, wake_all};

/// What stays of a body that is too large to keep: enough for a reader to be a round trip behind.
const WINDOW_MAX: u64 = 1 << 20;

/// The same while all bodies in flight hold as much as they may.
const WINDOW_MIN: u64 = 64 << 10;

/// What a piece costs beside its bytes: an origin that sends byte by byte is charged for what it
/// makes us hold.
const PIECE_OVERHEAD: u64 = 96;

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
    readers: Vec<Place>,
    /// How many readers have come so far.
    arrivals: u64,
    /// How many readers are still to come for whom byte 0 is kept.
    promised: usize,
    waiting: Wakers,
    writer: Option<Waker>,
}

/// Where a reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nobody has this name.
    Free,
    /// The next byte it will read; and which arrival it was, since the names of those who have
    /// gone are given to others.
    At { offset: u64, arrival: u64 },
    /// It stood still for too long, and the window has moved on without it.
    Left,
}

/// Where everybody stood at one moment, to see afterwards who has moved.
#[derive(Debug)]
pub(crate) struct Standings {
    readers: Vec<Place>,
    promised: usize,
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

    fn cost(&self) -> u64 {
        cost(&self.bytes)
    }
}

const fn cost(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + PIECE_OVERHEAD
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

    /// Lets go of what lies behind every reader. As long as there is no reader, nothing goes.
    fn trim(&self, state: &mut State) {
        while let Some(front) = state.pieces.front()
            && state.is_awaited()
            && !state.is_needed(front.end())
        {
            let cost = front.cost();
            state.pieces.pop_front();
            self.release(state, cost);
        }
    }

    /// Keeps byte 0 for this many readers that are about to be told.
    pub(crate) fn promise(&self, readers: usize) {
        self.state.lock().promised += readers;
    }

    /// One of those who were promised a place will not come.
    pub(crate) fn forgo(&self) {
        let mut state = self.state.lock();
        state.promised = state.promised.saturating_sub(1);
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Whether anybody reads, or is still to come.
    fn is_awaited(&self) -> bool {
        self.promised > 0 || self.readers.iter().any(|place| matches!(place, Place::At { .. }))
    }

    /// Whether anybody has not read up to `end` yet. Readers wake in the order of their names, so
    /// the last one is the likeliest to be behind.
    fn is_needed(&self, end: u64) -> bool {
        let is_before = |place: &Place| matches!(place, Place::At { offset, .. } if *offset < end);
        self.promised > 0 || self.readers.iter().rev().any(is_before)
    }

    fn starts_at_zero(&self) -> bool {
        self.pieces.front().map_or(self.written, |front| front.start) == 0
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
        let (length, cost) = (bytes.len() as u64, cost(&bytes));
        let mut state = self.flow.state.lock();
        let outgrown =
            state.written + length > self.kept_max || !self.flow.in_flight.has_room(cost);
        state.windowed |= outgrown;
        let windowed = state.windowed;
        if length > 0 {
            let start = state.written;
            state.pieces.push_back(Piece { start, bytes });
            state.written += length;
            state.held += cost;
            self.flow.in_flight.charge(cost);
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
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut state = self.flow.state.lock();
        if !state.windowed {
            return Poll::Ready(true);
        }
        if !state.is_awaited() {
            return Poll::Ready(false);
        }
        self.flow.trim(&mut state);
        let window = if self.flow.in_flight.has_room(0) { WINDOW_MAX } else { WINDOW_MIN };
        if state.held < window {
            return Poll::Ready(true);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Where everybody stands now.
    pub(crate) fn standings(&self) -> Standings {
        let state = self.flow.state.lock();
        Standings { readers: state.readers.clone(), promised: state.promised }
    }

    /// Leaves those behind who have something to read and stand where they stood `before`.
    /// Whoever has moved keeps its place, however slow it is.
    pub(crate) fn leave_behind(&self, before: &Standings) {
        let mut state = self.flow.state.lock();
        let written = state.written;
        for (place, stood) in state.readers.iter_mut().zip(&before.readers) {
            if place == stood && matches!(place, Place::At { offset, .. } if *offset < written) {
                *place = Place::Left;
            }
        }
        if state.promised == before.promised {
            state.promised = 0;
        }
        self.flow.trim(&mut state);
        let woken = state.waiting.take();
        drop(state);
        wake_all(woken);
    }

    /// Ends the body cleanly; gives back all of it if it was kept.
    pub(crate) fn finish(self) -> Option<Bytes> {
        let whole = self.kept().map(|pieces| join(&pieces));
        let mut state = self.flow.state.lock();
        if let Some(whole) = &whole {
            state.pieces.clear();
            if !whole.is_empty() {
                state.pieces.push_back(Piece { start: 0, bytes: whole.clone() });
            }
            // From here on it is the tiers that hold it, and are charged for it.
            let held = state.held;
            self.flow.release(&mut state, held);
        }
        Self::end(state, Ok(()));
        whole
    }

    /// All pieces, if none has been let go of. Joining them takes a while, so it is not done
    /// under the lock; nobody else adds or removes pieces of a body that is kept.
    fn kept(&self) -> Option<Vec<Bytes>> {
        let state = self.flow.state.lock();
        let pieces = || state.pieces.iter().map(|piece| piece.bytes.clone()).collect();
        (!state.windowed).then(pieces)
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
fn join(pieces: &[Bytes]) -> Bytes {
    let mut all = Vec::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    Bytes::from(all)
}

/// One reader's place in a flow.
#[derive(Debug)]
pub(crate) struct Reader {
    flow: Arc<Flow>,
    name: usize,
    ticket: Option<Ticket>,
}

impl Reader {
    /// A reader at the first byte. If that is gone already, its first read tells.
    pub(crate) fn new(flow: Arc<Flow>) -> Self {
        let name = take_place(&mut flow.state.lock());
        Self { flow, name, ticket: None }
    }

    /// A reader at the first byte, if that is still there. A `promised` reader gives its promise
    /// for its place.
    pub(crate) fn at_start(flow: &Arc<Flow>, promised: bool) -> Option<Self> {
        let mut state = flow.state.lock();
        let there = state.starts_at_zero();
        let name = there.then(|| take_place(&mut state));
        if promised {
            state.promised = state.promised.saturating_sub(1);
        }
        drop(state);
        Some(Self { flow: flow.clone(), name: name?, ticket: None })
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        let mut state = self.flow.state.lock();
        let Place::At { offset, arrival } = state.readers[self.name] else {
            return Poll::Ready(Some(Err(BrokenBody::FellBehind)));
        };
        if offset < state.written {
            let read = self.read_at(&mut state, (offset, arrival));
            let writer = state.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(read));
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

    fn read_at(
        &self,
        state: &mut State,
        (offset, arrival): (u64, u64),
    ) -> Result<Bytes, BrokenBody> {
        let index = state.pieces.partition_point(|piece| piece.end() <= offset);
        let piece = state.pieces.get(index).filter(|piece| piece.start <= offset);
        let Some(piece) = piece else { return Err(BrokenBody::FellBehind) };
        let skip = usize::try_from(offset - piece.start).unwrap_or(usize::MAX);
        let bytes = piece.bytes.slice(skip.min(piece.bytes.len())..);
        let offset = offset + bytes.len() as u64;
        state.readers[self.name] = Place::At { offset, arrival };
        // Only who reads at the front can have been the slowest.
        if state.windowed && index == 0 {
            self.flow.trim(state);
        }
        Ok(bytes)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.flow.state.lock();
        state.readers[self.name] = Place::Free;
        if let Some(ticket) = self.ticket {
            state.waiting.leave(ticket);
        }
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}

fn take_place(state: &mut State) -> usize {
    let free = state.readers.iter().position(|place| *place == Place::Free);
    let name = free.unwrap_or(state.readers.len());
    if free.is_none() {
        state.readers.push(Place::Free);
    }
    state.arrivals += 1;
    state.readers[name] = Place::At { offset: 0, arrival: state.arrivals };
    name
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

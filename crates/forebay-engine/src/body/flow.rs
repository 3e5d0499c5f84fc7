//! A body on its way: one writer, any number of readers, each from byte 0 at its own pace.
//!
//! As long as it may be kept, everything stays, and no reader can hold the writer up: a client
//! that does not read never blocks the fill. What is kept needs room among the bodies in flight
//! before it grows, and is made into segments as it comes. Once it has outgrown every tier, or
//! finds no room, only a window stays, the slowest reader sets the pace, and nothing will be
//! stored in memory. Where a lower tier gives back what it has written, nobody sets the pace but
//! that tier: see [`draft`](super::draft).
//!
//! A reader has its place at byte 0 from the moment when it is told of the body, not only when it
//! begins to read: in between, the window could move on, and a body that nobody seems to read
//! would be given up. Those who are about to be told are *promised* a place.

mod reader;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::draft::Draft;
use super::long::{Long, LongReader};
use super::parts::PartsReader;
use super::segments::{SEGMENT, cut, join};
use super::{Body, BrokenBody};
use crate::in_flight::{Charged, InFlight, Want};
use crate::sync::{Mutex, MutexGuard};
use crate::wakers::{Wakers, wake_all};
pub(crate) use reader::Reader;

/// What stays of a body that is too large to keep: enough for a reader to be a round trip behind.
const WINDOW_MAX: u64 = 1 << 20;

/// The same while all bodies in flight hold as much as they may.
const WINDOW_MIN: u64 = 64 << 10;

/// By how much a body that is kept grows at a time: few enough steps, and little that is taken and
/// not used yet.
const GROWTH: u64 = 64 << 10;

/// How much room a body needs before the next piece of it is taken: no source brings more at once.
const AHEAD: u64 = 64 << 10;

/// What a piece costs beside its bytes: an origin that sends byte by byte is charged for what it
/// makes us hold.
const PIECE_OVERHEAD: u64 = 96;

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
}

#[derive(Debug)]
struct State {
    pieces: VecDeque<Piece>,
    written: u64,
    /// What the pieces cost.
    held: u64,
    /// What is charged for them: as much as they cost, or the room that was granted already.
    charged: Charged,
    /// What of that was granted ahead.
    granted: u64,
    /// How many of the pieces are segments.
    firm: usize,
    windowed: bool,
    /// What of it can be read in a lower tier.
    draft: Option<Draft>,
    /// All of it, once it has come whole.
    whole: Option<LongReader>,
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
    /// A new flow that is kept up to so many bytes. Dropping the writer before the end breaks it
    /// for every reader.
    pub(crate) fn new(in_flight: &Arc<InFlight>, kept_max: u64) -> (FlowWriter, Arc<Self>) {
        let flow = Arc::new(Self { state: Mutex::new(State::new(in_flight.charge(0))) });
        (FlowWriter { flow: flow.clone(), kept_max, announced: None }, flow)
    }

    /// Keeps byte 0 for this many readers that are about to be told.
    pub(crate) fn promise(&self, readers: usize) {
        self.state.lock().promised += readers;
    }

    /// Changes what a lower tier holds of it. `false` if nobody can read
    /// the body from its first byte any more.
    pub(super) fn with_draft(&self, change: impl FnOnce(&mut Draft)) -> bool {
        let mut state = self.state.lock();
        change(state.draft.get_or_insert_default());
        if state.windowed {
            state.trim();
        }
        let from_its_first = state.starts_at_zero();
        // Readers wait for the writer alone: all that is written is in the window or in the tier.
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        from_its_first
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
    const fn new(charged: Charged) -> Self {
        Self {
            pieces: VecDeque::new(),
            written: 0,
            held: 0,
            charged,
            granted: 0,
            firm: 0,
            windowed: false,
            draft: None,
            whole: None,
            end: None,
            readers: Vec::new(),
            arrivals: 0,
            promised: 0,
            waiting: Wakers::new(),
            writer: None,
        }
    }

    fn add(&mut self, bytes: Bytes) {
        let piece = Piece { start: self.written, bytes };
        self.written = piece.end();
        self.held += piece.cost();
        self.pieces.push_back(piece);
    }

    /// Only a window stays from now on.
    fn pass_on(&mut self) {
        self.windowed = true;
        self.granted = 0;
        self.charged.stay_within();
        self.trim();
        self.recharge();
    }

    /// Charges what is held, or what was granted ahead if that is more.
    fn recharge(&mut self) {
        self.charged.set(self.held.max(self.granted));
    }

    /// Lets go of what lies behind every reader. As long as there is no reader, nothing goes. Of
    /// what a tier writes, that goes which it has written and for which the window is too small.
    fn trim(&mut self) {
        while let Some(front) = self.pieces.front()
            && self.may_go(front)
        {
            self.held -= front.cost();
            self.pieces.pop_front();
        }
        self.recharge();
    }

    /// From here on the body is held by those who have it, and charged to them: to the tier that
    /// takes it, or to the bodies in flight until everybody has read it.
    fn become_whole(&mut self, mut segments: Vec<Bytes>) -> Body {
        self.pieces.clear();
        (self.held, self.granted) = (0, 0);
        self.charged.stay_within();
        if segments.len() <= 1 {
            let bytes = segments.pop().unwrap_or_default();
            if !bytes.is_empty() {
                self.pieces.push_back(Piece { start: 0, bytes: bytes.clone() });
            }
            self.recharge();
            return Body::whole(bytes);
        }
        let in_flight = self.charged.in_flight().clone();
        let mut charged = std::mem::replace(&mut self.charged, in_flight.charge(0));
        charged.set(self.written);
        let long = Long::new(segments, (Some(charged.unsettle()), Some(in_flight.clock.clone())));
        in_flight.unsettled.note(&long);
        self.whole = Some(LongReader::new(long.clone(), 0..self.written));
        Body::long(long)
    }

    fn has_window(&self) -> bool {
        if self.end.is_some() {
            return self.held == 0;
        }
        let drafted = self.draft.as_ref().filter(|draft| draft.grows());
        // What a tier holds back of what it has taken holds nobody up.
        let ahead = drafted.map_or(self.held, |draft| self.written.saturating_sub(draft.taken()));
        ahead < self.window_max()
    }

    fn window_max(&self) -> u64 {
        if self.charged.in_flight().is_crowded() { WINDOW_MIN } else { WINDOW_MAX }
    }

    /// Whether a lower tier is being written, and read by those who are behind.
    fn is_drafted(&self) -> bool {
        self.draft.as_ref().is_some_and(Draft::grows)
    }

    /// How many bytes from the first on can be read in a lower tier.
    fn below(&self) -> u64 {
        self.draft.as_ref().map_or(0, Draft::written)
    }

    fn may_go(&self, piece: &Piece) -> bool {
        if !self.is_drafted() {
            return self.is_awaited() && !self.is_needed(piece.end());
        }
        let is_read_here = |place: &Place| {
            matches!(place, Place::At { offset, .. }
                if (piece.start..piece.end()).contains(offset))
        };
        let reaches = self.below() >= piece.end();
        reaches && (self.held > self.window_max() || !self.readers.iter().any(is_read_here))
    }

    /// Lets go of what nobody is going to read, though some hold on to the flow.
    fn drop_unread(&mut self) {
        if !self.is_awaited() {
            self.pieces.clear();
            self.held = 0;
            self.recharge();
        }
    }

    /// Whether anybody reads, or is still to come.
    fn is_awaited(&self) -> bool {
        self.promised > 0 || self.readers.iter().any(|place| matches!(place, Place::At { .. }))
    }

    /// Whether anybody has not read up to `end` yet. Readers wake in the order of their names, so
    /// the last one is the likeliest to be behind.
    fn is_needed(&self, end: u64) -> bool {
        let is_before = |place: &Place| matches!(place, Place::At { offset, .. } if *offset < end);
        let is_wanted = self.promised > 0 || self.readers.iter().rev().any(is_before);
        is_wanted && self.below() < end
    }

    fn read_at(&mut self, name: usize, (offset, arrival): (u64, u64)) -> Result<Bytes, BrokenBody> {
        if let Some(whole) = &self.whole {
            let bytes = whole.read_at(offset)?;
            self.readers[name] = Place::At { offset: offset + bytes.len() as u64, arrival };
            return Ok(bytes);
        }
        let index = self.pieces.partition_point(|piece| piece.end() <= offset);
        let piece = self.pieces.get(index).filter(|piece| piece.start <= offset);
        let Some(piece) = piece else { return Err(BrokenBody::FellBehind) };
        let skip = usize::try_from(offset - piece.start).unwrap_or(usize::MAX);
        let bytes = piece.bytes.slice(skip.min(piece.bytes.len())..);
        self.readers[name] = Place::At { offset: offset + bytes.len() as u64, arrival };
        // Only who reads at the front can have been the slowest.
        if self.windowed && index == 0 {
            self.trim();
        }
        Ok(bytes)
    }

    fn starts_at_zero(&self) -> bool {
        if self.whole.is_some() {
            return true;
        }
        self.starts_at() <= self.below()
    }

    /// The first byte in the window.
    fn starts_at(&self) -> u64 {
        self.pieces.front().map_or(self.written, |front| front.start)
    }

    /// A reader in a lower tier, for one for whom the window begins too late.
    fn behind(&self, offset: u64) -> Option<PartsReader> {
        let is_here = self.whole.is_some() || offset >= self.starts_at();
        self.draft.as_ref().filter(|_| !is_here)?.reader(offset)
    }
}

/// The one who writes a flow.
#[derive(Debug)]
pub(crate) struct FlowWriter {
    flow: Arc<Flow>,
    kept_max: u64,
    /// How many bytes were announced.
    announced: Option<u64>,
}

impl FlowWriter {
    /// So many bytes are to come, or so it was announced. If they are too many to be kept, none is.
    pub(crate) fn expect(&mut self, announced: Option<u64>) {
        self.announced = announced;
        if announced.is_some_and(|announced| announced > self.kept_max) {
            self.pass_on();
        }
    }

    /// Adds a piece and wakes whoever waits for it.
    pub(crate) fn push(&self, bytes: Bytes) -> Pushed {
        let mut state = self.flow.state.lock();
        if !bytes.is_empty() {
            state.add(bytes);
        }
        if state.windowed {
            state.trim();
        } else if state.written > self.kept_max {
            state.pass_on();
        }
        state.recharge();
        let (windowed, woken) = (state.windowed, state.waiting.take());
        drop(state);
        wake_all(woken);
        self.firm_up();
        if windowed { Pushed::Windowed } else { Pushed::Kept }
    }

    /// How much more room a body that is kept needs before it can grow.
    pub(crate) fn wants(&self) -> Option<Want> {
        let state = self.flow.state.lock();
        // What comes beyond the announced end is an error, and whoever notices it breaks it off.
        let left = self.announced.map_or(u64::MAX, |all| all.saturating_sub(state.written));
        let fits = left == 0 || state.held + AHEAD.min(left) <= state.granted;
        let wanted = state.held + (AHEAD + GROWTH).min(left);
        // The one that may go beyond the bound waits for nobody: others wait for its end.
        (!state.windowed && !fits && !state.charged.is_beyond())
            .then(|| wanted.saturating_sub(state.charged.bytes()))
            .map(|bytes| if state.granted == 0 { Want::First(bytes) } else { Want::More(bytes) })
    }

    /// Adds room that was granted.
    pub(crate) fn grow(&self, room: Charged) {
        let mut state = self.flow.state.lock();
        state.charged.add(room);
        state.granted = state.charged.bytes();
    }

    /// Keeps the body no longer: those aboard read it through a window.
    pub(crate) fn pass_on(&self) {
        self.flow.state.lock().pass_on();
    }

    /// Makes segments of what has come in other sizes, as soon as there is enough of it. Copying
    /// takes a while, so it is not done under the lock; nobody else adds or removes pieces of a
    /// body that is kept.
    fn firm_up(&self) {
        let state = self.flow.state.lock();
        let loose = state.pieces.range(state.firm.min(state.pieces.len())..);
        if state.windowed || loose.clone().map(Piece::cost).sum::<u64>() < SEGMENT as u64 {
            return;
        }
        let loose: Vec<_> = loose.map(|piece| piece.bytes.clone()).collect();
        let in_flight = state.charged.in_flight().clone();
        drop(state);
        let (full, rest) = cut(&loose, &in_flight.idle);
        // A source of tiny pieces is held for what it brought, not for how.
        let rest = if full.is_empty() { vec![join(&rest)] } else { rest };
        self.replace_loose(full, rest);
    }

    fn replace_loose(&self, full: Vec<Bytes>, rest: Vec<Bytes>) {
        let mut state = self.flow.state.lock();
        let firm = state.firm;
        let loose = state.pieces.split_off(firm);
        state.held -= loose.iter().map(Piece::cost).sum::<u64>();
        state.written = loose.front().map_or(state.written, |piece| piece.start);
        state.firm += full.len();
        full.into_iter().chain(rest).for_each(|bytes| state.add(bytes));
        state.recharge();
        drop(state);
        drop(loose);
    }

    /// Waits until the window has room, or is empty if the body has come to its end. `false` if
    /// nobody reads a body that nobody keeps.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut state = self.flow.state.lock();
        if !state.windowed {
            return Poll::Ready(true);
        }
        if !state.is_awaited() {
            return Poll::Ready(false);
        }
        state.trim();
        if state.has_window() {
            return Poll::Ready(true);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether a lower tier gives back what it has written: then whoever comes late can read the
    /// body all the same.
    pub(crate) fn is_drafted(&self) -> bool {
        self.flow.state.lock().is_drafted()
    }

    /// Whether the window takes room that others could use.
    pub(crate) fn is_crowded(&self) -> bool {
        self.flow.state.lock().charged.in_flight().is_crowded()
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
        if state.is_drafted() {
            // It is the tier that is waited for, and that has bounds of its own.
            return;
        }
        let written = state.written;
        for (place, stood) in state.readers.iter_mut().zip(&before.readers) {
            if place == stood && matches!(place, Place::At { offset, .. } if *offset < written) {
                *place = Place::Left;
            }
        }
        if state.promised == before.promised {
            state.promised = 0;
        }
        state.trim();
        state.drop_unread();
        let woken = state.waiting.take();
        drop(state);
        wake_all(woken);
    }

    /// Ends the body cleanly; gives back all of it if it was kept.
    pub(crate) fn finish(&self) -> Option<Body> {
        let whole = self.kept().map(|(mut segments, loose)| {
            segments.extend((!loose.is_empty()).then(|| join(&loose)));
            segments
        });
        let mut state = self.flow.state.lock();
        let body = whole.map(|segments| state.become_whole(segments));
        Self::end(state, Ok(()));
        body
    }

    /// The segments and what is none yet, if nothing has been let go of.
    fn kept(&self) -> Option<(Vec<Bytes>, Vec<Bytes>)> {
        let state = self.flow.state.lock();
        let mut pieces = state.pieces.iter().map(|piece| piece.bytes.clone());
        let segments = pieces.by_ref().take(state.firm).collect();
        (!state.windowed).then(|| (segments, pieces.collect()))
    }

    /// Breaks the body for every reader. What they have not read yet is theirs still.
    pub(crate) fn fail(&self, broken: BrokenBody) {
        let mut state = self.flow.state.lock();
        state.pass_on();
        Self::end(state, Err(broken));
    }

    fn end(mut state: MutexGuard<'_, State>, end: Result<(), BrokenBody>) {
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
        let mut state = self.flow.state.lock();
        if state.windowed {
            state.drop_unread();
        }
        Self::end(state, Err(BrokenBody::Abandoned));
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

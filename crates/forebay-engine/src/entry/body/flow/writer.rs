//! Writer of a streaming body.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::Flow;
use super::state::{Piece, Place, State};
use crate::entry::body::piece::BrokenBody;
use crate::entry::body::segments::{SEGMENT, cut, join};
use crate::entry::body::whole::Whole;
use crate::entry::in_flight::{Charged, Want};
use crate::runtime::sync::MutexGuard;
use crate::runtime::wakers::wake_all;

/// Growth of a kept body per charge: few steps, and little unused memory.
pub(super) const GROWTH: u64 = 64 << 10;

/// Memory that a kept body needs before its next piece is read: no source sends larger pieces.
pub(super) const AHEAD: u64 = 64 << 10;

/// Result of adding a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The body is kept completely.
    Kept,
    /// Only a window of the body is kept.
    Windowed,
}

/// State of all readers at one moment, to find those that have stopped.
#[derive(Debug)]
pub(crate) struct Standings {
    readers: Vec<Place>,
    promised: usize,
}

/// Writer of a streaming body.
#[derive(Debug)]
pub(crate) struct FlowWriter {
    pub(super) flow: Arc<Flow>,
    pub(super) kept_max: u64,
    /// Announced length.
    pub(super) announced: Option<u64>,
}

impl FlowWriter {
    /// Sets the announced length. A body that is too large to keep has only a window from the
    /// start.
    pub(crate) fn expect(&mut self, announced: Option<u64>) {
        self.announced = announced;
        if announced.is_some_and(|announced| announced > self.kept_max) {
            self.pass_on();
        }
    }

    /// Adds a piece and wakes waiting readers.
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

    /// Returns the memory that a kept body needs before it can grow.
    pub(crate) fn wants(&self) -> Option<Want> {
        let state = self.flow.state.lock();
        // Bytes beyond the announced end are an error, which the reader of the source detects.
        let left = self.announced.map_or(u64::MAX, |all| all.saturating_sub(state.written));
        let fits = left == 0 || state.held + AHEAD.min(left) <= state.granted;
        let wanted = state.held + (AHEAD + GROWTH).min(left);
        // The body that may exceed the bound does not wait: others wait for its end.
        (!state.windowed && !fits && !state.charged.is_beyond())
            .then(|| wanted.saturating_sub(state.charged.bytes()))
            .map(|bytes| if state.granted == 0 { Want::First(bytes) } else { Want::More(bytes) })
    }

    /// Adds granted memory.
    pub(crate) fn grow(&self, room: Charged) {
        let mut state = self.flow.state.lock();
        state.charged.add(room);
        state.granted = state.charged.bytes();
    }

    /// Keeps only a window from now on.
    pub(crate) fn pass_on(&self) {
        self.flow.state.lock().pass_on();
    }

    /// Collects pieces of other sizes into segments, as soon as there are enough bytes. Copying
    /// takes a while, so the lock is released; only the writer adds or removes pieces of a kept
    /// body.
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
        // A source of tiny pieces is charged for their bytes, not for their number.
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

    /// Waits until the window has space, or is empty after the end of the body. `false` if a body
    /// that is not kept has no reader.
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

    /// Returns `true` if a lower tier returns the written part, so that late readers can read the
    /// body.
    pub(crate) fn is_drafted(&self) -> bool {
        self.flow.state.lock().is_drafted()
    }

    /// Returns `true` if other bodies wait for memory.
    pub(crate) fn is_crowded(&self) -> bool {
        self.flow.state.lock().charged.in_flight().is_crowded()
    }

    /// Returns the state of all readers.
    pub(crate) fn standings(&self) -> Standings {
        let state = self.flow.state.lock();
        Standings { readers: state.readers.clone(), promised: state.promised }
    }

    /// Leaves readers behind that have unread bytes and have not moved since `before`. A reader
    /// that has moved stays, however slow it is.
    pub(crate) fn leave_behind(&self, before: &Standings) {
        let mut state = self.flow.state.lock();
        if state.is_drafted() {
            // The body waits for the tier, which has time limits of its own.
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

    /// Ends the body. Returns all of it if it was kept.
    pub(crate) fn finish(&self) -> Option<Whole> {
        let whole = self.kept().map(|(mut segments, loose)| {
            segments.extend((!loose.is_empty()).then(|| join(&loose)));
            segments
        });
        let mut state = self.flow.state.lock();
        let body = whole.map(|segments| state.become_whole(segments));
        Self::end(state, Ok(()));
        body
    }

    /// Returns the segments and the remaining pieces, if none was dropped.
    fn kept(&self) -> Option<(Vec<Bytes>, Vec<Bytes>)> {
        let state = self.flow.state.lock();
        let mut pieces = state.pieces.iter().map(|piece| piece.bytes.clone());
        let segments = pieces.by_ref().take(state.firm).collect();
        (!state.windowed).then(|| (segments, pieces.collect()))
    }

    /// Breaks the body for every reader. They can still read the bytes before.
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

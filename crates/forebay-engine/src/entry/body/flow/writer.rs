//! The one who writes a flow.

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

/// By how much a body that is kept grows at a time: few enough steps, and little that is taken and
/// not used yet.
pub(super) const GROWTH: u64 = 64 << 10;

/// How much room a body needs before the next piece of it is taken: no source brings more at once.
pub(super) const AHEAD: u64 = 64 << 10;

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The body is still kept whole.
    Kept,
    /// The body is only passed on, through a window.
    Windowed,
}

/// Where everybody stood at one moment, to see afterwards who has moved.
#[derive(Debug)]
pub(crate) struct Standings {
    readers: Vec<Place>,
    promised: usize,
}

/// The one who writes a flow.
#[derive(Debug)]
pub(crate) struct FlowWriter {
    pub(super) flow: Arc<Flow>,
    pub(super) kept_max: u64,
    /// How many bytes were announced.
    pub(super) announced: Option<u64>,
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

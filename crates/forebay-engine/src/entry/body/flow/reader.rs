//! Reader of a streaming body.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::{Flow, Place, State};
use crate::entry::body::parts::PartsReader;
use crate::entry::body::piece::BrokenBody;
use crate::runtime::wakers::Ticket;

/// Reader of a streaming body.
#[derive(Debug)]
pub(crate) struct Reader {
    flow: Arc<Flow>,
    name: usize,
    ticket: Option<Ticket>,
    /// Reader of the tier, for bytes that have left the window.
    behind: Option<Box<PartsReader>>,
}

impl Reader {
    /// Creates a reader at the first byte. If that byte has left the window, the first read returns
    /// the error.
    pub(crate) fn new(flow: Arc<Flow>) -> Self {
        let name = take_place(&mut flow.state.lock());
        Self { flow, name, ticket: None, behind: None }
    }

    /// Creates a reader at the first byte, or returns `None` if that byte has left the window.
    /// `promised`: the reader was promised.
    pub(crate) fn at_start(flow: &Arc<Flow>, promised: bool) -> Option<Self> {
        let mut state = flow.state.lock();
        let there = state.starts_at_zero();
        let name = there.then(|| take_place(&mut state));
        if promised {
            state.promised = state.promised.saturating_sub(1);
        }
        drop(state);
        Some(Self { flow: flow.clone(), name: name?, ticket: None, behind: None })
    }

    /// Returns the body, and the number of this reader in it.
    pub(crate) fn downgrade(&self) -> (Weak<Flow>, usize) {
        (Arc::downgrade(&self.flow), self.name)
    }

    /// Skips bytes. Returns `false` if the window has left the reader behind.
    pub(crate) fn skip(&self, bytes: u64) -> bool {
        let state = self.flow.state.lock();
        let Place::At { offset, arrival } = state.readers[self.name] else { return false };
        drop(state);
        let offset = offset.saturating_add(bytes);
        self.move_on(Place::At { offset, arrival });
        true
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        let mut state = self.flow.state.lock();
        let Place::At { offset, arrival } = state.readers[self.name] else {
            return Poll::Ready(Some(Err(BrokenBody::FellBehind)));
        };
        if let Some(behind) = state.behind(offset) {
            drop(state);
            return self.poll_behind(cx, behind, offset, arrival);
        }
        if offset < state.written {
            let read = state.read_at(self.name, offset, arrival);
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
}

impl Reader {
    /// Reads bytes that have left the window from the tier.
    fn poll_behind(
        &mut self,
        cx: &mut Context<'_>,
        found: PartsReader,
        offset: u64,
        arrival: u64,
    ) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        // A read that has begun there continues.
        let begun = self.behind.take().filter(|begun| begun.reads(offset));
        let behind = self.behind.insert(begun.unwrap_or_else(|| Box::new(found)));
        let polled = behind.poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            let offset = offset + piece.len() as u64;
            self.move_on(Place::At { offset, arrival });
        }
        polled
    }

    fn move_on(&self, next: Place) {
        let mut state = self.flow.state.lock();
        if state.readers[self.name] != Place::Left {
            state.readers[self.name] = next;
        }
        if state.windowed {
            state.trim();
        }
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
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

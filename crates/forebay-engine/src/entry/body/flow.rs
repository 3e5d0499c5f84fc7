//! Streaming body: one writer, and readers that each start at byte 0 and read at their own speed.
//!
//! While the body may be kept, all of it stays, and no reader stops the writer: a client that does
//! not read never blocks the fill. A kept body is charged to the bodies in flight before it grows,
//! and is collected into segments. Once it is too large for every tier, or no memory is free in
//! time, only a window stays, the slowest reader sets the speed, and memory does not store it. If a
//! lower tier returns the written part, that tier alone sets the speed: see
//! [`draft`](super::draft).
//!
//! A reader is registered at byte 0 when its caller is given the body, not when it starts to read:
//! in between, the window could move on, and a body without readers would be given up. Readers of
//! callers that are about to be woken are *promised*.

mod draft_writer;
mod reader;
mod state;
mod writer;

use std::sync::Arc;
use std::task::Waker;

use super::draft::Draft;
use crate::entry::in_flight::InFlight;
use crate::runtime::sync::Mutex;
pub(crate) use draft_writer::DraftWriter;
pub(crate) use reader::Reader;
use state::{Place, State};
pub(crate) use writer::{FlowWriter, Pushed};

/// Streaming body.
#[derive(Debug)]
pub(crate) struct Flow {
    state: Mutex<State>,
}

impl Flow {
    /// Creates a body that is kept up to this size. Dropping the writer before the end breaks the
    /// body for every reader.
    pub(crate) fn new(in_flight: &Arc<InFlight>, kept_max: u64) -> (FlowWriter, Arc<Self>) {
        let flow = Arc::new(Self { state: Mutex::new(State::new(in_flight.charge(0))) });
        (FlowWriter { flow: flow.clone(), kept_max, announced: None }, flow)
    }

    /// Keeps byte 0 for this many readers that are about to be created.
    pub(crate) fn promise(&self, readers: usize) {
        self.state.lock().promised += readers;
    }

    /// Changes the draft. Returns `false` if the first byte of the body cannot be read any more.
    fn with_draft(&self, change: impl FnOnce(&mut Draft)) -> bool {
        let mut state = self.state.lock();
        change(state.draft.get_or_insert_default());
        if state.windowed {
            state.trim();
        }
        let from_its_first = state.starts_at_zero();
        // Readers wait for the writer only: all written bytes are in the window or in the tier.
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        from_its_first
    }

    /// Returns `true` if the next bytes of the reader with this number are no longer in memory.
    pub(super) fn is_lost(&self, name: usize) -> bool {
        self.state.lock().is_lost(name)
    }

    /// Cancels the promise of one reader.
    pub(crate) fn forgo(&self) {
        let mut state = self.state.lock();
        state.promised = state.promised.saturating_sub(1);
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

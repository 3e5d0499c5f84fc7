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

/// A body in flight.
#[derive(Debug)]
pub(crate) struct Flow {
    state: Mutex<State>,
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

    /// Changes what a lower tier holds of it. `false` if nobody can read the body from its first
    /// byte any more.
    fn with_draft(&self, change: impl FnOnce(&mut Draft)) -> bool {
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

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

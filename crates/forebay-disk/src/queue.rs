//! What is to be written, on its way to the one thread that writes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::bus::{Bookmark, Chain};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::io::OpenFile;
use crate::layout::{Digest, Kind, Moment};
use crate::open::Refusal;
use crate::prefixes::PrefixPurge;
use crate::scan::SegmentScan;

/// How many bytes may wait to be written. Beyond it entries are not stored, and counted: about as
/// much as a disk writes in the time that the engine gives it.
const BYTES_MAX: usize = 32 << 20;

/// What anything costs beside its bytes, so that small things are bounded in number as well.
const OVERHEAD: usize = 256;

/// How far removals may go beyond the bound: refusing one may cost more than its memory.
const REMOVALS_MAX: usize = 4 << 20;

/// How much is taken out at once, give or take one: it does not count as waiting any more.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// How many at once: what costs nothing is bounded, too.
const TAKEN_MAX: usize = 256;

/// Something to be written.
pub(crate) enum Op {
    Store(Store),
    Remove {
        digest: Digest,
        reply: Reply<bool>,
    },
    Purge {
        digest: Digest,
        /// Of a purge by prefix.
        prefix_purge: Option<PrefixPurge>,
        reply: Reply<()>,
    },
    Keep {
        bookmark: Bookmark,
        chain: Chain,
        reply: Reply<()>,
    },
    /// Adds to a body that has a file of its own; the first one makes the file.
    AppendPiece {
        part: u64,
        piece: Bytes,
        reply: Reply<Arc<dyn OpenFile>>,
    },
    /// A body that is not wanted any more.
    Abandon {
        part: u64,
    },
    /// What stands in a segment of an earlier life.
    SegmentScanned(Box<(SegmentScan, Arc<dyn OpenFile>)>),
    /// Segments up to this one cannot be relied on.
    DiscardSegments {
        last: u32,
    },
    /// All segments of earlier lives have been told of.
    Loaded,
}

/// An entry to be written and then made visible.
pub(crate) struct Store {
    pub(crate) digest: Digest,
    pub(crate) kind: Kind,
    pub(crate) payload: Bytes,
    pub(crate) stored: Moment,
    /// Where the log ended at the last purge before it was begun: a later one has reached it.
    pub(crate) generation: u64,
    pub(crate) part: Option<u64>,
    pub(crate) ticket: Ticket,
    pub(crate) reply: Reply<()>,
}

pub(crate) type Reply<T> = oneshot::Sender<io::Result<T>>;

/// Whether somebody still waits for an entry. Visible only while it is: whoever gave up waiting
/// may have purged it since.
#[derive(Clone, Default)]
pub(crate) struct Ticket(Arc<Mutex<bool>>);

/// Withdraws its ticket when it is dropped.
pub(crate) struct Waiter(Ticket);

impl Ticket {
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter(self.clone())
    }

    /// Does what makes the entry visible, unless nobody waits any more.
    pub(crate) fn unless_withdrawn<T>(&self, publish: impl FnOnce() -> T) -> Option<T> {
        let withdrawn = self.0.lock();
        (!*withdrawn).then(publish)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
    }
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Default)]
struct Waiting {
    ops: VecDeque<Op>,
    bytes: usize,
    is_closed: bool,
}

impl Queue {
    /// Takes something in, if there is room for it.
    pub(crate) fn push(&self, op: Op) -> Result<(), Refusal> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(Refusal::Stopped);
        }
        if waiting.bytes + op.cost() > op.bytes_max() {
            return Err(Refusal::QueueFull);
        }
        waiting.bytes += op.cost();
        waiting.ops.push_back(op);
        drop(waiting);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for something to be written, and takes what waits into `taken`; nothing once the queue
    /// is closed and empty.
    pub(crate) fn take(&self, taken: &mut Vec<Op>) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.ops.is_empty() {
            if waiting.is_closed {
                return false;
            }
            self.ready.wait(&mut waiting);
        }
        let mut bytes = 0;
        while bytes < TAKEN_BYTES_MAX
            && taken.len() < TAKEN_MAX
            && let Some(op) = waiting.ops.pop_front()
        {
            bytes += op.cost();
            taken.push(op);
        }
        waiting.bytes -= bytes;
        true
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.ready.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Leaves out what is waiting: nobody will write it.
    pub(crate) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        waiting.ops.clear();
    }
}

impl Op {
    fn cost(&self) -> usize {
        match self {
            Self::Store(store) => OVERHEAD + store.payload.len(),
            Self::AppendPiece { piece, .. } => OVERHEAD + piece.len(),
            Self::Remove { .. } | Self::Purge { .. } | Self::Keep { .. } => OVERHEAD,
            // There is one of these for each body that was begun, or for each segment.
            Self::Abandon { .. }
            | Self::SegmentScanned(_)
            | Self::DiscardSegments { .. }
            | Self::Loaded => 0,
        }
    }

    const fn bytes_max(&self) -> usize {
        match self {
            Self::Store(_) | Self::AppendPiece { .. } => BYTES_MAX,
            Self::Remove { .. } | Self::Purge { .. } | Self::Keep { .. } => {
                BYTES_MAX + REMOVALS_MAX
            }
            Self::Abandon { .. }
            | Self::SegmentScanned(_)
            | Self::DiscardSegments { .. }
            | Self::Loaded => usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Seed;

    #[test]
    fn a_full_queue_refuses_bodies_and_takes_removals() {
        let queue = Queue::default();
        let grow = || {
            let (reply, _) = oneshot::channel();
            queue.push(Op::AppendPiece { part: 0, piece: Bytes::from(vec![0; 1 << 20]), reply })
        };
        let taken = (0..40).filter(|_| grow().is_ok()).count();
        assert_eq!(taken, 31);
        let (reply, _) = oneshot::channel();
        assert!(queue.push(Op::Remove { digest: Digest::of(b"", Seed(0)), reply }).is_ok());
        let mut all = Vec::new();
        assert!(queue.take(&mut all) && all.len() == 1, "each of them is as much as is taken");
        assert!(grow().is_ok());
        queue.close();
        assert!(matches!(grow(), Err(Refusal::Stopped)));
        while queue.take(&mut all) {}
        assert_eq!(all.len(), 33);
    }
}

//! Queue of operations for the writing thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::bus::{Bookmark, Chain};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::files::io::OpenFile;
use crate::format::layout::{Digest, Kind, Moment};
use crate::format::scan::SegmentScan;
use crate::index::prefixes::PrefixPurge;

/// Maximum queued bytes: about what a disk writes within the engine's timeout. Entries beyond it
/// are refused and counted.
const BYTES_MAX: usize = 32 << 20;

/// Bytes counted per operation in addition to its payload, which bounds the number of operations.
const OVERHEAD: usize = 256;

/// Additional bytes for removals and purges, whose refusal costs more than their memory.
const REMOVALS_MAX: usize = 4 << 20;

/// Approximate maximum bytes taken per batch. They do not count as queued any more.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Maximum number of operations per batch.
const TAKEN_MAX: usize = 256;

/// Operation of the writing thread.
pub(crate) enum Op {
    Store(Store),
    Remove {
        digest: Digest,
        reply: Reply<bool>,
    },
    Purge {
        digest: Digest,
        /// Target of a prefix purge.
        prefix_purge: Option<PrefixPurge>,
        reply: Reply<()>,
    },
    /// Records a soft purge of one key.
    Soften {
        digest: Digest,
        reply: Reply<()>,
    },
    Keep {
        bookmark: Bookmark,
        chain: Chain,
        reply: Reply<()>,
    },
    /// Appends to a separate body; the first piece creates the file.
    AppendPiece {
        part: u64,
        piece: Bytes,
        reply: Reply<Arc<dyn OpenFile>>,
    },
    /// Deletes a partial body.
    Abandon {
        part: u64,
    },
    /// Scan of an earlier segment.
    SegmentScanned(Box<(SegmentScan, Arc<dyn OpenFile>)>),
    /// Segments up to this one cannot be trusted.
    DiscardSegments {
        last: u32,
    },
    /// All earlier segments have been scanned.
    Loaded,
}

/// An entry to write and publish.
pub(crate) struct Store {
    pub(crate) digest: Digest,
    pub(crate) kind: Kind,
    pub(crate) payload: Bytes,
    pub(crate) stored: Moment,
    /// Log position of the last purge before the write began.
    pub(crate) generation: u64,
    pub(crate) part: Option<u64>,
    pub(crate) ticket: Ticket,
    pub(crate) reply: Reply<()>,
}

pub(crate) type Reply<T> = oneshot::Sender<io::Result<T>>;

/// Flag that a caller still waits for its entry. The entry is published only then, since a caller
/// that gave up may have purged it since.
#[derive(Clone, Default)]
pub(crate) struct Ticket(Arc<Mutex<bool>>);

/// Withdraws its ticket when it is dropped.
pub(crate) struct Waiter(Ticket);

impl Ticket {
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter(self.clone())
    }

    /// Runs `publish` unless the caller has given up.
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

/// Bounded queue.
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
    /// Adds an operation.
    ///
    /// # Errors
    /// [`Refusal`] if the queue is full or closed.
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

    /// Waits for operations and moves a batch into `taken`. Returns false once the queue is closed
    /// and empty.
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

    /// Drops all queued operations.
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
            Self::Remove { .. } | Self::Purge { .. } | Self::Soften { .. } | Self::Keep { .. } => {
                OVERHEAD
            }
            // Bounded by the number of bodies and segments.
            Self::Abandon { .. }
            | Self::SegmentScanned(_)
            | Self::DiscardSegments { .. }
            | Self::Loaded => 0,
        }
    }

    const fn bytes_max(&self) -> usize {
        match self {
            Self::Store(_) | Self::AppendPiece { .. } => BYTES_MAX,
            Self::Remove { .. } | Self::Purge { .. } | Self::Soften { .. } | Self::Keep { .. } => {
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
    use crate::format::layout::Seed;

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

//! One tier read for all keys of a batch.
//!
//! Each flight of a batch looks into one tier after the other by itself: flights may find entries in
//! different tiers, and may skip a tier. Their reads of one tier are combined: each flight that
//! reaches a tier waits until every other flight has reached it or can no longer do so, and then
//! the tier is asked once. A flight that has reached a lower tier, started its load, or ended can
//! no longer reach a higher tier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::{Key, KeyRef};
use forebay_engine::{Stored, Tier, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Maximum number of keys in one read: a larger answer would delay other operations on the same
/// connection.
const KEYS_MAX: usize = 512;

/// Maximum time that a read waits for further flights. Flights arrive together, except those whose
/// tier must first remove an entry.
const GATHER_MAX: Duration = Duration::from_millis(2);

type Read = Result<Option<Stored>, TierError>;

/// The tier reads of one batch.
#[derive(Default)]
pub(crate) struct BatchedReads(Mutex<ReadState>);

#[derive(Default)]
struct ReadState {
    /// Number of flights that may still read a tier.
    readers: usize,
    /// No further flight joins if true.
    closed: bool,
    /// The state of each tier, by its index below memory.
    tiers: Vec<TierReads>,
}

/// The pending reads of one tier.
#[derive(Default)]
struct TierReads {
    /// Number of active readers that have reached this tier or a lower one.
    reached: usize,
    tier: Option<Arc<dyn Tier>>,
    pending: Vec<PendingRead>,
}

struct PendingRead {
    key: Key,
    reply: oneshot::Sender<Read>,
}

/// The tier reads of one flight of a batch.
pub(crate) struct Reader {
    batch: Arc<BatchedReads>,
    /// Other readers of the batch wait for this one if true.
    joined: AtomicBool,
    /// Number of tiers that the flight has reached or skipped.
    passed: AtomicUsize,
}

impl BatchedReads {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Declares that no further flight joins.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.read_complete_tiers();
    }

    /// Adds a read of the tier with this index, by a flight that had passed `passed` tiers before.
    fn add(
        self: &Arc<Self>,
        tier: &Arc<dyn Tier>,
        tier_index: usize,
        passed: usize,
        read: PendingRead,
    ) {
        let mut state = self.0.lock();
        let count = state.tiers.len().max(tier_index + 1);
        state.tiers.resize_with(count, TierReads::default);
        // The flight cannot return to the tiers that it has skipped, so they count as reached.
        let newly_reached = state.tiers.iter_mut().take(tier_index + 1).skip(passed);
        newly_reached.for_each(|reads| reads.reached += 1);
        let reads = &mut state.tiers[tier_index];
        reads.tier.get_or_insert_with(|| tier.clone());
        reads.pending.push(read);
        let is_first = reads.pending.len() == 1;
        state.read_complete_tiers();
        if is_first && !state.tiers[tier_index].pending.is_empty() {
            self.read_after_gather_max(tier_index);
        }
    }

    /// Reads the keys that are pending after [`GATHER_MAX`], also if readers are missing.
    fn read_after_gather_max(self: &Arc<Self>, tier_index: usize) {
        let Ok(runtime) = Handle::try_current() else { return };
        let batch = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep(GATHER_MAX).await;
            if let Some(batch) = batch.upgrade() {
                batch.0.lock().tiers[tier_index].read();
            }
        });
    }

    fn leave(&self, passed: usize) {
        let mut state = self.0.lock();
        state.readers -= 1;
        state.tiers.iter_mut().take(passed).for_each(|reads| reads.reached -= 1);
        state.read_complete_tiers();
    }
}

impl ReadState {
    /// Reads each tier that all readers have reached.
    fn read_complete_tiers(&mut self) {
        let (closed, readers) = (self.closed, self.readers);
        let complete = |reads: &&mut TierReads| closed && reads.reached == readers;
        self.tiers.iter_mut().filter(complete).for_each(TierReads::read);
    }
}

impl TierReads {
    /// Reads all pending keys, in tasks that no caller can cancel.
    fn read(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let (Some(tier), Ok(runtime)) = (&self.tier, Handle::try_current()) else { return };
        let mut pending = pending.into_iter().peekable();
        while pending.peek().is_some() {
            let chunk: Vec<PendingRead> = pending.by_ref().take(KEYS_MAX).collect();
            runtime.spawn(read(tier.clone(), chunk));
        }
    }
}

async fn read(tier: Arc<dyn Tier>, pending: Vec<PendingRead>) {
    let (keys, replies): (Vec<Key>, Vec<_>) =
        pending.into_iter().map(|read| (read.key, read.reply)).unzip();
    // Every flight gives up after the tier's read budget, so the task need not run longer.
    let reading = timeout(tier.budget().read, tier.open_many(&keys));
    let read = reading.await.unwrap_or(Err(TierError::TimedOut));
    let read = read.and_then(|records| {
        let (expected, got) = (keys.len(), records.len());
        let error = || {
            TierError::failed(format!(
                "the tier returned {got} records for a read of {expected} keys"
            ))
        };
        (got == expected).then_some(records).ok_or_else(error)
    });
    match read {
        // A reply to a flight that has ended is dropped.
        Ok(records) => replies
            .into_iter()
            .zip(records)
            .for_each(|(reply, record)| drop(reply.send(Ok(record)))),
        Err(error) => {
            replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone()))));
        }
    }
}

impl Reader {
    pub(crate) fn new(batch: &Arc<BatchedReads>) -> Self {
        let (joined, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { batch: batch.clone(), joined, passed }
    }

    /// Makes the other readers of the batch wait for this one.
    pub(crate) fn join(&self) {
        if !self.joined.swap(true, Ordering::Relaxed) {
            self.batch.0.lock().readers += 1;
        }
    }

    /// Declares that the flight reads no further tier in this batch.
    pub(crate) fn leave(&self) {
        if self.joined.swap(false, Ordering::Relaxed) {
            self.batch.leave(self.passed.load(Ordering::Relaxed));
        }
    }

    /// Returns `true` while other readers of the batch wait for this one.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined.load(Ordering::Relaxed)
    }

    /// Reads one record of the tier with this index: with the batch if the reader has joined it,
    /// alone otherwise.
    pub(crate) fn open<'a>(
        &'a self,
        tier: &'a Arc<dyn Tier>,
        tier_index: usize,
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Read> {
        let passed = self.passed.load(Ordering::Relaxed);
        // A repeated read of one tier cannot be combined: the batch may have read it already.
        if !self.joined.load(Ordering::Relaxed) || passed > tier_index {
            return tier.open(key);
        }
        let (reply, record) = oneshot::channel();
        self.passed.store(tier_index + 1, Ordering::Relaxed);
        self.batch.add(tier, tier_index, passed, PendingRead { key: key.to_key(), reply });
        let cancelled = || Err(TierError::failed("the read of several keys was cancelled"));
        async move { record.await.unwrap_or_else(|_| cancelled()) }.boxed()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.leave();
    }
}

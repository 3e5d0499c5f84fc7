//! A tier in memory that fails on demand.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta};
use forebay_engine::{Budget, Stored, Tier, TierError, WriteMode, Writer};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;

/// Time budget of one operation.
const TIME_BUDGET: Duration = Duration::from_secs(1);

/// Fault of a [`FaultyTier`], which a test sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault: every operation succeeds.
    #[default]
    None,
    /// Every operation of the tier fails at once, as with a server that is down.
    Fails,
    /// No operation of the tier ends, as with a server that does not answer. The cache cancels it
    /// after one second of the tokio clock.
    Hangs,
    /// New writes to the tier do not end until the cache cancels them, after one second of the
    /// tokio clock; reads and removals succeed.
    HangsWriting,
    /// Only the operation with this number fails, counted from 1 since the fault was set. A test
    /// can run once for each number, to cover every point of failure.
    FailsAt(u64),
    /// Reads of the tier return corrupt bytes; stored values are not changed.
    Damages,
}

/// A tier in memory for tests: it counts its operations, and [fails](Fault) on demand. Clones share
/// one tier, so several caches can use it like a shared server.
///
/// ```
/// use forebay::codec::{Codec, Raw};
/// use forebay::testkit::FaultyTier;
/// use forebay::{Cache, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = FaultyTier::new();
/// let instance = || {
///     let cache = Cache::<Vec<u8>>::builder("n").memory(Memory::entries(10));
///     cache.tiers(Codec::new(Raw), [server.shared()]).build()
/// };
/// instance()?.set("a", b"1".to_vec()).await;
/// let found = instance()?.get_many(&["a", "b"]).await;
/// assert_eq!(found[0].as_deref(), Some(&b"1".to_vec()));
/// assert_eq!((server.reads(), server.keys_read()), (1, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct FaultyTier(Arc<Mutex<State>>);

/// Stored entry. A typed value has a head and no body.
#[derive(Clone)]
struct Record {
    meta: Meta,
    head: Bytes,
    body: Vec<Bytes>,
}

#[derive(Default)]
struct State {
    records: HashMap<Key, Record>,
    fault: Fault,
    /// Number of operations since the fault was set.
    operations: u64,
    reads: u64,
    keys_read: u64,
}

impl FaultyTier {
    /// Creates an empty tier without a fault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the tier in the form that [`Builder::tiers`](crate::Builder::tiers) takes.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Tier> {
        Arc::new(self.clone())
    }

    /// Sets the fault of all operations of the tier from now on.
    pub fn set_fault(&self, fault: Fault) {
        let mut state = self.0.lock();
        state.fault = fault;
        state.operations = 0;
    }

    /// Returns the number of reads of the tier that no fault prevented; a read of many keys counts
    /// once. [`operations`](Self::operations) counts failed ones too.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// Returns the number of keys in the reads of the tier that no fault prevented, stored or not.
    #[must_use]
    pub fn keys_read(&self) -> u64 {
        self.0.lock().keys_read
    }

    /// Returns the number of operations of every kind since the last
    /// [`set_fault`](Self::set_fault), or since the tier was created. Failed operations count;
    /// writes that [`Fault::HangsWriting`] prevents do not.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Returns the number of entries in the tier.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().records.len()
    }

    /// Returns `true` if the tier has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all entries of the tier, like a restart of a server without persistence.
    pub fn clear(&self) {
        self.0.lock().records.clear();
    }

    /// Counts one operation, and runs it unless the fault prevents that.
    fn operate<'a, T: Send + 'a>(
        &'a self,
        run: impl FnOnce(&mut State) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T, TierError>> {
        async move {
            if self.0.lock().hangs() {
                return pending().await;
            }
            let mut state = self.0.lock();
            if state.fails() {
                Err(TierError::failed("the test has set a fault"))
            } else {
                Ok(run(&mut state))
            }
        }
        .boxed()
    }
}

impl State {
    fn hangs(&mut self) -> bool {
        self.operations += 1;
        self.fault == Fault::Hangs
    }

    fn fails(&self) -> bool {
        match self.fault {
            Fault::Fails => true,
            Fault::FailsAt(number) => self.operations == number,
            _ => false,
        }
    }

    fn read(&self, key: KeyRef<'_>) -> Option<Stored> {
        let Record { meta, head, body } = self.records.get(key.bytes()).cloned()?;
        let head = if self.fault == Fault::Damages { reversed(&head) } else { head };
        Some(Stored::new(meta, head, stream::iter(body.into_iter().map(Ok)).boxed()))
    }
}

fn reversed(bytes: &Bytes) -> Bytes {
    bytes.iter().rev().copied().collect()
}

impl fmt::Debug for FaultyTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("FaultyTier")
            .field("fault", &state.fault)
            .field("entries", &state.records.len())
            .finish_non_exhaustive()
    }
}

impl Tier for FaultyTier {
    fn name(&self) -> &'static str {
        "faulty"
    }

    /// One second of the tokio clock for each operation, so that tests pass on a busy machine.
    fn budget(&self) -> Budget {
        Budget { read: TIME_BUDGET, write: TIME_BUDGET }
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.operate(move |state| {
            state.reads += 1;
            state.keys_read += 1;
            state.read(key)
        })
    }

    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        self.operate(move |state| {
            state.reads += 1;
            state.keys_read += keys.len() as u64;
            keys.iter().map(|key| state.read(key.borrowed())).collect()
        })
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        _mode: WriteMode<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        if self.0.lock().fault == Fault::HangsWriting {
            return pending().boxed();
        }
        self.operate(move |_| {
            let record = Record { meta: meta.clone(), head: head.clone(), body: Vec::new() };
            let writing = PendingWrite { tier: self.clone(), key: key.to_key(), record };
            Box::new(writing) as Box<dyn Writer>
        })
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.operate(move |state| state.records.remove(key.bytes()).is_some())
    }
}

/// A write in progress.
struct PendingWrite {
    tier: FaultyTier,
    key: Key,
    record: Record,
}

impl Writer for PendingWrite {
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        let Self { tier, record, .. } = self;
        tier.operate(|_| record.body.push(piece))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let Self { tier, key, record } = *self;
            tier.operate(|state| drop(state.records.insert(key, record))).await
        }
        .boxed()
    }
}

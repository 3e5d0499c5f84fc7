//! A tier in memory that fails as it is told.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Meta};
use forebay_engine::{Budget, Stored, Tier, TierError, Writer};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;

/// What an operation may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is wrong with a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Each operation fails, at once: nobody is there.
    Fails,
    /// No operation ends: somebody is there, and does not answer. The cache gives up after the
    /// tier's time, by the clock of tokio.
    Hangs,
    /// Nothing that is begun to be written ends; what is read comes.
    HangsWriting,
    /// The operation with this number fails, the first one from now on being 1; the others do
    /// not. For going through all the places where something can fail.
    FailsAt(u64),
    /// What is read is not what was written.
    Damages,
}

/// A tier in memory, for tests: it counts what it is asked, and [fails](Fault) as it is told.
/// Clones are the same tier, and so several caches can share it as they would share a server.
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

#[derive(Default)]
struct State {
    records: HashMap<Key, (Meta, Bytes)>,
    fault: Fault,
    /// Since the fault was set.
    operations: u64,
    reads: u64,
    keys_read: u64,
}

impl FaultyTier {
    /// A tier that is empty, and in order.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tier as a builder takes it.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn Tier> {
        Arc::new(self.clone())
    }

    /// What is wrong with it from now on.
    pub fn fault(&self, fault: Fault) {
        let mut state = self.0.lock();
        state.fault = fault;
        state.operations = 0;
    }

    /// How often it was asked for something: many keys at once are once.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// How many keys it was asked for.
    #[must_use]
    pub fn keys_read(&self) -> u64 {
        self.0.lock().keys_read
    }

    /// How many operations it was asked for since its fault was set: of every kind, whether they
    /// have failed or not.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// How many entries it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().records.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all, as a server does that was restarted.
    pub fn clear(&self) {
        self.0.lock().records.clear();
    }

    /// Carries out one operation, as far as it is to be.
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
                Err(TierError::failed("as it was told"))
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
        let (meta, head) = self.records.get(key.bytes()).cloned()?;
        let head = if self.fault == Fault::Damages { reversed(&head) } else { head };
        Some(Stored::new(meta, head, stream::empty().boxed()))
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

    /// A second for each operation, by the clock of tokio: a test must not fail since its machine
    /// has much to do.
    fn budget(&self) -> Budget {
        Budget { read: PATIENCE, write: PATIENCE }
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
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        if self.0.lock().fault == Fault::HangsWriting {
            return pending().boxed();
        }
        self.operate(move |_| {
            let record = (meta.clone(), head.clone());
            let writing = Writing { tier: self.clone(), key: key.to_key(), record };
            Box::new(writing) as Box<dyn Writer>
        })
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.operate(move |state| state.records.remove(key.bytes()).is_some())
    }
}

/// An entry on its way. A value is a head alone, and has no body.
struct Writing {
    tier: FaultyTier,
    key: Key,
    record: (Meta, Bytes),
}

impl Writer for Writing {
    fn write(&mut self, _: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        self.tier.operate(|_| ())
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), TierError>> {
        async move {
            let Self { tier, key, record } = *self;
            tier.operate(|state| drop(state.records.insert(key, record))).await
        }
        .boxed()
    }
}

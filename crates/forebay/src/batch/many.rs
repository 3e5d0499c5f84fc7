//! Operations on many keys: one load for all keys that are missing.
//!
//! Each missing key has a flight of its own, as in a call for that key alone. So other calls follow
//! the flight, and the batch joins flights that other calls lead. The flights that the batch leads
//! are loaded together:
//!
//! 1. Every missing key begins or joins its flight before any of them waits. The engine reports
//!    each flight that the batch leads ([`BatchPart::starts`]).
//! 2. The batch is closed: the number of flights that it leads is known.
//! 3. When all of them have reached their load, the loader is called once with all their keys.
//!
//! A flight that finds its entry in a lower tier withdraws from the batch. A flight that starts
//! after the batch was closed, because the flight it followed was abandoned, is loaded alone.
//!
//! The flights' reads of lower tiers are combined as well: see
//! [`batched_reads`](crate::batch::batched_reads).

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::Bytes;
use forebay_core::KeyRef;
use forebay_engine::{
    Audience, BatchPart, Entry, Head, HeadCodec, Load, LoadError, LoadOptions, Loaded, Miss,
    Select, Stored, Tier, TierError,
};
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::answer::Answer;
use crate::batch::batched_reads::{BatchedReads, Reader};
use crate::cache::call::Call;
use crate::cache::load::StoreOptions;
use crate::cache::load_cycles::LoadId;
use crate::cache::shared::Found;
use crate::cache::shared::Shared;
use crate::cache::{Cache, With};
use crate::error::{Error, load_error};
use crate::options::Options;

/// Maximum number of concurrent writes of `set_many`: enough to fill a connection, and far below
/// the number of writes that a tier queues.
const CONCURRENT_SETS: usize = 64;

/// The answers of a batch loader, by key.
type Rows<V> = HashMap<String, Answer<V>>;

/// A batch loader with its types erased.
type Loader<V> =
    dyn Fn(Vec<String>) -> BoxFuture<'static, Result<Rows<V>, LoadError>> + Send + Sync;

/// The keys that one call loads together.
struct Batch<V> {
    shared: Arc<Shared<V>>,
    store_options: Arc<StoreOptions>,
    /// `None` if the call loads nothing and only reads tiers.
    loader: Option<Box<Loader<V>>>,
    state: Mutex<BatchState<V>>,
    reads: Arc<BatchedReads>,
}

struct BatchState<V> {
    /// Number of flights that the batch leads and that have not reached their load yet.
    expected: usize,
    /// Flights that have reached their load.
    ready: Vec<PendingLoad<V>>,
    closed: bool,
}

struct PendingLoad<V> {
    key: Arc<str>,
    reply: oneshot::Sender<Result<Answer<V>, LoadError>>,
}

/// One key of a batch.
struct Part<V: Send + Sync + 'static> {
    batch: Arc<Batch<V>>,
    key: Arc<str>,
    /// The batch waits for this part if true.
    is_expected: AtomicBool,
    reader: Reader,
}

/// The engine's handle of a part. Dropping the last one withdraws the part from the batch.
struct PartLoad<V: Send + Sync + 'static>(Arc<Part<V>>);

impl<V: Send + Sync + 'static> Clone for PartLoad<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V: Send + Sync + 'static> Select for PartLoad<V> {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

impl<V: Send + Sync + 'static> BatchPart for PartLoad<V> {
    fn starts(&self) {
        let mut state = self.0.batch.state.lock();
        if !state.closed {
            state.expected += 1;
            self.0.reader.join();
            self.0.is_expected.store(true, Ordering::Relaxed);
        }
    }

    fn delayed(&self) {
        if self.0.is_expected.swap(false, Ordering::Relaxed) {
            self.0.batch.arrive(None);
        }
    }

    fn is_spared(&self) {
        self.0.withdraw();
    }

    fn reads_together(&self) -> bool {
        self.0.reader.is_joined()
    }

    fn open<'a>(
        &'a self,
        tier: &'a Arc<dyn Tier>,
        tier_index: usize,
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.0.reader.open(tier, tier_index, key)
    }
}

impl<V: Send + Sync + 'static> HeadCodec for PartLoad<V> {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        self.0.batch.shared.decode_head(&self.0.key, bytes)
    }

    fn encode_head(&self, head: &Head) -> Option<Bytes> {
        self.0.batch.shared.encode_head(head)
    }
}

impl<V: Send + Sync + 'static> Load for PartLoad<V> {
    async fn load(&self, prior: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        let Part { batch, key, is_expected, reader } = &*self.0;
        reader.leave();
        if batch.loader.is_none() {
            return Err(LoadError::NotCached);
        }
        let (reply, answer) = oneshot::channel();
        let pending = PendingLoad { key: key.clone(), reply };
        if is_expected.swap(false, Ordering::Relaxed) {
            batch.arrive(Some(pending));
        } else {
            batch.start_load(vec![pending]);
        }
        let answer = answer.await.unwrap_or_else(|_| {
            Err(LoadError::Panicked("the load of several keys was cancelled".into()))
        })?;
        batch.shared.to_loaded(key, &batch.store_options, answer, prior.as_deref())
    }

    fn options(&self) -> LoadOptions {
        self.0.batch.shared.load_options()
    }

    fn batch(&self) -> Option<&dyn BatchPart> {
        Some(self)
    }
}

impl<V: Send + Sync + 'static> Part<V> {
    /// Tells the batch not to wait for this part.
    fn withdraw(&self) {
        self.reader.leave();
        if self.is_expected.swap(false, Ordering::Relaxed) {
            self.batch.arrive(None);
        }
    }
}

impl<V: Send + Sync + 'static> Drop for Part<V> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<V: Send + Sync + 'static> Batch<V> {
    /// Records that an expected part has reached its load, or with `None` that it has withdrawn.
    fn arrive(self: &Arc<Self>, pending: Option<PendingLoad<V>>) {
        let mut state = self.state.lock();
        state.expected -= 1;
        state.ready.extend(pending);
        self.load_if_complete(state);
    }

    /// Declares that every flight that the batch leads is counted.
    fn close(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.closed = true;
        self.load_if_complete(state);
        self.reads.close();
    }

    fn load_if_complete(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, BatchState<V>>) {
        if state.closed && state.expected == 0 {
            let ready = std::mem::take(&mut state.ready);
            drop(state);
            if !ready.is_empty() {
                self.start_load(ready);
            }
        }
    }

    /// Loads these keys in a task that no caller can cancel.
    fn start_load(self: &Arc<Self>, pending: Vec<PendingLoad<V>>) {
        // Without a runtime, parts are dropped because it shuts down: no call waits for them.
        let Ok(runtime) = Handle::try_current() else { return };
        let batch = self.clone();
        runtime.spawn(async move {
            let loads: Vec<LoadId> =
                pending.iter().map(|load| batch.shared.load_id(&load.key)).collect();
            let keys = pending.iter().map(|load| String::from(&*load.key)).collect();
            // Inside of the future, so that a panic before the loader's first await is caught too.
            let loading = async {
                match &batch.loader {
                    Some(loader) => loader(keys).await,
                    None => Err(LoadError::NotCached),
                }
            };
            let loading = batch.shared.run_load(loads.into(), loading);
            let loaded = AssertUnwindSafe(loading).catch_unwind().await;
            let loaded = loaded.unwrap_or_else(|panic| Err(LoadError::panicked(&*panic)));
            reply_to_all(pending, loaded);
        });
    }
}

/// Gives each flight its own answer; a key without a row is absent.
fn reply_to_all<V>(pending: Vec<PendingLoad<V>>, loaded: Result<Rows<V>, LoadError>) {
    for PendingLoad { key, reply } in pending {
        let answer = match &loaded {
            Ok(rows) => Ok(rows.get(&*key).cloned().unwrap_or_else(Answer::absent)),
            Err(error) => Err(error.clone()),
        };
        // A reply to a flight that has ended is dropped.
        let _ = reply.send(answer);
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Returns the stored values of many keys, from memory or lower tiers, in the order of the
    /// keys. A result is `None` if the key has no value that is fresh or may be served stale. Loads
    /// and refreshes nothing; see [`get`](Self::get).
    pub async fn get_many<K: AsRef<str>>(&self, keys: &[K]) -> Vec<Option<Arc<V>>> {
        self.call().get_many(keys).await
    }

    /// Returns the values of many keys, from memory or lower tiers, or loaded, in the order of the
    /// keys. One call of the loader loads all missing keys, except those that other calls are
    /// loading: this call waits for those loads.
    ///
    /// The loader returns rows of a key with a value, an `Option` or an [`Answer`]. A requested key
    /// without a row is stored as absent, and its result is `None`. Rows of other keys are ignored;
    /// of several rows of one key the last one counts.
    ///
    /// A lower [tier](crate::Builder::tiers) is read for up to 512 keys in one exchange, and for
    /// more keys in concurrent exchanges. Lower tiers write at most 256 values at once and skip
    /// further ones ([`skipped_writes`](crate::TierStats::skipped_writes)): load larger batches in
    /// parts.
    ///
    /// The loader may be called again, for some of the keys, if a load of another call is
    /// abandoned.
    ///
    /// # Errors
    /// An [`Error`] if the load of a key fails, or does not start, and no stored value may be served
    /// instead. The values of the other keys are stored.
    pub async fn get_many_or_load<K, F, Fut, R, T, E>(
        &self,
        keys: &[K],
        load: F,
    ) -> Result<Vec<Option<Arc<V>>>, Error>
    where
        K: AsRef<str>,
        F: Fn(Vec<String>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: IntoIterator<Item = (String, T)> + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        self.call().get_many_or_load(keys, loader(load)).await
    }

    /// Stores many values, each as by [`set`](Self::set), and returns the number of values that
    /// were stored. Of several values of one key the last one stays.
    pub async fn set_many<K: AsRef<str>, T: Into<Arc<V>>>(
        &self,
        values: impl IntoIterator<Item = (K, T)>,
    ) -> usize {
        self.with(Options::new()).set_many(values).await
    }
}

impl<V: Send + Sync + 'static> With<'_, V> {
    /// Returns the stored values of many keys with these options; see [`Cache::get_many`].
    pub async fn get_many<K: AsRef<str>>(&self, keys: &[K]) -> Vec<Option<Arc<V>>> {
        self.call().get_many(keys).await
    }

    /// Returns the values of many keys with these options; see [`Cache::get_many_or_load`].
    ///
    /// # Errors
    /// The errors of [`Cache::get_many_or_load`], and [`Error::NotCached`] with
    /// [`only_if_cached`](crate::Options::only_if_cached).
    pub async fn get_many_or_load<K, F, Fut, R, T, E>(
        &self,
        keys: &[K],
        load: F,
    ) -> Result<Vec<Option<Arc<V>>>, Error>
    where
        K: AsRef<str>,
        F: Fn(Vec<String>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: IntoIterator<Item = (String, T)> + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        self.call().get_many_or_load(keys, loader(load)).await
    }

    /// Stores many values with the lifetime and the tags of these options, and returns the number
    /// of values that were stored; see [`Cache::set_many`].
    pub async fn set_many<K: AsRef<str>, T: Into<Arc<V>>>(
        &self,
        values: impl IntoIterator<Item = (K, T)>,
    ) -> usize {
        let setting = stream::iter(values).map(|(key, value)| {
            let value = value.into();
            async move { usize::from(self.call().set(key.as_ref(), value).await) }
        });
        setting.buffered(CONCURRENT_SETS).fold(0, async |stored, one| stored + one).await
    }
}

/// Erases the types of a batch loader.
fn loader<V, F, Fut, R, T, E>(load: F) -> Box<Loader<V>>
where
    V: Send + Sync + 'static,
    F: Fn(Vec<String>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: IntoIterator<Item = (String, T)> + 'static,
    T: Into<Answer<V>> + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    Box::new(move |keys| {
        let loading = load(keys);
        Box::pin(async move {
            let rows = loading.await.map_err(load_error)?;
            Ok(rows.into_iter().map(|(key, value)| (key, value.into())).collect())
        })
    })
}

impl<V: Send + Sync + 'static> Call<'_, V> {
    /// Returns the stored value of each key, in the order of the keys.
    async fn get_many<K: AsRef<str>>(self, keys: &[K]) -> Vec<Found<V>> {
        let batch = Batch::new(self, None);
        let lookup = |key: &str| self.lookup(key).or_else(|miss| self.get_without_load(key, miss));
        let fetch = |key, miss, part| self.get_from_lower_tiers(key, miss, part);
        let found = batch.for_each_key(keys, lookup, fetch).await;
        found.into_iter().map(Option::flatten).collect()
    }

    /// Returns the value of each key, loaded if it is missing, in the order of the keys.
    async fn get_many_or_load<K: AsRef<str>>(
        self,
        keys: &[K],
        loader: Box<Loader<V>>,
    ) -> Result<Vec<Found<V>>, Error> {
        let lookup = |key: &str| self.lookup(key).map(Ok);
        let found = if self.demand.only_if_cached {
            let fetch = |key, miss, part| self.fetch_cached(key, miss, part);
            Batch::new(self, None).for_each_key(keys, lookup, fetch).await
        } else {
            let fetch = |key, miss, part| self.fetch(key, miss, part);
            Batch::new(self, Some(loader)).for_each_key(keys, lookup, fetch).await
        };
        found.into_iter().map(|one| one.unwrap_or(Ok(None))).collect()
    }
}

impl<V: Send + Sync + 'static> Batch<V> {
    fn new(call: Call<'_, V>, loader: Option<Box<Loader<V>>>) -> Arc<Self> {
        Arc::new(Self {
            shared: call.shared.clone(),
            store_options: call.store_options.cloned().unwrap_or_default(),
            loader,
            state: Mutex::new(BatchState { expected: 0, ready: Vec::new(), closed: false }),
            reads: BatchedReads::new(),
        })
    }

    /// Looks up each key, and fetches the missing ones; all of them begin or join a flight before
    /// any of them waits.
    async fn for_each_key<'a, K: AsRef<str>, T, F: Future<Output = T>>(
        self: &Arc<Self>,
        keys: &'a [K],
        lookup: impl Fn(&str) -> Result<T, Miss>,
        fetch: impl Fn(&'a str, Miss, PartLoad<V>) -> F,
    ) -> Vec<Option<T>> {
        let mut found: Vec<Option<T>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (index, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            match lookup(key) {
                Ok(hit) => found.push(Some(hit)),
                Err(miss) => {
                    found.push(None);
                    missing.push((index, Box::pin(fetch(key, miss, self.part(key)))));
                }
            }
        }
        let waiting = poll_all_once(missing, &mut found).await;
        self.close();
        let (indices, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        for (index, fetched) in indices.into_iter().zip(join_all(waiting).await) {
            found[index] = Some(fetched);
        }
        found
    }

    fn part(self: &Arc<Self>, key: &str) -> PartLoad<V> {
        let (batch, key) = (self.clone(), key.into());
        let reader = Reader::new(&self.reads);
        PartLoad(Arc::new(Part { batch, key, is_expected: AtomicBool::new(false), reader }))
    }
}

/// Polls each future once, so that each begins or joins its flight, and returns those that wait.
/// Combinators such as `join_all` may leave some futures for a later poll.
async fn poll_all_once<T, F: Future<Output = T>>(
    mut all: Vec<(usize, Pin<Box<F>>)>,
    found: &mut [Option<T>],
) -> Vec<(usize, Pin<Box<F>>)> {
    poll_fn(|cx| {
        all.retain_mut(|(index, fetching)| match fetching.as_mut().poll(cx) {
            Poll::Ready(fetched) => {
                found[*index] = Some(fetched);
                false
            }
            Poll::Pending => true,
        });
        Poll::Ready(())
    })
    .await;
    all
}

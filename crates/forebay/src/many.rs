//! Many keys at once: one load for all that are missing.
//!
//! Each missing key boards a flight of its own, as it would alone: who asks for one of them
//! meanwhile follows that, and what others load already is joined. Those of the flights that this
//! batch leads are loaded together:
//!
//! 1. Every missing key boards, before anybody waits. Who leads says so on the way.
//! 2. The batch is closed: it is known how many lead.
//! 3. When as many have come to their load, the loader is called once, with all of them.
//!
//! A flight may have its answer before it comes to its load, and then it says that it will not
//! come. One that begins later, since what it followed was abandoned, is loaded by itself.
//!
//! On their way the flights look into the tiers below memory: [together](crate::batched_reads), too.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::KeyRef;
use forebay_engine::{
    Company, Entry, Head, Load, LoadError, Loaded, Select, Stored, Tier, TierError, TierErrors,
    Wanting,
};
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::answer::Answer;
use crate::batched_reads::{BatchedReads, Reader};
use crate::cache::{Cache, With};
use crate::call::{Call, Found};
use crate::error::{Error, load_error};
use crate::load::StoreOptions;
use crate::load_cycles::LoadId;
use crate::shared::Shared;

/// How many values of many are on their way to tiers at once: enough to fill a connection, and far
/// below what tiers take on at all.
const SETS_AT_ONCE: usize = 64;

/// What a loader of many found, by key.
type Rows<V> = HashMap<String, Answer<V>>;

/// A loader of many, with its types out of sight.
type Loader<V> =
    dyn Fn(Vec<String>) -> BoxFuture<'static, Result<Rows<V>, LoadError>> + Send + Sync;

/// All that one call loads together.
struct Batch<V> {
    shared: Arc<Shared<V>>,
    labels: Arc<StoreOptions>,
    /// Nothing where nothing is to be loaded: then only tiers are read.
    loader: Option<Box<Loader<V>>>,
    boarding: Mutex<Boarding<V>>,
    reading: Arc<BatchedReads>,
}

struct Boarding<V> {
    /// How many have said that they lead, and have not come to their load yet.
    expected: usize,
    /// Those that have come.
    come: Vec<Waiting<V>>,
    closed: bool,
}

struct Waiting<V> {
    key: Arc<str>,
    tell: oneshot::Sender<Result<Answer<V>, LoadError>>,
}

/// The part of one key.
struct Part<V: Send + Sync + 'static> {
    batch: Arc<Batch<V>>,
    key: Arc<str>,
    /// Whether it is waited for.
    is_expected: AtomicBool,
    /// Its place among those that read tiers together.
    reads: Reader,
}

/// The engine's handle of a part. When the last is dropped, the part will not come any more.
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

impl<V: Send + Sync + 'static> Load for PartLoad<V> {
    fn departs(&self) {
        let mut boarding = self.0.batch.boarding.lock();
        if !boarding.closed {
            boarding.expected += 1;
            self.0.reads.joins();
            self.0.is_expected.store(true, Ordering::Relaxed);
        }
    }

    fn delayed(&self) {
        if self.0.is_expected.swap(false, Ordering::Relaxed) {
            self.0.batch.arrive(None);
        }
    }

    fn is_spared(&self) {
        self.0.will_not_come();
    }

    async fn load(&self, prior: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        let Part { batch, key, is_expected, reads } = &*self.0;
        reads.leaves();
        if batch.loader.is_none() {
            return Err(LoadError::NotCached);
        }
        let (tell, told) = oneshot::channel();
        let waiting = Waiting { key: key.clone(), tell };
        if is_expected.swap(false, Ordering::Relaxed) {
            batch.arrive(Some(waiting));
        } else {
            batch.launch(vec![waiting]);
        }
        let answer = told.await.unwrap_or_else(|_| {
            Err(LoadError::Panicked("the load of its batch was ended".into()))
        })?;
        batch.shared.loaded((key, &batch.labels), answer, prior.as_deref())
    }

    fn open<'a>(
        &'a self,
        (tier, above): (&'a Arc<dyn Tier>, usize),
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.0.reads.open((tier, above), key)
    }

    fn reads_together(&self) -> bool {
        self.0.reads.is_waited_for()
    }

    fn memory_ttl(&self) -> Option<Duration> {
        self.0.batch.shared.memory_ttl
    }

    fn tier_errors(&self) -> TierErrors {
        self.0.batch.shared.tier_errors
    }

    fn revive(&self, head: Bytes) -> Option<Head> {
        self.0.batch.shared.revived(&self.0.key, head)
    }

    fn written(&self, head: &Head) -> Option<Bytes> {
        self.0.batch.shared.written(head)
    }
}

impl<V: Send + Sync + 'static> Part<V> {
    fn will_not_come(&self) {
        self.reads.leaves();
        if self.is_expected.swap(false, Ordering::Relaxed) {
            self.batch.arrive(None);
        }
    }
}

impl<V: Send + Sync + 'static> Drop for Part<V> {
    fn drop(&mut self) {
        self.will_not_come();
    }
}

impl<V: Send + Sync + 'static> Batch<V> {
    /// One of those that are expected has come to its load, or will not come.
    fn arrive(self: &Arc<Self>, waiting: Option<Waiting<V>>) {
        let mut boarding = self.boarding.lock();
        boarding.expected -= 1;
        boarding.come.extend(waiting);
        self.launch_if_all_have_come(boarding);
    }

    /// All who lead have said so.
    fn close(self: &Arc<Self>) {
        let mut boarding = self.boarding.lock();
        boarding.closed = true;
        self.launch_if_all_have_come(boarding);
        self.reading.close();
    }

    fn launch_if_all_have_come(
        self: &Arc<Self>,
        mut boarding: parking_lot::MutexGuard<'_, Boarding<V>>,
    ) {
        if boarding.closed && boarding.expected == 0 {
            let come = std::mem::take(&mut boarding.come);
            drop(boarding);
            if !come.is_empty() {
                self.launch(come);
            }
        }
    }

    /// Loads these keys, in a task that belongs to no caller.
    fn launch(self: &Arc<Self>, parts: Vec<Waiting<V>>) {
        // Parts are dropped, too, where a runtime ends: then nobody waits for them any more.
        let Ok(runtime) = Handle::try_current() else { return };
        let batch = self.clone();
        runtime.spawn(async move {
            let loads: Vec<LoadId> =
                parts.iter().map(|part| batch.shared.load_id(&part.key)).collect();
            let keys = parts.iter().map(|part| String::from(&*part.key)).collect();
            // A loader may panic before it has made its future, too.
            let loading = async {
                match &batch.loader {
                    Some(loader) => loader(keys).await,
                    None => Err(LoadError::NotCached),
                }
            };
            let loading = batch.shared.run_load(loads.into(), loading);
            let loaded = AssertUnwindSafe(loading).catch_unwind().await;
            let loaded = loaded.unwrap_or_else(|panic| Err(LoadError::panicked(&*panic)));
            tell_all(parts, loaded);
        });
    }
}

fn tell_all<V>(parts: Vec<Waiting<V>>, loaded: Result<Rows<V>, LoadError>) {
    for Waiting { key, tell } in parts {
        let answer = match &loaded {
            Ok(rows) => Ok(rows.get(&*key).cloned().unwrap_or_else(Answer::absent)),
            Err(error) => Err(error.clone()),
        };
        // A flight that was ended needs no answer.
        let _ = tell.send(answer);
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// The values that are at hand, in the order of their keys.
    pub async fn get_many<K: AsRef<str>>(&self, keys: &[K]) -> Vec<Option<Arc<V>>> {
        self.call().get_many(keys).await
    }

    /// The values, in the order of their keys. All that are missing are loaded by one call of the
    /// loader, except for those that somebody else loads already: they are waited for. Nothing
    /// stands in the place of a key for which the loader has found nothing; that is remembered.
    /// Rows of keys that it was not asked for are let go of, and of several for one key the last
    /// one counts. A row can be a value, an `Option` of one, or an [`Answer`] that chooses its own
    /// lifetime and tags.
    ///
    /// A [tier](crate::Builder::tiers) below memory is asked for up to 512 keys at once, and for
    /// more in as many exchanges side by side.
    ///
    /// The loader may be called again, for few keys, if a load of somebody else is given up.
    ///
    /// # Errors
    /// If any of the loads fails and nothing usable is at hand. What the others brought is stored.
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

    /// Stores many values; how many of them are kept. Of several for one key the last one counts.
    pub async fn set_many<K: AsRef<str>, T: Into<Arc<V>>>(
        &self,
        values: impl IntoIterator<Item = (K, T)>,
    ) -> usize {
        set_many(self.call(), values).await
    }
}

impl<V: Send + Sync + 'static> With<'_, V> {
    /// As [`Cache::get_many`].
    pub async fn get_many<K: AsRef<str>>(&self, keys: &[K]) -> Vec<Option<Arc<V>>> {
        self.call().get_many(keys).await
    }

    /// As [`Cache::get_many_or_load`].
    ///
    /// # Errors
    /// As there.
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

    /// As [`Cache::set_many`], with the lifetime and the tags of these options.
    pub async fn set_many<K: AsRef<str>, T: Into<Arc<V>>>(
        &self,
        values: impl IntoIterator<Item = (K, T)>,
    ) -> usize {
        set_many(self.call(), values).await
    }
}

async fn set_many<V: Send + Sync + 'static, K: AsRef<str>, T: Into<Arc<V>>>(
    call: Call<'_, V>,
    values: impl IntoIterator<Item = (K, T)>,
) -> usize {
    let setting = stream::iter(values).map(|(key, value)| {
        let value = value.into();
        async move { usize::from(call.set(key.as_ref(), value).await) }
    });
    setting.buffered(SETS_AT_ONCE).fold(0, async |kept, one| kept + one).await
}

/// A loader of many, as it is kept.
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
    /// What is at hand of each of these keys, in their order.
    async fn get_many<K: AsRef<str>>(self, keys: &[K]) -> Vec<Found<V>> {
        let batch = Batch::new(self, None);
        let look = |key: &str| self.look(key).or_else(|wanting| self.found_unfresh(key, wanting));
        let below = |key, wanting, part| self.look_below((key, wanting), part);
        let found = batch.each((keys, look), below).await;
        found.into_iter().map(Option::flatten).collect()
    }

    /// What is known of each of these keys, in their order.
    async fn get_many_or_load<K: AsRef<str>>(
        self,
        keys: &[K],
        loader: Box<Loader<V>>,
    ) -> Result<Vec<Found<V>>, Error> {
        let look = |key: &str| self.look(key).map(Ok);
        let found = if self.demand.only_if_cached {
            let fetch = |key, wanting, part| self.fetch_cached((key, wanting), part);
            Batch::new(self, None).each((keys, look), fetch).await
        } else {
            let fetch = |key, wanting, part| self.fetch((key, wanting), part);
            Batch::new(self, Some(loader)).each((keys, look), fetch).await
        };
        found.into_iter().map(|one| one.unwrap_or(Ok(None))).collect()
    }
}

impl<V: Send + Sync + 'static> Batch<V> {
    fn new(call: Call<'_, V>, loader: Option<Box<Loader<V>>>) -> Arc<Self> {
        Arc::new(Self {
            shared: call.shared.clone(),
            labels: call.labels.cloned().unwrap_or_default(),
            loader,
            boarding: Mutex::new(Boarding { expected: 0, come: Vec::new(), closed: false }),
            reading: BatchedReads::new(),
        })
    }

    /// Looks for each of these keys, and lets what is wanting board before anybody waits.
    async fn each<'a, K: AsRef<str>, T, F: Future<Output = T>>(
        self: &Arc<Self>,
        (keys, look): (&'a [K], impl Fn(&str) -> Result<T, Wanting>),
        fetch: impl Fn(&'a str, Wanting, PartLoad<V>) -> F,
    ) -> Vec<Option<T>> {
        let mut found: Vec<Option<T>> = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (place, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            match look(key) {
                Ok(at_hand) => found.push(Some(at_hand)),
                Err(wanting) => {
                    found.push(None);
                    missing.push((place, Box::pin(fetch(key, wanting, self.part(key)))));
                }
            }
        }
        let waiting = poll_all_once(missing, &mut found).await;
        self.close();
        let (places, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        for (place, fetched) in places.into_iter().zip(join_all(waiting).await) {
            found[place] = Some(fetched);
        }
        found
    }

    fn part(self: &Arc<Self>, key: &str) -> PartLoad<V> {
        let (batch, key) = (self.clone(), key.into());
        let reads = Reader::new(&self.reading);
        PartLoad(Arc::new(Part { batch, key, is_expected: AtomicBool::new(false), reads }))
    }
}

/// Lets each of these go as far as it can without waiting, which is beyond boarding, and gives
/// back those that wait. By hand: what polls many futures at once may leave some for later.
async fn poll_all_once<T, F: Future<Output = T>>(
    mut all: Vec<(usize, Pin<Box<F>>)>,
    found: &mut [Option<T>],
) -> Vec<(usize, Pin<Box<F>>)> {
    poll_fn(|cx| {
        all.retain_mut(|(place, fetching)| match fetching.as_mut().poll(cx) {
            Poll::Ready(fetched) => {
                found[*place] = Some(fetched);
                false
            }
            Poll::Pending => true,
        });
        Poll::Ready(())
    })
    .await;
    all
}

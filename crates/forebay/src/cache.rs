//! The cache: its handles, and what they can do.

use std::convert::identity;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Demand, Purge, Reach};
use forebay_engine::BusStatus;
use futures_util::FutureExt;
use tokio::time::interval;

use crate::answer::{Answer, Prior};
use crate::builder::Builder;
use crate::call::Call;
use crate::error::Error;
use crate::explain::Explanation;
use crate::get_future::GetFuture;
use crate::load::StoreOptions;
use crate::options::Options;
use crate::shared::Shared;
use crate::stats::{Stats, TierStats};

/// How often it is asked whether anything is under way, which nobody tells: a stop is not held up
/// by much more than this.
const LOOK_GAP: Duration = Duration::from_millis(5);

/// A typed cache. Clones are handles of the same cache, and cheap.
///
/// Loads run in tasks of their own, on the runtime of tokio that the call was made on: a call that
/// is dropped loses no load, and the values it was waiting for are stored when they come. If that
/// runtime is shut down meanwhile, those who wait on another one are told so, and the next call
/// loads anew. Outside of any runtime there is what is in memory, and [`Error::NoRuntime`] for what
/// is not; what is stored or removed there reaches memory, and with tiers below it is a panic.
///
/// When the last handle is dropped the values are let go of, as soon as the loads have ended that
/// are under way; what was on its way to tiers still arrives. Connections are closed, and a
/// directory is let go of, when the cache and the handles of its tiers are gone.
pub struct Cache<V> {
    pub(crate) shared: Arc<Shared<V>>,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Begins to build a cache. The name tells it from others, in messages and in tiers that are
    /// shared.
    pub fn builder(name: impl Into<String>) -> Builder<V> {
        Builder::new(name.into())
    }

    /// The name that it was built with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    #[inline]
    pub(crate) fn call(&self) -> Call<'_, V> {
        let shared = &self.shared;
        let hard_timeout = shared.hard_timeout;
        Call { shared, demand: &shared.demand, labels: None, hard_timeout }
    }

    /// The same cache, for calls that want something differently.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use forebay::{Cache, Memory, Options};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cache: Cache<u32> = Cache::builder("n").memory(Memory::entries(9)).build()?;
    /// let fresh = Options::new().force_refresh();
    /// let seven = cache.with(fresh).get_or_load("seven", || async { Ok::<u32, &str>(7) }).await?;
    /// # assert_eq!(*seven, 7);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with(&self, options: Options) -> With<'_, V> {
        let demand = options.demand(&self.shared.demand);
        let hard_timeout = options.hard_timeout.or(self.shared.hard_timeout);
        let Options { overrides, tags, .. } = options;
        let labels = Arc::new(StoreOptions { overrides, tags });
        With { cache: self, demand, labels, hard_timeout }
    }

    /// The value that is at hand, in memory or in a tier below it, if it may be used. Nothing is
    /// loaded, and nothing refreshed. Outside of a runtime of tokio memory alone is asked.
    #[inline]
    pub fn get(&self, key: impl AsRef<str>) -> impl Future<Output = Option<Arc<V>>> {
        let miss = |key| self.call().get(key);
        GetFuture::new(self, key, (identity, miss))
    }

    /// The value, loaded if it is not at hand. All who ask for one key at the same time share one
    /// load.
    ///
    /// The loader brings a `V`, an `Arc<V>`, an `Option<V>`, or an [`Answer`]; and fails by
    /// whatever an error can be made of: a type of its own, `anyhow::Error`, a
    /// `Box<dyn Error + Send + Sync>`, a `String`.
    ///
    /// # Errors
    /// If nothing usable is at hand and the load fails, or if it is known that there is nothing
    /// ([`Error::Absent`]).
    #[inline]
    pub fn get_or_load<T, F, Fut, E>(
        &self,
        key: impl AsRef<str>,
        load: F,
    ) -> impl Future<Output = Result<Arc<V>, Error>>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        // Not `ok_or`: the error that it is given would be made, and dropped, with each hit.
        let present = |found| match found {
            Some(value) => Ok(value),
            None => Err(Error::Absent),
        };
        let miss = move |key| {
            let obtaining = self.call().obtain(key, move |_: Prior<V>| load());
            obtaining.map(move |found| present(found?)).boxed()
        };
        GetFuture::new(self, key, (present, miss))
    }

    /// The value, or nothing where it is known that there is nothing; loaded if neither is at
    /// hand. The loader is told what is stored already, and chooses lifetime, tags and more for
    /// what it [answers](Answer).
    ///
    /// # Errors
    /// If nothing usable is at hand and the load fails.
    #[inline]
    pub fn get_or_load_with<A, F, Fut, E>(
        &self,
        key: impl AsRef<str>,
        load: F,
    ) -> impl Future<Output = Result<Option<Arc<V>>, Error>>
    where
        F: FnOnce(Prior<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let miss = |key| self.call().obtain(key, load);
        GetFuture::new(self, key, (Ok, miss))
    }

    /// Stores a value. A load that began earlier does not replace it, however late it ends.
    /// `false` if it is not kept: it is heavier than a value may be, was removed meanwhile, or its
    /// codec cannot write it.
    pub async fn set(&self, key: impl AsRef<str>, value: impl Into<Arc<V>>) -> bool {
        self.call().set(key.as_ref(), value.into()).await
    }

    /// Stores one of several versions of a value, unless one that is as new is stored or was
    /// [removed](Self::remove_versioned): then it stores nothing, and says `false`. In whatever
    /// order writers and loads end, here or in other processes, the newest version stays.
    ///
    /// A version is a number that grows with each change: the version of a row, its time of change,
    /// a position in a log. Loads take part if their answers name [theirs](Answer::version); one
    /// that names none counts as newer if it began after this. Versions are compared with what is
    /// stored, and for the time of a load ([`Builder::load_timeout`](crate::Builder::load_timeout))
    /// with all that were stored or removed before. Where processes share a Redis, it compares.
    ///
    /// ```
    /// # use forebay::{Cache, Memory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cache: Cache<&str> = Cache::builder("n").memory(Memory::entries(9)).build()?;
    /// assert!(cache.set_versioned("user:42", "Ada Lovelace", 8).await);
    /// // Written before, and told of later.
    /// assert!(!cache.set_versioned("user:42", "Ada Byron", 7).await);
    /// assert_eq!(cache.get("user:42").await.as_deref(), Some(&"Ada Lovelace"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_versioned(
        &self,
        key: impl AsRef<str>,
        value: impl Into<Arc<V>>,
        version: u64,
    ) -> bool {
        self.call().set_versioned(key.as_ref(), value.into(), version).await
    }

    /// Removes a value as of a version: that of the change that has removed it. No older version
    /// is stored for the time of a load, whoever brings it. `false` if one that is as new was
    /// stored or removed, and then nothing is removed.
    pub async fn remove_versioned(&self, key: impl AsRef<str>, version: u64) -> bool {
        let (key, newer) = (self.shared.owned_key(key.as_ref()), self.shared.newer(version));
        self.shared.engine.remove_version(key.borrowed(), newer).await
    }

    /// Removes a value. A load that is under way answers those who wait for it, and is not kept.
    /// `false` if nothing was stored.
    pub async fn remove(&self, key: impl AsRef<str>) -> bool {
        let key = Purge::Key(self.shared.owned_key(key.as_ref()));
        self.shared.engine.purge(&key, Reach::Hard).await.found
    }

    /// Makes a value stale: it is used only where stale ones are, and refreshed before anything
    /// else. `false` if nothing was stored.
    pub async fn expire(&self, key: impl AsRef<str>) -> bool {
        let key = Purge::Key(self.shared.owned_key(key.as_ref()));
        self.shared.engine.purge(&key, Reach::Soft).await.found
    }

    /// Removes everything that carries a tag, at the same cost however much that is.
    pub async fn invalidate_tag(&self, tag: impl AsRef<str>) {
        self.shared.engine.purge(&Purge::Tag(tag.as_ref().into()), Reach::Hard).await;
    }

    /// Removes everything that carries any of these tags.
    pub async fn invalidate_tags<T: AsRef<str>>(&self, tags: impl IntoIterator<Item = T>) {
        for tag in tags {
            self.invalidate_tag(tag).await;
        }
    }

    /// Makes everything stale that carries a tag.
    pub async fn expire_tag(&self, tag: impl AsRef<str>) {
        self.shared.engine.purge(&Purge::Tag(tag.as_ref().into()), Reach::Soft).await;
    }

    /// Removes everything.
    pub async fn invalidate_all(&self) {
        // Whoever shares a tier has other caches there, too.
        let all = Purge::Site(self.shared.site().into());
        self.shared.engine.purge(&all, Reach::Hard).await;
    }

    /// Whether other processes that share a tier are heard, and how many purges they still have to
    /// be told of; nothing if there is no [`cluster`](crate::Builder::cluster). What could not be
    /// told is tried again, in its order, until it can.
    #[must_use]
    pub fn bus_status(&self) -> Option<BusStatus> {
        self.shared.engine.bus_status()
    }

    /// Waits until nothing is under way any more: neither a load, nor what one has brought on its
    /// way into tiers below memory. For a process that is about to end, once it answers no more
    /// requests; a `Disk` is closed after this. A load may take as long as
    /// [`load_timeout`](crate::Builder::load_timeout), so put a time around it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use forebay::{Cache, Memory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cache: Cache<u32> = Cache::builder("n").memory(Memory::entries(9)).build()?;
    /// if tokio::time::timeout(Duration::from_secs(10), cache.flush()).await.is_err() {
    ///     eprintln!("{}: {} loads are left behind", cache.name(), cache.stats().loading);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) {
        let under_way = || {
            let traffic = self.shared.engine.traffic();
            traffic.flights + traffic.writes
        };
        let mut looks = interval(LOOK_GAP);
        while under_way() > 0 {
            looks.tick().await;
        }
        self.shared.engine.settle().await;
    }

    /// What the cache knows of a key, and what a call for it would do now. Nothing is loaded, and
    /// nothing counted.
    #[must_use]
    pub fn explain(&self, key: impl AsRef<str>) -> Explanation {
        Explanation::of(self.call(), key.as_ref())
    }

    /// What each of the tiers below memory has done, the uppermost first.
    #[must_use]
    pub fn tiers(&self) -> Vec<TierStats> {
        let conditions = self.shared.engine.lower_tiers().map(|(_, condition)| condition);
        self.shared.counts.tiers.read(conditions)
    }

    /// What the cache has done, and what it holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let engine = &self.shared.engine;
        let (memory, traffic) = (engine.memory(), engine.traffic());
        Stats {
            evictions: memory.evictions(),
            entries: memory.entries(),
            weight: memory.bytes(),
            loading: traffic.flights,
            writing: traffic.writes,
            ..self.shared.counts.stats()
        }
    }
}

/// A cache for calls that want something differently; see [`Cache::with`].
#[derive(Debug)]
pub struct With<'a, V> {
    cache: &'a Cache<V>,
    demand: Demand,
    labels: Arc<StoreOptions>,
    hard_timeout: Option<Duration>,
}

impl<V: Send + Sync + 'static> With<'_, V> {
    pub(crate) fn call(&self) -> Call<'_, V> {
        Call {
            shared: &self.cache.shared,
            demand: &self.demand,
            labels: Some(&self.labels),
            hard_timeout: self.hard_timeout,
        }
    }

    /// As [`Cache::get`].
    pub async fn get(&self, key: impl AsRef<str>) -> Option<Arc<V>> {
        let key = key.as_ref();
        match self.cache.shared.get_fresh(key, &self.demand) {
            Some(found) => found,
            None => self.call().get(key.to_owned()).await,
        }
    }

    /// As [`Cache::get_or_load`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_or_load<T, F, Fut, E>(
        &self,
        key: impl AsRef<str>,
        load: F,
    ) -> Result<Arc<V>, Error>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let found = self.get_or_load_with(key, move |_: Prior<V>| load()).await?;
        found.ok_or(Error::Absent)
    }

    /// As [`Cache::get_or_load_with`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_or_load_with<A, F, Fut, E>(
        &self,
        key: impl AsRef<str>,
        load: F,
    ) -> Result<Option<Arc<V>>, Error>
    where
        F: FnOnce(Prior<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: Into<Answer<V>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let key = key.as_ref();
        match self.cache.shared.get_fresh(key, &self.demand) {
            Some(found) => Ok(found),
            None => self.call().obtain(key.to_owned(), load).await,
        }
    }

    /// As [`Cache::set`], with the lifetime and the tags of these options.
    pub async fn set(&self, key: impl AsRef<str>, value: impl Into<Arc<V>>) -> bool {
        self.call().set(key.as_ref(), value.into()).await
    }

    /// As [`Cache::set_versioned`], with the lifetime and the tags of these options.
    pub async fn set_versioned(
        &self,
        key: impl AsRef<str>,
        value: impl Into<Arc<V>>,
        version: u64,
    ) -> bool {
        self.call().set_versioned(key.as_ref(), value.into(), version).await
    }

    /// As [`Cache::explain`], for a call with these options.
    #[must_use]
    pub fn explain(&self, key: impl AsRef<str>) -> Explanation {
        Explanation::of(self.call(), key.as_ref())
    }
}

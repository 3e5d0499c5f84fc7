//! The handles of a cache, and their operations.
//!
//! This folder has all calls for one key. It uses `codec`, `lifetimes`, `tiers`, `answer`,
//! `options`, `stats` and `error`; it never sees batches.

pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod explain;
pub(crate) mod get_future;
pub(crate) mod load;
pub(crate) mod load_cycles;
pub(crate) mod shared;

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
use crate::cache::builder::Builder;
use crate::cache::call::Call;
use crate::cache::explain::Explanation;
use crate::cache::get_future::GetFuture;
use crate::cache::load::{StoreOptions, loader};
use crate::cache::shared::Shared;
use crate::error::Error;
use crate::options::Options;
use crate::stats::{Stats, TierStats};

/// Interval at which [`Cache::flush`] polls for unfinished work: the longest unneeded delay of a
/// shutdown.
const FLUSH_POLL: Duration = Duration::from_millis(5);

/// A handle of a typed cache. A clone is another handle of the same cache, and cheap.
///
/// Each load runs in a task of its own, on the tokio runtime of the call that started it. Dropping
/// the call does not cancel the load, and its value is stored. If the runtime shuts down first,
/// calls that wait on other runtimes load again themselves, or fail with [`Error::Panicked`].
/// Outside of a runtime, calls return values in memory, and otherwise [`Error::NoRuntime`] or, if
/// they only look up, `None`. Storing or removing there works for a cache of memory alone, and
/// panics if the cache has lower tiers.
///
/// When the last handle is dropped, the values are freed as soon as the loads in flight have ended.
/// Pending writes to lower tiers complete. Connections and directories are closed when the cache
/// and all handles of its tiers are dropped.
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
    /// Returns the builder of a new cache. The name distinguishes the cache from other caches that
    /// use the same lower tier; there, caches of one name share their values. A cache with lower
    /// tiers needs a name that is not empty.
    pub fn builder(name: impl Into<String>) -> Builder<V> {
        Builder::new(name.into())
    }

    /// Returns the name that was given to [`builder`](Self::builder).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    #[inline]
    pub(crate) fn call(&self) -> Call<'_, V> {
        let shared = &self.shared;
        let hard_timeout = shared.hard_timeout;
        Call { shared, demand: &shared.demand, store_options: None, hard_timeout }
    }

    /// Returns a view of this cache whose calls use other options.
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
        let store_options = Arc::new(StoreOptions { overrides, tags });
        With { cache: self, demand, store_options, hard_timeout }
    }

    /// Returns the stored value, from memory or a lower tier, if it is fresh or stale within
    /// [`stale_while_revalidate`](crate::Builder::stale_while_revalidate). Otherwise returns
    /// `None`, also if the key is known to have no value. Loads and refreshes nothing. Outside of a
    /// tokio runtime it reads memory only.
    #[inline]
    pub fn get(&self, key: impl AsRef<str>) -> impl Future<Output = Option<Arc<V>>> {
        let miss = |key| self.call().get(key);
        GetFuture::new(self, key, identity, miss)
    }

    /// Returns the stored value, from memory or a lower tier, or loads it. Simultaneous calls for
    /// one key share one load.
    ///
    /// The loader returns a `V`, an `Arc<V>`, an `Option<V>` or an [`Answer`]. Its error is any
    /// type that converts to `Box<dyn Error + Send + Sync>`, such as a type of yours,
    /// `anyhow::Error` or a `String`.
    ///
    /// # Errors
    /// [`Error::Absent`] if the key is known to have no value. Any other [`Error`] if the load fails
    /// or does not start, and no stored value may be served instead.
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
        // Not `ok_or`: it would create and drop an error with each hit.
        let present = |found| match found {
            Some(value) => Ok(value),
            None => Err(Error::Absent),
        };
        let miss = move |key| {
            let calling = self.call().get_or_load(key, loader(move |_| load()));
            calling.map(move |found| present(found?)).boxed()
        };
        GetFuture::new(self, key, present, miss)
    }

    /// Returns the stored value, from memory or a lower tier, or loads it; `None` if the key is
    /// known to have no value. The loader reads the previous entry ([`Prior`]), and sets lifetime,
    /// tags and more by its [`Answer`].
    ///
    /// # Errors
    /// An [`Error`] if the load fails or does not start, and no stored value may be served instead.
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
        let miss = |key| self.call().get_or_load(key, loader(load));
        GetFuture::new(self, key, Ok, miss)
    }

    /// Stores a value with the lifetime of the cache and without tags, in memory and in all lower
    /// tiers. A load that started earlier does not replace it. Waits for the lower tiers, and
    /// ignores their failures.
    ///
    /// Returns `false` if the value is not stored. Either it cannot be encoded, or another call
    /// removed or replaced it while this call ran. Or it exceeds
    /// [`value_max`](crate::Builder::value_max), and there is no lower tier.
    pub async fn set(&self, key: impl AsRef<str>, value: impl Into<Arc<V>>) -> bool {
        self.call().set(key.as_ref(), value.into()).await
    }

    /// Stores a value unless its version is not newer than the stored or
    /// [removed](Self::remove_versioned) one. Returns `false` if it stores nothing. So the newest
    /// version stays, in whatever order writers and loads end, in this process or others.
    ///
    /// A version is a number that grows with each change: a row version, a time of change, a log
    /// position. Loads take part if their answers name a [version](Answer::version); a load without
    /// one counts as newer if it started after this call. A version is compared with the stored
    /// entry, and for the duration of [`load_timeout`](crate::Builder::load_timeout) with all
    /// versions that were stored or removed. Processes that share a Redis compare there.
    ///
    /// ```
    /// # use forebay::{Cache, Memory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cache: Cache<&str> = Cache::builder("n").memory(Memory::entries(9)).build()?;
    /// assert!(cache.set_versioned("user:42", "Ada Lovelace", 8).await);
    /// // An older version that arrives late is not stored.
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

    /// Removes the value of a key if `version`, the version of the change that deleted it, is newer
    /// than the stored or removed one. A value without a version is always removed. No older
    /// version is stored for the duration of [`load_timeout`](crate::Builder::load_timeout).
    /// Returns `false`, and does nothing, if a version that is as new is known. Returns `true`
    /// otherwise, also if nothing was stored.
    pub async fn remove_versioned(&self, key: impl AsRef<str>, version: u64) -> bool {
        let (key, newer) = (self.shared.owned_key(key.as_ref()), self.shared.newer(version));
        self.shared.engine.remove_version(key.borrowed(), newer).await
    }

    /// Removes the value of a key from all tiers. A load in progress answers the calls that wait
    /// for it, and its result is not stored. Returns `true` if an entry was stored, also a stale
    /// one or one that says that the key has no value. A removal that a lower tier fails to carry
    /// out is repeated before that tier is used for the key again.
    pub async fn remove(&self, key: impl AsRef<str>) -> bool {
        let key = Purge::Key(self.shared.owned_key(key.as_ref()));
        self.shared.engine.purge(&key, Reach::Hard).await.found
    }

    /// Makes the value of a key stale (soft purge): in memory, on a `Disk`, and in a Redis that
    /// shares purges. If another lower tier has it, it is removed from the lower tiers. It is then
    /// served only while [`stale_while_revalidate`](crate::Builder::stale_while_revalidate) or
    /// [`stale_if_error`](crate::Builder::stale_if_error) permits it, and otherwise loaded again.
    /// Returns `false` if nothing was stored.
    pub async fn expire(&self, key: impl AsRef<str>) -> bool {
        let key = Purge::Key(self.shared.owned_key(key.as_ref()));
        self.shared.engine.purge(&key, Reach::Soft).await.found
    }

    /// Removes all entries of this cache that have the tag (hard purge). The cost does not depend
    /// on the number of entries. Tags belong to no single cache. Entries of other caches with this
    /// tag are removed as well: from a `Disk` that both use, and everywhere if both share purges in
    /// one namespace of a Redis.
    pub async fn invalidate_tag(&self, tag: impl AsRef<str>) {
        self.shared.engine.purge(&Purge::Tag(tag.as_ref().into()), Reach::Hard).await;
    }

    /// Removes all entries that have at least one of the tags, of this cache and of caches that
    /// share a lower tier with it; see [`invalidate_tag`](Self::invalidate_tag).
    pub async fn invalidate_tags<T: AsRef<str>>(&self, tags: impl IntoIterator<Item = T>) {
        for tag in tags {
            self.invalidate_tag(tag).await;
        }
    }

    /// Makes all entries of this cache with a tag stale (soft purge): they are then served only
    /// while [`stale_while_revalidate`](crate::Builder::stale_while_revalidate) or
    /// [`stale_if_error`](crate::Builder::stale_if_error) permits it, and otherwise loaded again.
    /// Entries of other caches that share a lower tier are affected as by
    /// [`invalidate_tag`](Self::invalidate_tag).
    pub async fn expire_tag(&self, tag: impl AsRef<str>) {
        self.shared.engine.purge(&Purge::Tag(tag.as_ref().into()), Reach::Soft).await;
    }

    /// Removes all entries of this cache, also from its lower tiers. Entries of caches of another
    /// name are not affected.
    pub async fn invalidate_all(&self) {
        // A shared tier also holds entries of other caches, so the purge names this cache.
        let all = Purge::Site(self.shared.site().into());
        self.shared.engine.purge(&all, Reach::Hard).await;
    }

    /// Returns the state of the bus, which carries invalidations between processes. It says whether
    /// the bus is connected, and how many invalidations of this process are not published yet
    /// (publishing them is retried). `None` if the cache joins no other process, by
    /// `Builder::redis` or [`Builder::cluster`](crate::Builder::cluster).
    #[must_use]
    pub fn bus_status(&self) -> Option<BusStatus> {
        self.shared.engine.bus_status()
    }

    /// Waits until no load and no write to a lower tier of this cache is in flight. Call it before
    /// a process ends, when it takes no more requests, and close a `Disk` after it. A load may take
    /// up to [`load_timeout`](crate::Builder::load_timeout), so set a timeout around this call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use forebay::{Cache, Memory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cache: Cache<u32> = Cache::builder("n").memory(Memory::entries(9)).build()?;
    /// if tokio::time::timeout(Duration::from_secs(10), cache.flush()).await.is_err() {
    ///     eprintln!("{}: {} loads did not finish", cache.name(), cache.stats().loading);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) {
        let in_flight = || {
            let traffic = self.shared.engine.traffic();
            traffic.flights + traffic.writes
        };
        let mut poll = interval(FLUSH_POLL);
        while in_flight() > 0 {
            poll.tick().await;
        }
        self.shared.engine.settle().await;
    }

    /// Returns the state of a key in memory and the predicted result of a
    /// [`get_or_load`](Self::get_or_load) for it. Reads no lower tier, loads nothing and changes no
    /// counters.
    #[must_use]
    pub fn explain(&self, key: impl AsRef<str>) -> Explanation {
        Explanation::of(self.call(), key.as_ref())
    }

    /// Returns the counters of each lower tier, in the order in which the tiers are searched.
    #[must_use]
    pub fn tiers(&self) -> Vec<TierStats> {
        let conditions = self.shared.engine.lower_tiers().map(|(_, condition)| condition);
        self.shared.counts.tiers.read(conditions)
    }

    /// Returns the counters and the current size of the cache.
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

/// A view of a cache whose calls use other options than the cache; from [`Cache::with`].
#[derive(Debug)]
pub struct With<'a, V> {
    cache: &'a Cache<V>,
    demand: Demand,
    store_options: Arc<StoreOptions>,
    hard_timeout: Option<Duration>,
}

impl<V: Send + Sync + 'static> With<'_, V> {
    pub(crate) fn call(&self) -> Call<'_, V> {
        Call {
            shared: &self.cache.shared,
            demand: &self.demand,
            store_options: Some(&self.store_options),
            hard_timeout: self.hard_timeout,
        }
    }

    /// Returns the stored value with these options, or `None` if there is none that is fresh or may
    /// be served stale ([`max_stale`](Options::max_stale),
    /// [`stale_while_revalidate`](crate::Builder::stale_while_revalidate)). Loads and refreshes
    /// nothing; see [`Cache::get`].
    pub async fn get(&self, key: impl AsRef<str>) -> Option<Arc<V>> {
        let key = key.as_ref();
        match self.cache.shared.get_fresh(key, &self.demand) {
            Some(found) => found,
            None => self.call().get(key.to_owned()).await,
        }
    }

    /// Returns the stored value, or loads it, with these options; see [`Cache::get_or_load`].
    ///
    /// # Errors
    /// The errors of [`Cache::get_or_load`], and [`Error::NotCached`] with
    /// [`only_if_cached`](Options::only_if_cached).
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

    /// Returns the stored value, or loads it, with these options; see
    /// [`Cache::get_or_load_with`].
    ///
    /// # Errors
    /// The errors of [`Cache::get_or_load_with`], and [`Error::NotCached`] with
    /// [`only_if_cached`](Options::only_if_cached).
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
            None => self.call().get_or_load(key.to_owned(), loader(load)).await,
        }
    }

    /// Stores a value with the lifetime and the tags of these options. Returns `false` if it is not
    /// stored, for the reasons that [`Cache::set`] lists.
    pub async fn set(&self, key: impl AsRef<str>, value: impl Into<Arc<V>>) -> bool {
        self.call().set(key.as_ref(), value.into()).await
    }

    /// Stores a version of a value with the lifetime and the tags of these options, unless its
    /// version is not newer than the stored or removed one. Returns `false` if it stores nothing;
    /// see [`Cache::set_versioned`].
    pub async fn set_versioned(
        &self,
        key: impl AsRef<str>,
        value: impl Into<Arc<V>>,
        version: u64,
    ) -> bool {
        self.call().set_versioned(key.as_ref(), value.into(), version).await
    }

    /// Returns the state of a key in memory and the predicted result of a
    /// [`get_or_load`](Self::get_or_load) with these options; see [`Cache::explain`].
    #[must_use]
    pub fn explain(&self, key: impl AsRef<str>) -> Explanation {
        Explanation::of(self.call(), key.as_ref())
    }
}

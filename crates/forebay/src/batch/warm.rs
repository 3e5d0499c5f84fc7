//! Cache warming: loading keys before they are requested.

use std::cmp::Reverse;
use std::fmt;
use std::future::Future;

use futures_util::{StreamExt, stream};

use crate::answer::Answer;
use crate::cache::call::Call;
use crate::cache::load::loader;
use crate::cache::{Cache, With};
use crate::options::Options;

/// Default number of concurrent loads: warming ends soon, and most of the origin's capacity is left
/// to callers that wait.
const CONCURRENCY: usize = 8;

type Progress = dyn Fn(Warmed) + Send + Sync;

type Priority = dyn Fn(&str) -> i64 + Send + Sync;

/// Options of [`Cache::warm`], which loads keys before they are requested.
#[must_use]
pub struct Warm {
    concurrency: usize,
    progress: Option<Box<Progress>>,
    priority: Option<Box<Priority>>,
}

impl Default for Warm {
    fn default() -> Self {
        Self { concurrency: CONCURRENCY, progress: None, priority: None }
    }
}

impl Warm {
    /// Creates options with eight concurrent loads and no progress reports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of concurrent loads; zero counts as one. Default: eight.
    pub fn concurrency(mut self, loads: usize) -> Self {
        self.concurrency = loads.max(1);
        self
    }

    /// Loads keys in descending order of `priority`; keys of equal priority keep their order. All
    /// keys are collected in memory first.
    pub fn priority(mut self, priority: impl Fn(&str) -> i64 + Send + Sync + 'static) -> Self {
        self.priority = Some(Box::new(priority));
        self
    }

    /// Sets a function that is called after each finished key, with the counts so far. A panic in
    /// it ends the warming; loads in flight continue.
    pub fn progress(mut self, report: impl Fn(Warmed) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(report));
        self
    }
}

impl Warm {
    /// Returns the keys in the order of their loads.
    fn ordered<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> impl Iterator<Item = K> {
        let (mut ordered, mut rest) = (Vec::new(), Some(keys));
        if let Some(priority) = &self.priority {
            ordered.extend(rest.take().into_iter().flatten());
            ordered.sort_by_cached_key(|key| Reverse(priority(key.as_ref())));
        }
        ordered.into_iter().chain(rest.into_iter().flatten())
    }
}

impl fmt::Debug for Warm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warm").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}

/// Number of keys that [`Cache::warm`] has finished, so far or in total, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warmed {
    /// Number of finished keys, whatever their result.
    pub done: usize,
    /// Number of finished keys that were not loaded, because memory had a fresh value or knew that
    /// the key has none.
    pub already_cached: usize,
    /// Number of finished keys without a value after their load failed or was not started, and
    /// without a stale value in its place.
    pub failed: usize,
}

enum KeyResult {
    AlreadyCached,
    Loaded,
    Failed,
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Loads the keys that are not fresh in memory or a lower tier, with a bounded number of
    /// concurrent loads, in the given order or by [priority](Warm::priority). A failed load is
    /// counted and does not stop the others.
    ///
    /// Other calls for a key share its load. If this call is dropped, loads in flight continue and
    /// no further ones start.
    pub async fn warm<K, F, Fut, T, E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        warm: Warm,
        load: F,
    ) -> Warmed
    where
        K: AsRef<str>,
        F: Fn(String) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        self.with(Options::new()).warm(keys, warm, load).await
    }
}

impl<V: Send + Sync + 'static> With<'_, V> {
    /// Loads keys with these options, which set lifetimes and tags and may require younger values;
    /// see [`Cache::warm`].
    pub async fn warm<K, F, Fut, T, E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        warm: Warm,
        load: F,
    ) -> Warmed
    where
        K: AsRef<str>,
        F: Fn(String) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let warming = stream::iter(warm.ordered(keys)).map(|key| {
            let load = load.clone();
            async move { self.call().warm_one(key.as_ref(), load).await }
        });
        let mut all = std::pin::pin!(warming.buffer_unordered(warm.concurrency));
        let mut warmed = Warmed::default();
        while let Some(result) = all.next().await {
            warmed.done += 1;
            match result {
                KeyResult::AlreadyCached => warmed.already_cached += 1,
                KeyResult::Failed => warmed.failed += 1,
                KeyResult::Loaded => {}
            }
            warm.progress.iter().for_each(|report| report(warmed));
        }
        warmed
    }
}

impl<V: Send + Sync + 'static> Call<'_, V> {
    async fn warm_one<F, Fut, T, E>(self, key: &str, load: F) -> KeyResult
    where
        F: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let Err(miss) = self.lookup(key) else { return KeyResult::AlreadyCached };
        let name = key.to_owned();
        match self.load(key, miss, loader(move |_| load(name))).await {
            Ok(_) => KeyResult::Loaded,
            Err(_) => KeyResult::Failed,
        }
    }
}

//! Filling a cache before it is asked.

use std::cmp::Reverse;
use std::fmt;
use std::future::Future;

use futures_util::{StreamExt, stream};

use crate::answer::{Answer, Prior};
use crate::cache::{Cache, With};
use crate::call::Call;

/// How many loads warming begins at once unless told otherwise: it should be over soon, and leave
/// most of what the origin bears to those who wait.
const CONCURRENCY: usize = 8;

type Progress = dyn Fn(Warmed) + Send + Sync;

type Priority = dyn Fn(&str) -> i64 + Send + Sync;

/// How to warm a cache.
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
    /// Eight loads at once, in silence.
    pub fn new() -> Self {
        Self::default()
    }

    /// So many loads at once; at least one.
    pub fn concurrency(mut self, loads: usize) -> Self {
        self.concurrency = loads.max(1);
        self
    }

    /// Begins with the keys for which this is largest; of equals with those that were named first.
    /// All keys are held for it before the first is loaded.
    pub fn priority(mut self, of: impl Fn(&str) -> i64 + Send + Sync + 'static) -> Self {
        self.priority = Some(Box::new(of));
        self
    }

    /// Tells of each key that is done. If it panics, so does the warming; loads that are under way
    /// go on.
    pub fn progress(mut self, tell: impl Fn(Warmed) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }
}

impl Warm {
    /// Keys in the order in which they are loaded.
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

/// What has come of warming, so far or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warmed {
    /// Keys that are done.
    pub done: usize,
    /// Those of them that were at hand.
    pub at_hand: usize,
    /// Those of them whose load failed.
    pub failed: usize,
}

enum Came {
    AtHand,
    Loaded,
    Failed,
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// Loads what is not at hand, a few keys at a time and in their order, or by their
    /// [priority](Warm::priority): the most important ones come first. Loads that fail are counted,
    /// and the rest goes on.
    ///
    /// The loads are like all others: who asks for a key meanwhile shares its load. If the call is
    /// dropped, those that are under way go on, and no more are begun.
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
        self.call().warm(keys, warm, load).await
    }
}

impl<V: Send + Sync + 'static> With<'_, V> {
    /// As [`Cache::warm`], with the lifetime and the tags of these options; what these want to be
    /// younger is loaded anew.
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
        self.call().warm(keys, warm, load).await
    }
}

impl<V: Send + Sync + 'static> Call<'_, V> {
    async fn warm<K, F, Fut, T, E>(
        self,
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
            async move { self.warm_one(key.as_ref(), load).await }
        });
        let mut all = std::pin::pin!(warming.buffer_unordered(warm.concurrency));
        let mut warmed = Warmed::default();
        while let Some(came) = all.next().await {
            warmed.done += 1;
            match came {
                Came::AtHand => warmed.at_hand += 1,
                Came::Failed => warmed.failed += 1,
                Came::Loaded => {}
            }
            warm.progress.iter().for_each(|tell| tell(warmed));
        }
        warmed
    }

    async fn warm_one<F, Fut, T, E>(self, key: &str, load: F) -> Came
    where
        F: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let Err(wanting) = self.look(key) else { return Came::AtHand };
        let name = key.to_owned();
        match self.load((key, wanting), move |_: Prior<V>| load(name)).await {
            Ok(_) => Came::Loaded,
            Err(_) => Came::Failed,
        }
    }
}

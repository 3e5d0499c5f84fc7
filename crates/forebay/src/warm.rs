//! Filling a cache before it is asked.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::answer::{Answer, Prior};
use crate::cache::Cache;

/// How many loads warming begins at once unless told otherwise: it should be over soon, and leave
/// most of what the origin bears to those who wait.
const CONCURRENCY: usize = 8;

type Progress = dyn Fn(Warmed) + Send + Sync;

/// How to warm a cache.
#[must_use]
pub struct Warm {
    concurrency: usize,
    progress: Option<Box<Progress>>,
}

impl Default for Warm {
    fn default() -> Self {
        Self { concurrency: CONCURRENCY, progress: None }
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

    /// Tells of each key that is done.
    pub fn progress(mut self, tell: impl Fn(Warmed) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(tell));
        self
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
    /// Loads what is not at hand, a few keys at a time and in their order: the most important
    /// ones come first. Loads that fail are counted, and the rest goes on.
    ///
    /// The loads are like all others: who asks for a key meanwhile shares its load.
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
        T: Into<Arc<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let warming = stream::iter(keys).map(|key| {
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

    async fn warm_one<F, Fut, T, E>(&self, key: &str, load: F) -> Came
    where
        F: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Arc<V>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let Err(wanting) = self.call().look(key) else { return Came::AtHand };
        let name = key.to_owned();
        let load =
            move |_: Prior<V>| async { load(name).await.map(|value| Answer::shared(value.into())) };
        match self.call().load((key, wanting), load).await {
            Ok(_) => Came::Loaded,
            Err(_) => Came::Failed,
        }
    }
}

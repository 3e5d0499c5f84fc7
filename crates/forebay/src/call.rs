//! One call, from its key to its value.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, KeyRef, Meta, Why};
use forebay_engine::{Ask, Coalesce, Head, Load, LoadError, Look, Obtained, Via, Wanting};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::answer::{Answer, Prior};
use crate::error::Error;
use crate::lifetimes::EntryKind;
use crate::load::{ClosureLoad, LoadFacts, LookupOnly, PutLoad, StoreOptions};
use crate::load_cycles::{LoadCycle, Wait};
use crate::shared::{Shared, ask};
use crate::stats::count;

/// What a call returns: a value, or the knowledge that there is none.
pub(crate) type Found<V> = Option<Arc<V>>;

/// What one call wants, and of which cache.
pub(crate) struct Call<'a, V> {
    pub(crate) shared: &'a Arc<Shared<V>>,
    pub(crate) demand: &'a Demand,
    pub(crate) labels: Option<&'a Arc<StoreOptions>>,
    pub(crate) hard_timeout: Option<Duration>,
}

impl<V> Clone for Call<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Call<'_, V> {}

impl<'a, V: Send + Sync + 'static> Call<'a, V> {
    /// What is at hand, or what is wanting: a look for what a get_fresh has not found.
    pub(crate) fn look(self, key: &str) -> Result<Found<V>, Wanting> {
        let look = |key: KeyRef<'_>| self.shared.engine.look(&ask(key, self.demand));
        match self.shared.engine_key(key).joined(look) {
            Look::Served(obtained) => {
                self.shared.counts.hits.increment();
                if obtained.why.is_some() {
                    count(&self.shared.counts.stale);
                }
                Ok(obtained.entry.head.shared_view())
            }
            Look::Wanting(wanting) => Err(wanting),
        }
    }

    /// What is in memory or below it and may be used, though nobody can refresh it: for a call
    /// that a get_fresh did not help.
    #[cold]
    pub(crate) fn get(self, key: String) -> BoxFuture<'a, Found<V>> {
        async move { self.look_and_below(&key).await }.boxed()
    }

    async fn look_and_below(self, key: &str) -> Found<V> {
        match self.look(key) {
            Ok(found) => found,
            Err(wanting) => match self.found_unfresh(key, wanting) {
                Ok(found) => found,
                Err(wanting) => {
                    let load = LookupOnly { shared: self.shared.clone(), key: key.into() };
                    self.look_below((key, wanting), load).await
                }
            },
        }
    }

    /// What is at hand and may be used, though it is no plain hit; or what is wanting, and is to
    /// be looked for below.
    pub(crate) fn found_unfresh(self, key: &str, wanting: Wanting) -> Result<Found<V>, Wanting> {
        if self.shared.lifetimes.sliding.is_none() {
            return self.at_hand(wanting);
        }
        let demand = self.plain_demand();
        let call = Call { demand: &demand, ..self };
        call.slide(key).or_else(|wanting| call.at_hand(wanting))
    }

    fn at_hand(self, wanting: Wanting) -> Result<Found<V>, Wanting> {
        if let Some(found) = self.served(&wanting) {
            return Ok(found);
        }
        count(&self.shared.counts.misses);
        self.shared.counts.count_reason(wanting.why());
        // Without a codec there is no tier to look into.
        if self.shared.codec.is_some() { Err(wanting) } else { Ok(None) }
    }

    /// What will do for now, without a load behind it.
    fn served(self, wanting: &Wanting) -> Option<Found<V>> {
        let prior = wanting.prior().filter(|_| wanting.is_served())?;
        self.shared.counts.hits.increment();
        self.count_stale(Some(wanting.why()));
        Some(prior.head.shared_view())
    }

    /// Looks into all tiers, alone: those who would load do not wait for it.
    pub(crate) async fn look_below<L: Load>(
        self,
        (key, wanting): (&str, Wanting),
        load: L,
    ) -> Found<V> {
        let below = self.found_below((key, wanting), load).await.ok()?;
        below.entry.head.shared_view()
    }

    async fn found_below<L: Load>(
        self,
        (key, wanting): (&str, Wanting),
        load: L,
    ) -> Result<Obtained, Error> {
        let shared = self.shared;
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        // The load only looks: what the call wants nothing of does not happen.
        let demand = Demand { only_if_cached: false, ..self.plain_demand() };
        let name = shared.owned_key(key);
        let ask = Ask { coalesce: Coalesce::Nowhere, ..ask(name.borrowed(), &demand) };
        let below = shared.engine.fetch(&ask, wanting, load).await?;
        // No load has failed that something stale would stand in for.
        if below.via == Via::Fallback {
            return Err(Error::NotCached);
        }
        self.count_found_below(below.via);
        self.note_use(name.borrowed());
        Ok(below)
    }

    /// What was found below memory stands in memory by now, as an entry of its own, and was used.
    fn note_use(self, name: KeyRef<'_>) {
        let shared = self.shared;
        if shared.lifetimes.sliding.is_none() {
            return;
        }
        if let Look::Served(obtained) = shared.engine.look(&ask(name, &self.plain_demand())) {
            shared.extend(name, &obtained.entry);
        }
    }

    /// What memory or a tier below it has, for a call that wants nothing loaded. The load only
    /// looks.
    pub(crate) async fn fetch_cached<L: Load>(
        self,
        (key, wanting): (&str, Wanting),
        load: L,
    ) -> Result<Found<V>, Error> {
        let why = wanting.why();
        if wanting.is_served() || self.shared.codec.is_none() {
            return self.fetch((key, wanting), load).await;
        }
        match self.found_below((key, wanting), load).await {
            Ok(below) => {
                self.shared.counts.count_reason(why);
                count(&self.shared.counts.misses);
                Ok(below.entry.head.shared_view())
            }
            Err(error) => Err(self.failed((key, why), error)),
        }
    }

    /// What is at hand, or what the closure loads: for a call that a get_fresh did not help. In a
    /// box, so that the future of a call that it does help is small, and quickly made.
    #[cold]
    pub(crate) fn obtain<F, Fut, A, E>(
        self,
        key: String,
        run: F,
    ) -> BoxFuture<'a, Result<Found<V>, Error>>
    where
        F: FnOnce(Prior<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: Into<Answer<V>> + 'a,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'a,
    {
        let obtaining = async move {
            match self.look(&key) {
                Ok(found) => Ok(found),
                Err(wanting) => self.load((&key, wanting), run).await,
            }
        };
        obtaining.boxed()
    }

    pub(crate) async fn load<F, Fut, A, E>(
        self,
        (key, wanting): (&str, Wanting),
        run: F,
    ) -> Result<Found<V>, Error>
    where
        F: FnOnce(Prior<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: Into<Answer<V>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.demand.only_if_cached {
            let load = LookupOnly { shared: self.shared.clone(), key: key.into() };
            return self.fetch_cached((key, wanting), load).await;
        }
        let load = ClosureLoad {
            shared: self.shared.clone(),
            key: key.into(),
            labels: self.labels.cloned().unwrap_or_default(),
            run: Arc::new(Mutex::new(Some(run))),
        };
        self.fetch((key, wanting), load).await
    }

    /// Lets the engine fetch what is wanting: the way of all loads, of one key or of many.
    pub(crate) async fn fetch<L: Load>(
        self,
        (key, wanting): (&str, Wanting),
        load: L,
    ) -> Result<Found<V>, Error> {
        if self.shared.lifetimes.sliding.is_none() {
            return self.fetch_anew((key, wanting), load).await;
        }
        let demand = self.plain_demand();
        let call = Call { demand: &demand, ..self };
        match call.slide(key) {
            Ok(found) => Ok(found),
            Err(wanting) => call.fetch_anew((key, wanting), load).await,
        }
    }

    /// What a call demands, apart from what makes it note that a value was used.
    fn plain_demand(self) -> Demand {
        Demand { min_fresh: None, ..self.demand.clone() }
    }

    /// What may be used all the same, and lives on for that; or what is wanting.
    fn slide(self, key: &str) -> Result<Found<V>, Wanting> {
        let shared = self.shared;
        let look = |name: KeyRef<'_>| {
            let look = shared.engine.look(&ask(name, self.demand));
            if let Look::Served(obtained) = &look {
                shared.extend(name, &obtained.entry);
            }
            look
        };
        match shared.engine_key(key).joined(look) {
            Look::Served(obtained) => {
                shared.counts.hits.increment();
                if obtained.why.is_some() {
                    count(&shared.counts.stale);
                }
                Ok(obtained.entry.head.shared_view())
            }
            Look::Wanting(wanting) => Err(wanting),
        }
    }

    async fn fetch_anew<L: Load>(
        self,
        (key, wanting): (&str, Wanting),
        load: L,
    ) -> Result<Found<V>, Error> {
        let (shared, why) = (self.shared, wanting.why());
        if Handle::try_current().is_err() {
            // What is good enough for now is so without anybody who could refresh it.
            let at_hand = self.served(&wanting);
            return at_hand.ok_or_else(|| self.failed((key, why), Error::NoRuntime));
        }
        let fetched = match self.wait(key, &wanting) {
            Err(LoadCycle) => Err(Error::Circular),
            Ok(_wait) => {
                let name = shared.owned_key(key);
                let ask = ask(name.borrowed(), self.demand);
                let fetching = shared.engine.fetch(&ask, wanting, load);
                let fetched = self.in_time(fetching).await.map_err(Error::from);
                if fetched.as_ref().is_ok_and(|obtained| is_from_below(obtained.via)) {
                    self.note_use(name.borrowed());
                }
                fetched
            }
        };
        match fetched {
            Ok(obtained) => {
                self.count_obtained(&obtained, why);
                Ok(obtained.entry.head.shared_view())
            }
            Err(error) => Err(self.failed((key, why), error)),
        }
    }

    /// Counts a call that came to nothing, and says what by.
    fn failed(self, (key, why): (&str, Why), error: Error) -> Error {
        self.shared.counts.count_reason(why);
        count(&self.shared.counts.errors);
        if self.shared.keys_in_errors { error.for_key(key) } else { error }
    }

    /// Only who waits can wait in a circle.
    fn wait(self, key: &str, wanting: &Wanting) -> Result<Option<Wait>, LoadCycle> {
        if wanting.is_served() || self.demand.only_if_cached {
            return Ok(None);
        }
        Wait::begin(|| self.shared.load_id(key))
    }

    async fn in_time(
        self,
        fetching: impl Future<Output = Result<Obtained, LoadError>>,
    ) -> Result<Obtained, LoadError> {
        match self.hard_timeout {
            // What was waited for goes on without this call.
            Some(limit) => {
                timeout(limit, fetching).await.unwrap_or(Err(LoadError::TimedOut(limit)))
            }
            None => fetching.await,
        }
    }

    fn count_found_below(self, via: Via) {
        if let Via::Tier(tier) = via {
            self.shared.counts.tiers.count_hit(tier);
        }
    }

    fn count_obtained(self, obtained: &Obtained, why: Why) {
        let counts = &self.shared.counts;
        match obtained.via {
            Via::Refreshing => {
                counts.hits.increment();
                count(&counts.refreshing);
                self.count_stale(obtained.why);
                return;
            }
            Via::Hit | Via::Led { .. } => {}
            Via::Tier(_) => self.count_found_below(obtained.via),
            Via::Elsewhere => count(&counts.loaded_elsewhere),
            Via::Followed => count(&counts.coalesced),
            Via::Passed => count(&counts.passed),
            Via::Fallback => count(&counts.fallbacks),
        }
        count(&counts.misses);
        counts.count_reason(why);
    }

    fn count_stale(self, why: Option<Why>) {
        if why != Some(Why::EarlyRefresh) {
            count(&self.shared.counts.stale);
        }
    }

    pub(crate) async fn set(self, key: &str, value: Arc<V>) -> bool {
        let Some(entry) = self.entry(key, value) else { return false };
        let (shared, name) = (self.shared, self.shared.owned_key(key));
        shared.engine.put(name.borrowed(), entry, PutLoad(shared.clone())).await
    }

    pub(crate) async fn set_versioned(self, key: &str, value: Arc<V>, version: u64) -> bool {
        let Some(entry) = self.entry(key, value) else { return false };
        let (shared, name) = (self.shared, self.shared.owned_key(key));
        let versioned = (name.borrowed(), shared.newer(version));
        shared.engine.put_version(versioned, entry, PutLoad(shared.clone())).await
    }

    /// Nothing if the value cannot be written.
    fn entry(self, key: &str, value: Arc<V>) -> Option<(Meta, Head, Bytes)> {
        let shared = self.shared;
        let head = shared.head(key, value).ok()?;
        let meta = match self.labels {
            Some(labels) => shared.meta(EntryKind::Value, labels, LoadFacts::default()),
            None => shared.meta(EntryKind::Value, &StoreOptions::default(), LoadFacts::default()),
        };
        Some((meta, head, Bytes::new()))
    }
}

const fn is_from_below(via: Via) -> bool {
    matches!(via, Via::Tier(_) | Via::Elsewhere)
}

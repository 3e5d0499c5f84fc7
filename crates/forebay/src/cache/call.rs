//! One call for one key: lookup, load, and the counters of the result.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, KeyRef, Why};
use forebay_engine::{
    Coalesce, Load, LoadError, Lookup, LookupResult, Miss, NewEntry, Outcome, Source,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::cache::load::{ClosureLoad, LoadFacts, Loader, LookupOnly, PutLoad, StoreOptions};
use crate::cache::load_cycles::{LoadCycle, Wait};
use crate::cache::shared::{Found, Shared, lookup_request};
use crate::error::Error;
use crate::lifetimes::EntryKind;
use crate::stats::count;

/// The cache and the options of one call.
pub(crate) struct Call<'a, V> {
    pub(crate) shared: &'a Arc<Shared<V>>,
    pub(crate) demand: &'a Demand,
    pub(crate) store_options: Option<&'a Arc<StoreOptions>>,
    pub(crate) hard_timeout: Option<Duration>,
}

impl<V> Clone for Call<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Call<'_, V> {}

impl<'a, V: Send + Sync + 'static> Call<'a, V> {
    /// Looks into memory with this call's demand. Needed if
    /// [`get_fresh`](Shared::get_fresh) found nothing.
    pub(crate) fn lookup(self, key: &str) -> Result<Found<V>, Miss> {
        let look = |key: KeyRef<'_>| self.shared.engine.lookup(&lookup_request(key, self.demand));
        self.count_lookup(self.shared.engine_key(key).joined(look))
    }

    /// Counts a lookup if it is a hit.
    fn count_lookup(self, look: LookupResult) -> Result<Found<V>, Miss> {
        match look {
            LookupResult::Hit(hit) => {
                self.shared.counts.hits.increment();
                if hit.why.is_some() {
                    count(&self.shared.counts.stale);
                }
                Ok(hit.entry.head.shared_view())
            }
            LookupResult::Miss(miss) => Err(miss),
        }
    }

    /// Returns a stored value that may be used, from memory or a lower tier. Loads nothing.
    #[cold]
    pub(crate) fn get(self, key: String) -> BoxFuture<'a, Found<V>> {
        async move { self.get_from_all_tiers(&key).await }.boxed()
    }

    async fn get_from_all_tiers(self, key: &str) -> Found<V> {
        match self.lookup(key) {
            Ok(found) => found,
            Err(miss) => match self.get_without_load(key, miss) {
                Ok(found) => found,
                Err(miss) => {
                    let load = LookupOnly { shared: self.shared.clone(), key: key.into() };
                    self.get_from_lower_tiers(key, miss, load).await
                }
            },
        }
    }

    /// Returns an entry in memory that may be used although it is not a fresh hit. Returns the miss
    /// if the lower tiers must be asked.
    pub(crate) fn get_without_load(self, key: &str, miss: Miss) -> Result<Found<V>, Miss> {
        if self.shared.lifetimes.sliding.is_none() {
            return self.serve_or_miss(miss);
        }
        let demand = self.demand_without_min_fresh();
        let call = Call { demand: &demand, ..self };
        call.lookup_and_extend(key).or_else(|miss| call.serve_or_miss(miss))
    }

    fn serve_or_miss(self, miss: Miss) -> Result<Found<V>, Miss> {
        if let Some(found) = self.serve_stored(&miss) {
            return Ok(found);
        }
        count(&self.shared.counts.misses);
        self.shared.counts.count_reason(miss.why());
        // A cache without a codec has no lower tiers.
        if self.shared.codec.is_some() { Err(miss) } else { Ok(None) }
    }

    /// Returns the stored entry if it may be served before its refresh. Starts no refresh.
    fn serve_stored(self, miss: &Miss) -> Option<Found<V>> {
        let stored = miss.prior().filter(|_| miss.is_served_first())?;
        self.shared.counts.hits.increment();
        self.count_stale(Some(miss.why()));
        Some(stored.head.shared_view())
    }

    /// Looks into the lower tiers without coalescing: calls that load do not wait for it.
    pub(crate) async fn get_from_lower_tiers<L: Load>(
        self,
        key: &str,
        miss: Miss,
        load: L,
    ) -> Found<V> {
        let found = self.fetch_from_lower_tiers(key, miss, load).await.ok()?;
        found.entry.head.shared_view()
    }

    async fn fetch_from_lower_tiers<L: Load>(
        self,
        key: &str,
        miss: Miss,
        load: L,
    ) -> Result<Outcome, Error> {
        let shared = self.shared;
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        // `load` only reads tiers, so the engine may run it although the call loads nothing.
        let demand = Demand { only_if_cached: false, ..self.demand_without_min_fresh() };
        let name = shared.owned_key(key);
        let request =
            Lookup { coalesce: Coalesce::Never, ..lookup_request(name.borrowed(), &demand) };
        let found = miss.load(&shared.engine, &request, load).await?;
        // `stale_if_error` covers failed loads. Here no load has failed.
        if found.source == Source::Fallback {
            return Err(Error::NotCached);
        }
        self.count_tier_hit(found.source);
        self.record_use(name.borrowed());
        Ok(found)
    }

    /// Extends the sliding lifetime of an entry that a lower tier has just brought into memory.
    fn record_use(self, name: KeyRef<'_>) {
        let shared = self.shared;
        if shared.lifetimes.sliding.is_none() {
            return;
        }
        let demand = self.demand_without_min_fresh();
        if let LookupResult::Hit(hit) = shared.engine.lookup(&lookup_request(name, &demand)) {
            shared.extend(name, &hit.entry);
        }
    }

    /// Returns an entry of memory or of a lower tier, for a call with `only_if_cached`. `load` must
    /// only read tiers.
    pub(crate) async fn fetch_cached<L: Load>(
        self,
        key: &str,
        miss: Miss,
        load: L,
    ) -> Result<Found<V>, Error> {
        let why = miss.why();
        if miss.is_served_first() || self.shared.codec.is_none() {
            return self.fetch(key, miss, load).await;
        }
        match self.fetch_from_lower_tiers(key, miss, load).await {
            Ok(found) => {
                self.shared.counts.count_reason(why);
                count(&self.shared.counts.misses);
                Ok(found.entry.head.shared_view())
            }
            Err(error) => Err(self.count_error(key, why, error)),
        }
    }

    /// Returns a stored value, or runs `loader`. The future is boxed so that the future of a hit
    /// stays small and cheap to create.
    #[cold]
    pub(crate) fn get_or_load(
        self,
        key: String,
        loader: Loader<V>,
    ) -> BoxFuture<'a, Result<Found<V>, Error>> {
        let calling = async move {
            match self.lookup(&key) {
                Ok(found) => Ok(found),
                Err(miss) => self.load(&key, miss, loader).await,
            }
        };
        calling.boxed()
    }

    /// Runs `loader` for a missed key, unless the call has `only_if_cached`.
    pub(crate) async fn load(
        self,
        key: &str,
        miss: Miss,
        loader: Loader<V>,
    ) -> Result<Found<V>, Error> {
        if self.demand.only_if_cached {
            let load = LookupOnly { shared: self.shared.clone(), key: key.into() };
            return self.fetch_cached(key, miss, load).await;
        }
        let load = ClosureLoad {
            shared: self.shared.clone(),
            key: key.into(),
            store_options: self.store_options.cloned().unwrap_or_default(),
            loader: Arc::new(Mutex::new(Some(loader))),
        };
        self.fetch(key, miss, load).await
    }

    /// Fetches a missed key through the engine: all loads, single or batched, go through here.
    pub(crate) async fn fetch<L: Load>(
        self,
        key: &str,
        miss: Miss,
        load: L,
    ) -> Result<Found<V>, Error> {
        if self.shared.lifetimes.sliding.is_none() {
            return self.fetch_from_engine(key, miss, load).await;
        }
        let demand = self.demand_without_min_fresh();
        let call = Call { demand: &demand, ..self };
        match call.lookup_and_extend(key) {
            Ok(found) => Ok(found),
            Err(miss) => call.fetch_from_engine(key, miss, load).await,
        }
    }

    /// Returns the call's demand without `min_fresh`, which only makes lookups report entries whose
    /// use must be recorded.
    fn demand_without_min_fresh(self) -> Demand {
        Demand { min_fresh: None, ..self.demand.clone() }
    }

    /// Looks into memory, and extends the sliding lifetime of an entry that is found.
    fn lookup_and_extend(self, key: &str) -> Result<Found<V>, Miss> {
        let shared = self.shared;
        let look = |name: KeyRef<'_>| {
            let look = shared.engine.lookup(&lookup_request(name, self.demand));
            if let LookupResult::Hit(hit) = &look {
                shared.extend(name, &hit.entry);
            }
            look
        };
        self.count_lookup(shared.engine_key(key).joined(look))
    }

    async fn fetch_from_engine<L: Load>(
        self,
        key: &str,
        miss: Miss,
        load: L,
    ) -> Result<Found<V>, Error> {
        let (shared, why) = (self.shared, miss.why());
        if Handle::try_current().is_err() {
            // A stale entry that may be served needs no runtime; its refresh is skipped.
            let stored = self.serve_stored(&miss);
            return stored.ok_or_else(|| self.count_error(key, why, Error::NoRuntime));
        }
        let fetched = match self.begin_wait(key, &miss) {
            Err(LoadCycle) => Err(Error::Circular),
            Ok(_wait) => {
                let name = shared.owned_key(key);
                let request = lookup_request(name.borrowed(), self.demand);
                let fetching = miss.load(&shared.engine, &request, load);
                let fetched = self.within_hard_timeout(fetching).await.map_err(Error::from);
                if fetched.as_ref().is_ok_and(|fetched| is_from_tier_or_instance(fetched.source)) {
                    self.record_use(name.borrowed());
                }
                fetched
            }
        };
        match fetched {
            Ok(fetched) => {
                self.count_fetched(&fetched, why);
                Ok(fetched.entry.head.shared_view())
            }
            Err(error) => Err(self.count_error(key, why, error)),
        }
    }

    /// Counts a failed call, and adds the key to its error if the cache is configured so.
    fn count_error(self, key: &str, why: Why, error: Error) -> Error {
        self.shared.counts.count_reason(why);
        count(&self.shared.counts.errors);
        if self.shared.keys_in_errors { error.for_key(key) } else { error }
    }

    /// Registers that this call waits for the load of a key. Calls that do not wait cannot close a
    /// cycle and register nothing.
    fn begin_wait(self, key: &str, miss: &Miss) -> Result<Option<Wait>, LoadCycle> {
        if miss.is_served_first() || self.demand.only_if_cached {
            return Ok(None);
        }
        Wait::begin(|| self.shared.load_id(key))
    }

    async fn within_hard_timeout(
        self,
        fetching: impl Future<Output = Result<Outcome, LoadError>>,
    ) -> Result<Outcome, LoadError> {
        match self.hard_timeout {
            // The load runs in a task of its own and continues without this call.
            Some(limit) => {
                timeout(limit, fetching).await.unwrap_or(Err(LoadError::TimedOut(limit)))
            }
            None => fetching.await,
        }
    }

    fn count_tier_hit(self, source: Source) {
        if let Source::Tier(tier) = source {
            self.shared.counts.tiers.count_hit(tier);
        }
    }

    fn count_fetched(self, fetched: &Outcome, why: Why) {
        let counts = &self.shared.counts;
        match fetched.source {
            Source::Refreshing => {
                counts.hits.increment();
                count(&counts.refreshing);
                self.count_stale(fetched.why);
                return;
            }
            Source::Hit | Source::Led { .. } => {}
            Source::Tier(_) => self.count_tier_hit(fetched.source),
            Source::Instance => count(&counts.loaded_elsewhere),
            Source::Followed => count(&counts.coalesced),
            Source::Passed => count(&counts.passed),
            Source::Fallback => count(&counts.fallbacks),
        }
        count(&counts.misses);
        counts.count_reason(why);
    }

    fn count_stale(self, why: Option<Why>) {
        if why != Some(Why::EarlyRefresh) {
            count(&self.shared.counts.stale);
        }
    }

    /// Stores a value. Returns `false` if it is not kept.
    pub(crate) async fn set(self, key: &str, value: Arc<V>) -> bool {
        let Some(entry) = self.entry(key, value) else { return false };
        let (shared, name) = (self.shared, self.shared.owned_key(key));
        shared.engine.put(name.borrowed(), entry, PutLoad(shared.clone())).await
    }

    /// Stores a value unless a version that is as new is stored or was removed. Returns `false` if
    /// it is not kept.
    pub(crate) async fn set_versioned(self, key: &str, value: Arc<V>, version: u64) -> bool {
        let Some(entry) = self.entry(key, value) else { return false };
        let (shared, name) = (self.shared, self.shared.owned_key(key));
        let newer = shared.newer(version);
        shared.engine.put_version(name.borrowed(), newer, entry, PutLoad(shared.clone())).await
    }

    /// Builds the entry of a value. Returns `None` if the codec cannot encode it.
    fn entry(self, key: &str, value: Arc<V>) -> Option<NewEntry> {
        let shared = self.shared;
        let head = shared.head(key, value).ok()?;
        let meta = match self.store_options {
            Some(options) => shared.meta(EntryKind::Value, options, LoadFacts::default()),
            None => shared.meta(EntryKind::Value, &StoreOptions::default(), LoadFacts::default()),
        };
        Some(NewEntry { meta, head, body: Bytes::new() })
    }
}

const fn is_from_tier_or_instance(source: Source) -> bool {
    matches!(source, Source::Tier(_) | Source::Instance)
}

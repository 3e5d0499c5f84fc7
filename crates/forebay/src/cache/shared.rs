//! The state that all handles of one cache share.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::key::Name;
use forebay_core::{Demand, Key, KeyRef};
use forebay_engine::{Coalesce, Credentials, Engine, Entry, Lookup, Newer, TierErrors};
use tokio::sync::Semaphore;

use crate::cache::load_cycles::LoadId;
use crate::codec::DynCodec;
use crate::lifetimes::Lifetimes;
use crate::stats::Counts;

/// The result of a successful call: the value, or `None` if the key is known to have none.
pub(crate) type Found<V> = Option<Arc<V>>;

/// Comparison of a loaded value with the previous one.
pub(crate) type ValueEq<V> = fn(&V, &V) -> bool;

/// Function that returns the size of a value in bytes, given its key.
pub(crate) type Weigher<V> = Arc<dyn Fn(&str, &V) -> usize + Send + Sync>;

pub(crate) struct Shared<V> {
    /// Number of this cache, unique in the process.
    pub(crate) number: u64,
    pub(crate) name: Box<str>,
    /// Prefix of all keys in the engine: the name of the cache if it has tiers.
    pub(crate) key_prefix: Key,
    pub(crate) engine: Arc<Engine>,
    pub(crate) counts: Arc<Counts>,
    /// Demand of a call without options.
    pub(crate) demand: Demand,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) memory_ttl: Option<Duration>,
    pub(crate) value_eq: Option<ValueEq<V>>,
    /// Errors name their key if true.
    pub(crate) keys_in_errors: bool,
    pub(crate) weigher: Option<Weigher<V>>,
    /// Encoding of values in lower tiers. `None` if there are no lower tiers.
    pub(crate) codec: Option<Arc<dyn DynCodec<V>>>,
    /// Memory is bounded by a number of entries if true, by bytes otherwise.
    pub(crate) bounded_by_entries: bool,
    /// Absent values have a share of memory of their own if true.
    pub(crate) separate_absent: bool,
    /// Limits on concurrent loads. A load acquires a permit of each, in this order.
    pub(crate) semaphores: Box<[Arc<Semaphore>]>,
    pub(crate) load_timeout: Duration,
    pub(crate) hard_timeout: Option<Duration>,
    pub(crate) tier_errors: TierErrors,
}

impl<V: Send + Sync + 'static> Shared<V> {
    /// Returns a fresh value that every demand accepts: nearly every hit. `None` means that the
    /// call needs [`lookup`](crate::cache::call::Call::lookup).
    #[expect(
        clippy::inline_always,
        reason = "without it the compiler emits a call, which adds 20 instructions to a hit"
    )]
    #[inline(always)]
    pub(crate) fn get_fresh(&self, key: &str, demand: &Demand) -> Option<Found<V>> {
        let view = |entry: &Entry| entry.head.shared_view();
        let found = self.engine.get_fresh(self.engine_key(key), demand, view)?;
        self.counts.hits.increment();
        Some(found)
    }
}

impl<V> Shared<V> {
    /// Returns the name of a key in the engine.
    #[inline]
    pub(crate) fn engine_key<'a>(&'a self, key: &'a str) -> Name<'a> {
        Name::new(self.key_prefix.borrowed(), key.as_bytes())
    }

    /// Returns the prefix of all keys, as the site of a purge.
    pub(crate) fn site(&self) -> &str {
        std::str::from_utf8(self.key_prefix.borrowed().namespace()).unwrap_or_default()
    }

    pub(crate) fn owned_key(&self, key: &str) -> Key {
        let owned = |key: KeyRef<'_>| key.to_key();
        self.engine_key(key).joined(owned)
    }

    /// Extends the lifetime of an entry that was used, if lifetimes slide.
    pub(crate) fn extend(&self, name: KeyRef<'_>, entry: &Arc<Entry>) {
        let Some(sliding) = self.lifetimes.sliding else { return };
        let (age, fresh) = (entry.meta.age(self.engine.clock().now()), entry.meta.lifetime().fresh);
        if let Some(longer) = sliding.extended(age, fresh).filter(|_| entry.head.has_view()) {
            // An entry that has replaced this one was used at least as recently.
            let _ = self.engine.extend(name, entry, longer);
        }
    }

    /// Returns a version with the time for which older ones are refused: no load that could bring
    /// an older one runs longer than that.
    pub(crate) const fn newer(&self, version: u64) -> Newer {
        Newer { version, keep: self.load_timeout }
    }

    pub(crate) fn load_id(&self, key: &str) -> LoadId {
        LoadId { cache: self.number, key: self.owned_key(key) }
    }
}

/// Builds the engine's request. All callers of a typed cache may share its entries.
pub(crate) const fn lookup_request<'a>(key: KeyRef<'a>, demand: &'a Demand) -> Lookup<'a> {
    Lookup {
        key,
        demand,
        select: &(),
        credentials: Credentials::Anonymous,
        coalesce: Coalesce::Cluster,
    }
}

//! What all handles of one cache share.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::key::Name;
use forebay_core::{Demand, Key, KeyRef};
use forebay_engine::{Ask, Coalesce, Credentials, Engine, Entry, Newer, TierErrors};
use tokio::sync::Semaphore;

use crate::call::Found;
use crate::codec::DynCodec;
use crate::lifetimes::Lifetimes;
use crate::load_cycles::LoadId;
use crate::stats::Counts;

/// Whether a value that was loaded is the one that was there.
pub(crate) type ValueEq<V> = fn(&V, &V) -> bool;

pub(crate) type Weigher<V> = Arc<dyn Fn(&str, &V) -> usize + Send + Sync>;

pub(crate) struct Shared<V> {
    /// Its number among the caches of this process.
    pub(crate) number: u64,
    pub(crate) name: Box<str>,
    /// What stands in key_prefix of all its keys.
    pub(crate) key_prefix: Key,
    pub(crate) engine: Arc<Engine>,
    pub(crate) counts: Arc<Counts>,
    /// What a call wants that says nothing else.
    pub(crate) demand: Demand,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) memory_ttl: Option<Duration>,
    pub(crate) value_eq: Option<ValueEq<V>>,
    /// Whether errors name their key.
    pub(crate) keys_in_errors: bool,
    pub(crate) weigher: Option<Weigher<V>>,
    /// How values are written, where there are tiers below memory.
    pub(crate) codec: Option<Arc<dyn DynCodec<V>>>,
    /// Whether memory is bounded by a number of entries.
    pub(crate) bounded_by_entries: bool,
    /// Whether what is known to be absent stands in a share of memory of its own.
    pub(crate) separate_absent: bool,
    /// What a load needs a place of, in this order.
    pub(crate) semaphores: Box<[Arc<Semaphore>]>,
    pub(crate) load_timeout: Duration,
    pub(crate) hard_timeout: Option<Duration>,
    pub(crate) tier_errors: TierErrors,
}

impl<V: Send + Sync + 'static> Shared<V> {
    /// What is at hand and good for everybody: nearly every hit. Nothing if a call has to look
    /// more closely.
    #[expect(
        clippy::inline_always,
        reason = "left to itself it is a call, and a hit 20 steps longer"
    )]
    #[inline(always)]
    pub(crate) fn get_fresh(&self, key: &str, demand: &Demand) -> Option<Found<V>> {
        let view = |entry: &Entry| entry.head.shared_view();
        let found = self.engine.glance(self.engine_key(key), demand, view)?;
        self.counts.hits.increment();
        Some(found)
    }
}

impl<V> Shared<V> {
    /// What an entry is called in the engine.
    #[inline]
    pub(crate) fn engine_key<'a>(&'a self, key: &'a str) -> Name<'a> {
        Name::new(self.key_prefix.borrowed(), key.as_bytes())
    }

    /// What all its keys begin with, as purges name it.
    pub(crate) fn site(&self) -> &str {
        std::str::from_utf8(self.key_prefix.borrowed().namespace()).unwrap_or_default()
    }

    pub(crate) fn owned_key(&self, key: &str) -> Key {
        let owned = |key: KeyRef<'_>| key.to_key();
        self.engine_key(key).joined(owned)
    }

    /// Lets a value live on that has been used, where values slide.
    pub(crate) fn extend(&self, name: KeyRef<'_>, entry: &Arc<Entry>) {
        let Some(sliding) = self.lifetimes.sliding else { return };
        let (age, fresh) = (entry.meta.age(self.engine.clock().now()), entry.meta.lifetime().fresh);
        if let Some(longer) = sliding.extended(age, fresh).filter(|_| entry.head.has_view()) {
            // What takes its place meanwhile was used no longer ago.
            let _ = self.engine.extend(name, entry, longer);
        }
    }

    /// A version that is new: no load is under way for longer that could bring an older one.
    pub(crate) const fn newer(&self, version: u64) -> Newer {
        Newer { version, keep: self.load_timeout }
    }

    pub(crate) fn load_id(&self, key: &str) -> LoadId {
        LoadId { cache: self.number, key: self.owned_key(key) }
    }
}

/// Typed callers are all alike: whoever may ask may have what others have loaded.
pub(crate) const fn ask<'a>(key: KeyRef<'a>, demand: &'a Demand) -> Ask<'a> {
    Ask {
        key,
        demand,
        select: &(),
        credentials: Credentials::Anonymous,
        coalesce: Coalesce::Everywhere,
    }
}

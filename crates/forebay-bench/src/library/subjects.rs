//! Measured libraries, and the calls to each.
//!
//! All hold twice the number of keys, so that nothing is evicted, and have a lifetime of an hour
//! where they know of lifetimes. Each hit gives out a pointer of its own to the value, and reads
//! its first byte.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Cache, Error, Memory};
use futures_util::FutureExt;

use super::tiered;

/// A kibibyte, as a row of a database may be.
pub(crate) type Row = Vec<u8>;

pub(crate) const LIFETIME: Duration = Duration::from_hours(1);

pub(crate) const CAPACITY: usize = 20_000;

/// One call for a stored value.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    fill: fn(&[String]) -> Hit,
}

/// Library with which it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A cache in memory, and nothing else.
    Store,
    /// Another library with tiers.
    Rival,
    /// This one.
    Ours,
}

/// Asks for one key. What does not find it panics.
pub(crate) type Hit = Box<dyn Fn(&str) + Send + Sync>;

impl Subject {
    pub(crate) fn filled(&self, keys: &[String]) -> Hit {
        (self.fill)(keys)
    }
}

pub(crate) const QUICK_GET: &str = "quick_cache-get";
pub(crate) const QUICK_LOAD: &str = "quick_cache-get_or_insert_async";
pub(crate) const OURS: &str = "forebay-get_or_load";
pub(crate) const OURS_BESIDE: &str = "forebay-get_or_load-scattered";
pub(crate) const OURS_TIERED: &str = "forebay-get_or_load-disk-redis";

macro_rules! subjects {
    ($($name:expr, $kind:ident, $fill:path;)*) => {
        &[$(Subject { name: $name, kind: Kind::$kind, fill: $fill }),*]
    };
}

pub(crate) const ALL: &[Subject] = subjects! {
    QUICK_GET, Store, quick_get;
    QUICK_LOAD, Store, quick_load;
    "moka-get", Store, moka_get;
    "moka-get_with_by_ref", Store, moka_load;
    "foyer-s3fifo-get", Store, foyer_get;
    "foyer-s3fifo-get_or_fetch", Store, foyer_load;
    "cachet-get_or_insert", Rival, cachet_load;
    "cachet-get_or_insert-2-tiers", Rival, cachet_tiers;
    "amalgam-get_or_set", Rival, amalgam_load;
    "multi-tier-cache-get_or_compute", Rival, multi_tier_load;
    "forebay-get", Ours, forebay_get;
    OURS, Ours, forebay_load;
    "forebay-get_or_load-bytes", Ours, forebay_bytes;
    OURS_BESIDE, Ours, tiered::beside;
    OURS_TIERED, Ours, tiered::load;
};

pub(crate) fn row() -> Row {
    vec![7; 1 << 10]
}

/// Takes what a future has at once: a hit never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a hit does not wait")
}

/// Maximum number of polls of a hit that waits for a lock.
const POLLS_MAX: usize = 1_000_000;

/// Measures a library in which a hit may wait for another thread.
fn soon<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut polls = std::iter::repeat_with(|| future.as_mut().now_or_never()).take(POLLS_MAX);
    polls.find_map(|hit| hit.or_else(wait)).expect("a hit does not wait for ever")
}

fn wait<T>() -> Option<T> {
    std::thread::yield_now();
    None
}

fn seen(row: &[u8]) {
    black_box(row[0]);
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a fill for each key.
fn fill(keys: &[String], store: impl AsyncFn(&String)) {
    runtime().block_on(async {
        for key in keys {
            store(key).await;
        }
    });
}

fn quick(keys: &[String]) -> quick_cache::sync::Cache<String, Arc<Row>> {
    let cache = quick_cache::sync::Cache::new(CAPACITY);
    keys.iter().for_each(|key| cache.insert(key.clone(), Arc::new(row())));
    cache
}

fn quick_get(keys: &[String]) -> Hit {
    let cache = quick(keys);
    Box::new(move |key| seen(&black_box(cache.get(key).expect("it is there"))))
}

fn quick_load(keys: &[String]) -> Hit {
    let cache = quick(keys);
    Box::new(move |key| {
        let hit = now(cache.get_or_insert_async(key, async { Err(()) }));
        seen(&black_box(hit.expect("it is there")));
    })
}

fn moka(keys: &[String]) -> moka::future::Cache<String, Arc<Row>> {
    let builder = moka::future::Cache::builder().max_capacity(CAPACITY as u64);
    let cache = builder.time_to_live(LIFETIME).build();
    fill(keys, async |key| cache.insert(key.clone(), Arc::new(row())).await);
    runtime().block_on(cache.run_pending_tasks());
    cache
}

fn moka_get(keys: &[String]) -> Hit {
    let cache = moka(keys);
    Box::new(move |key| seen(&black_box(now(cache.get(key)).expect("it is there"))))
}

fn moka_load(keys: &[String]) -> Hit {
    let cache = moka(keys);
    let never = || async { unreachable!("it is there") };
    Box::new(move |key| seen(&black_box(now(cache.get_with_by_ref(key, never())))))
}

fn foyer(keys: &[String]) -> foyer_memory::Cache<String, Arc<Row>> {
    let policy = foyer_memory::S3FifoConfig::default();
    let builder = foyer_memory::CacheBuilder::new(CAPACITY).with_eviction_config(policy);
    let cache = builder.build();
    keys.iter().for_each(|key| drop(cache.insert(key.clone(), Arc::new(row()))));
    cache
}

fn foyer_get(keys: &[String]) -> Hit {
    let cache = foyer(keys);
    Box::new(move |key| seen(black_box(cache.get(key).expect("it is there")).value()))
}

fn foyer_load(keys: &[String]) -> Hit {
    let cache = foyer(keys);
    let never = || async { Err::<Arc<Row>, anyhow::Error>(anyhow::anyhow!("it is there")) };
    Box::new(move |key| {
        let hit = now(cache.get_or_fetch(key, never));
        seen(black_box(hit.expect("it is there")).value());
    })
}

fn cachet_load(keys: &[String]) -> Hit {
    let clock = runtime().block_on(async { tick::Clock::new_tokio() });
    let builder = cachet::Cache::builder::<String, Arc<Row>>(clock);
    let builder = builder.memory_with(|memory| memory.max_capacity(CAPACITY as u64));
    cachet_hit(keys, builder.ttl(LIFETIME).stampede_protection().build())
}

fn cachet_tiers(keys: &[String]) -> Hit {
    let clock = runtime().block_on(async { tick::Clock::new_tokio() });
    let tier = || {
        let builder = cachet::Cache::builder::<String, Arc<Row>>(clock.clone());
        builder.memory_with(|memory| memory.max_capacity(CAPACITY as u64)).ttl(LIFETIME)
    };
    cachet_hit(keys, tier().fallback(tier()).stampede_protection().build())
}

fn cachet_hit(keys: &[String], cache: cachet::Cache<String, Arc<Row>>) -> Hit {
    fill(keys, async |key| {
        cache.insert(key.clone(), Arc::new(row())).await.expect("it takes it");
    });
    Box::new(move |key| {
        let hit = soon(cache.get_or_insert(key, || async { unreachable!("it is there") }));
        seen(black_box(hit.expect("it is there")).value());
    })
}

fn amalgam_load(keys: &[String]) -> Hit {
    let options = amalgam::EntryOptions::new(LIFETIME);
    let builder = amalgam::Cache::<Arc<Row>>::builder().default_options(options);
    let cache = builder.max_capacity(CAPACITY as u64).try_build().expect("it can work");
    fill(keys, async |key| cache.set(key, Arc::new(row())).await.expect("it takes it"));
    Box::new(move |key| {
        let never = |_| async { Err::<Arc<Row>, _>(std::io::Error::other("it is there")) };
        let hit = now(std::future::IntoFuture::into_future(cache.get_or_set(key, never)));
        seen(&black_box(hit.expect("it is there")));
    })
}

fn multi_tier_load(keys: &[String]) -> Hit {
    use multi_tier_cache::{
        Bytes, CacheManager, CacheStrategy, CacheTier, L2CacheBackend, MokaCache, MokaCacheConfig,
    };
    let config = MokaCacheConfig {
        max_capacity: CAPACITY as u64,
        time_to_live: LIFETIME,
        time_to_idle: LIFETIME,
    };
    let memory = MokaCache::new(config).expect("it can work");
    let tier = CacheTier::new(Arc::new(memory) as Arc<dyn L2CacheBackend>, 1, false, 1, 1.0);
    let cache = CacheManager::new_with_tiers(vec![tier], None).expect("it can work");
    let strategy = || CacheStrategy::Custom(LIFETIME);
    fill(keys, async |key| {
        let stored = cache.set_with_strategy(key, Bytes::from(row()), strategy());
        stored.await.expect("it takes it");
    });
    Box::new(move |key| {
        let never = || async { unreachable!("it is there") };
        let hit = now(cache.get_or_compute_with(key, strategy(), never));
        seen(&black_box(hit.expect("it is there")));
    })
}

fn forebay(keys: &[String], builder: forebay::Builder<Row>) -> Cache<Row> {
    let cache = with_lifetimes(builder).build().expect("it can work");
    fill(keys, async |key| assert!(cache.set(key, row()).await, "it takes it"));
    assert_eq!(cache.stats().entries, keys.len() as u64);
    cache
}

/// Bound by the number of entries.
pub(crate) fn counted() -> forebay::Builder<Row> {
    Cache::builder("users").memory(Memory::entries(CAPACITY as u64))
}

/// Bound by bytes.
pub(crate) fn weighed(bytes: u64) -> forebay::Builder<Row> {
    let weigh = |_: &str, row: &Row| row.len() + size_of::<Row>();
    Cache::builder("users").memory(Memory::bytes(bytes)).weigher(weigh)
}

/// All that a cache may want: early refresh and counters are there without being asked for.
pub(crate) fn with_lifetimes(builder: forebay::Builder<Row>) -> forebay::Builder<Row> {
    builder.ttl(LIFETIME).stale_while_revalidate(LIFETIME).stale_if_error(LIFETIME)
}

fn forebay_get(keys: &[String]) -> Hit {
    let cache = forebay(keys, counted());
    Box::new(move |key| seen(&black_box(now(cache.get(key)).expect("it is there"))))
}

fn forebay_load(keys: &[String]) -> Hit {
    loading(forebay(keys, counted()), ())
}

fn forebay_bytes(keys: &[String]) -> Hit {
    loading(forebay(keys, weighed(64 << 20)), ())
}

/// Measures with `kept` held alive, which no hit uses.
pub(crate) fn loading(cache: Cache<Row>, kept: impl Send + Sync + 'static) -> Hit {
    let never = || async { Err::<Row, Error>(Error::Absent) };
    Box::new(move |key| {
        let _ = &kept;
        let hit = now(cache.get_or_load(key, never));
        seen(&black_box(hit.expect("it is there")));
    })
}

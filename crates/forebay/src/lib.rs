//! A typed cache for use inside a service, with request coalescing, stale responses, and optional
//! disk and Redis tiers.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use forebay::{Cache, Memory};
//!
//! #[derive(Debug)]
//! struct User {
//!     name: String,
//! }
//!
//! async fn find_user(id: u64) -> Result<User, std::io::Error> {
//!     Ok(User { name: format!("user {id}") })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let users: Cache<User> = Cache::builder("users")
//!     .memory(Memory::entries(10_000))
//!     .ttl(Duration::from_secs(60))
//!     .build()?;
//!
//! let user: Arc<User> = users.get_or_load("user:42", || find_user(42)).await?;
//! assert_eq!(user.name, "user 42");
//! # Ok(())
//! # }
//! ```
//!
//! A key is any `impl AsRef<str>`. A hit copies no key and no value, and allocates nothing.
//! Memory holds each value itself, behind an `Arc`: memory alone encodes nothing and needs no
//! `serde`. Build a `Cache` once and clone it: clones are handles of one cache.
//!
//! `docs/library.md` in the repository shows a whole service: settings, failures, metrics, shutdown
//! and tests.
//!
//! # Request coalescing
//!
//! All callers that ask for a key while it is being loaded share that load. The load runs in a
//! task of its own, so its closure must own what it needs: clone handles, and write
//! `move || async move { .. }`. A caller that is dropped or times out does not cancel the load. An
//! error of the loader reaches every waiting caller unchanged ([`Error::cause`]). After two failed
//! loads of a key in a row the cache starts no load for that key for up to a second. Calls then get
//! a stale value within [`stale_if_error`](Builder::stale_if_error), or fail with
//! [`Error::BackingOff`], which carries the last error.
//!
//! ```
//! # use std::sync::Arc;
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! # use forebay::{Cache, Error, Memory};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache: Cache<u64> = Cache::builder("sums").memory(Memory::entries(100)).build()?;
//! let loads = Arc::new(AtomicUsize::new(0));
//! let ask = || {
//!     let loads = loads.clone();
//!     cache.get_or_load("sum", || async move {
//!         loads.fetch_add(1, Ordering::SeqCst);
//!         tokio::task::yield_now().await;
//!         Ok::<u64, Error>(5_050)
//!     })
//! };
//! let (one, other) = tokio::join!(ask(), ask());
//! assert!(Arc::ptr_eq(&one?, &other?));
//! assert_eq!(loads.load(Ordering::SeqCst), 1);
//! # Ok(())
//! # }
//! ```
//!
//! A loader may call a cache. A loader that would wait for itself, directly or through other
//! loads, gets [`Error::Circular`] instead of a deadlock. The check does not cover tasks that a
//! loader spawns: there [`Builder::load_timeout`] ends the wait.
//!
//! # Answers: lifetime, tags, absence, validation
//!
//! [`Cache::get_or_load_with`] passes the previous entry to the loader ([`Prior`]). The loader
//! returns an [`Answer`], which sets lifetime and tags, or says that the value is absent or
//! unchanged. The cache stores an absent answer like a value. An `Err` counts as a failed load and
//! is not stored, so return an `Option` for rows that may be missing.
//!
//! ```
//! # use std::time::Duration;
//! # use forebay::{Answer, Cache, Error, Memory, Options, Prior};
//! # #[derive(Clone)]
//! # struct Table;
//! # impl Table {
//! #     async fn version(&self, _: u64) -> Result<Option<u64>, Error> { Ok(Some(7)) }
//! #     async fn row(&self, _: u64) -> Result<String, Error> { Ok("a row".into()) }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let table = Table;
//! # let cache: Cache<String> = Cache::builder("rows").memory(Memory::entries(100)).build()?;
//! let load = |prior: Prior<String>| async move {
//!     let Some(version) = table.version(42).await? else {
//!         return Ok(Answer::absent().ttl(Duration::from_secs(5)));
//!     };
//!     let version = version.to_string();
//!     if prior.validator() == Some(version.as_bytes()) {
//!         return Ok(Answer::unchanged());
//!     }
//!     let row = table.row(42).await?;
//!     Ok::<_, Error>(Answer::value(row).tags(["rows"]).validator(version))
//! };
//! let refresh = Options::new().force_refresh();
//! let first = cache.with(refresh.clone()).get_or_load_with("row:42", load.clone()).await?;
//! // The second load finds the version unchanged and keeps the stored value.
//! let second = cache.with(refresh).get_or_load_with("row:42", load).await?;
//! assert!(std::sync::Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
//! # Ok(())
//! # }
//! ```
//!
//! # Lifetimes
//!
//! | setting | end of a value's freshness |
//! |---|---|
//! | [`ttl`](Builder::ttl) | this long after its load, with a jitter of up to 5 % |
//! | [`sliding`](Builder::sliding) | after `idle` without use, and at the latest after `max` |
//! | [`adaptive`](Builder::adaptive) | after a `ttl` that doubles each time a load finds the value unchanged |
//! | [`expires_at`](Builder::expires_at) | at the next time of a [`Schedule`], such as midnight |
//! | [`negative_ttl`](Builder::negative_ttl) | this long after its load, for an absent value |
//! | [`memory_ttl`](Builder::memory_ttl), [`TierConfig::ttl`] | in that tier; the next lower tier is then asked |
//!
//! One answer or one call can override them: [`Answer::ttl`], [`Answer::expires_at`],
//! [`Options::ttl`], [`Options::expires_at`]. Overrides get no jitter.
//!
//! ```
//! # use std::time::Duration;
//! # use forebay::{Cache, Memory, Schedule};
//! # fn main() -> Result<(), forebay::BuildError> {
//! const MINUTE: Duration = Duration::from_secs(60);
//! // A session: fresh for 20 minutes after its last use, and for one day at most.
//! let sessions: Cache<String> = Cache::builder("sessions")
//!     .memory(Memory::entries(10_000))
//!     .sliding(20 * MINUTE, 24 * 60 * MINUTE)
//!     .build()?;
//! // A page that seldom changes: fresh for one minute, then two, four and so on, up to an hour.
//! let pages: Cache<String> = Cache::builder("pages")
//!     .memory(Memory::entries(10_000))
//!     .ttl(MINUTE)
//!     .adaptive(60 * MINUTE)
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Stale responses and early refresh
//!
//! A stale value is served only within one of two windows. Both begin when the value's freshness
//! ends:
//!
//! - within [`stale_while_revalidate`](Builder::stale_while_revalidate) a call gets the stale value
//!   at once, and one load refreshes it in the background;
//! - within [`stale_if_error`](Builder::stale_if_error) a call waits for a load, and gets the stale
//!   value if the load fails.
//!
//! The cache may also refresh a value shortly before its end (XFetch): the costlier its load, the
//! earlier. The moment is random, so that several instances do not choose the same one. No call
//! waits for an early refresh. [`Builder::beta`] tunes it; zero disables it. In a benchmark of a
//! busy listing over SQLite, early refresh removed 11 of 12 misses for 4 % more loads. It rarely
//! helps keys with fewer than two calls a second.
//!
//! # Outages and slow loads
//!
//! ```
//! # use std::time::Duration;
//! # use forebay::testkit::ManualClock;
//! # use forebay::{Cache, Memory};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clock = ManualClock::new();
//! let cache: Cache<String> = Cache::builder("prices")
//!     .memory(Memory::entries(100))
//!     .ttl(Duration::from_secs(60))
//!     .stale_if_error(Duration::from_secs(3_600))
//!     .soft_timeout(Duration::from_millis(50))
//!     .hard_timeout(Duration::from_secs(2))
//!     .loads_max(16)
//! #   .clock(clock.shared())
//!     .build()?;
//! # cache.set("apple", "1.20".to_owned()).await;
//! # clock.advance(Duration::from_secs(600));
//!
//! // The price is ten minutes old, and the load fails.
//! let price = cache.get_or_load("apple", || async { Err::<String, _>("no database") }).await?;
//! assert_eq!(*price, "1.20");
//! assert_eq!(cache.stats().fallbacks, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Within `stale_if_error`, a load that takes longer than the soft timeout is answered with the
//! stale value. A call without a stale value waits up to the hard timeout. In both cases the load
//! continues and its result is stored; [`Builder::load_timeout`] cancels it.
//! [`Builder::loads_max`] bounds the concurrent loads of one cache, and a [`LoadLimiter`] those of
//! several caches. A load that waits for another load gives up its permits.
//!
//! # Invalidation
//!
//! ```
//! # use forebay::{Cache, Memory, Options};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let cache: Cache<u32> = Cache::builder("n").memory(Memory::entries(100)).build()?;
//! let tagged = cache.with(Options::new().tags(["orders", "customer:7"]));
//! tagged.set("order:1", 1).await;
//! tagged.set("order:2", 2).await;
//!
//! cache.invalidate_tag("customer:7").await;
//! assert!(cache.get("order:1").await.is_none());
//! assert!(cache.get("order:2").await.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! | call | affected entries | result |
//! |---|---|---|
//! | [`Cache::remove`] | one key | removed |
//! | [`Cache::remove_versioned`] | one key, up to a version | removed; older versions are not stored |
//! | [`Cache::expire`] | one key | stale |
//! | [`Cache::invalidate_tag`], [`Cache::invalidate_tags`] | all entries with the tag | removed |
//! | [`Cache::expire_tag`] | all entries with the tag | stale |
//! | [`Cache::invalidate_all`] | all entries | removed |
//!
//! If a key is removed or set while a load of it is in flight, the load's result goes to the
//! callers that wait for it and is not stored. So an old value never replaces a newer state.
//! Invalidating a tag takes constant time, however many entries carry it. Tags belong to no single
//! cache: an invalidated tag also affects other caches that use the same `Disk`, or the same
//! namespace of a Redis.
//!
//! # Versioned writes
//!
//! Two writers of one row may reach the cache in another order than they reached the database. If
//! each value has a version, a number that grows with each change, the cache keeps the newest.
//! [`Cache::set_versioned`] stores a value only if it is newer. [`Cache::remove_versioned`] refuses
//! older versions for [`load_timeout`](Builder::load_timeout). A load that names its
//! [version](Answer::version) does not replace a newer one. This holds in memory, in the tiers
//! below it, and between processes that share a Redis.
//!
//! # Sizing
//!
//! [`Memory::entries`] bounds a cache by its number of values; [`Memory::bytes`] by their size,
//! with a [weigher](Builder::weigher) that returns the size of a value. The bound in bytes includes
//! about 100 bytes of overhead for each entry. Memory holds each value once and decoded, also with
//! tiers below it. With tiers and no weigher, a value counts with its encoded, uncompressed length.
//! [`Cache::stats`] returns hits, misses, evictions and more; [`Cache::explain`] predicts the
//! result of a call for one key, and says why. If `evictions` does not grow, memory is large
//! enough: the misses come from lifetimes, and more memory removes none of them.
//!
//! # Many keys
//!
//! [`Cache::get_many_or_load`] calls its loader once with all missing keys, and joins loads of
//! other callers that are already in flight. [`Cache::warm`] fills a cache with a bounded number of
//! concurrent loads, in order of priority.
//!
//! ```
//! # use std::collections::HashMap;
//! # use forebay::{Cache, Error, Memory};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let cache: Cache<usize> = Cache::builder("lengths").memory(Memory::entries(100)).build()?;
//! let lengths = cache
//!     .get_many_or_load(&["one", "three"], |missing| async move {
//!         let rows = missing.into_iter().map(|key| { let length = key.len(); (key, length) });
//!         Ok::<HashMap<String, usize>, Error>(rows.collect())
//!     })
//!     .await?;
//! assert_eq!(lengths[1].as_deref(), Some(&5));
//! # Ok(())
//! # }
//! ```
//!
//! # Tiers below memory
//!
//! [`Builder::tiers`] takes tiers and a [`codec`]. Entries that memory has evicted, or that other
//! instances have written, are found there. A tier that fails or times out counts as a miss, unless
//! [`tier_errors`](Builder::tier_errors) is strict. A batch reads up to 512 keys from a tier in one
//! exchange. Each stored value names its own format, so the codec can be changed with a rolling
//! deployment. A value that cannot be decoded is a miss, and
//! [counted](Stats::decode_failures).
//!
//! | feature | adds |
//! |---|---|
//! | `disk` | `Disk`: a directory whose values survive the process; uses MessagePack |
//! | `redis` | `Redis`: a server that instances share; uses MessagePack |
//! | `serde-msgpack`, `serde-json`, `serde-postcard` | formats |
//! | `compression-gzip`, `-brotli`, `-zstd`, `-lz4`, `-snappy` | compression algorithms |
//! | `compression-dictionary` | zstd with a dictionary that is trained from a sample |
//! | `macros` | `#[forebay::cached]`, for functions |
//! | `testkit` | a manual clock, seeded random numbers and a faulty tier, for tests |
//!
//! No feature is on by default: memory alone needs neither `serde` nor a codec.
#![cfg_attr(
    all(feature = "disk", feature = "redis"),
    doc = "
```no_run
use std::time::Duration;
use forebay::{Cache, Disk, Memory, Redis};

# #[tokio::main(flavor = \"current_thread\")]
# async fn main() -> Result<(), Box<dyn std::error::Error>> {
let cache: Cache<String> = Cache::builder(\"users\")
    .memory(Memory::bytes(64 << 20))
    .memory_ttl(Duration::from_secs(10))
    .disk(Disk::open(\"/var/cache/app\", 1 << 30).await?)
    .redis(Redis::connect(\"redis://127.0.0.1\").await?)
    .ttl(Duration::from_secs(60))
    .build()?;
# Ok(())
# }
```
"
)]
#![cfg_attr(
    feature = "testkit",
    doc = "
# Testing

The feature `testkit` makes tests deterministic: a clock that the test moves, seeded random numbers,
and a tier that fails on demand; see [`testkit`].
"
)]
#![cfg_attr(
    feature = "macros",
    doc = "
# Functions

[`cached`](macro@cached) caches the results of an `async fn`, with its arguments as the key.
"
)]
//!
//! # Shutdown
//!
//! A cache of memory alone can be dropped. With tiers, loaded values are written after the calls
//! that loaded them have returned: call [`Cache::flush`] to wait for those writes, and then close
//! the `Disk`.
//!
//! # Migration
//!
//! `docs/migration` in the repository has pages for moka, cached, cachet, and hand-written two-tier
//! caches.
//!
//! The library has no global settings and reads no environment variables. Without a disk or Redis
//! tier, it starts no threads and uses no runtime but the tokio runtime of its callers. Each `Disk`
//! and each `Redis` starts threads of its own.

mod answer;
mod batch;
mod cache;
pub mod codec;
mod error;
mod key_part;
mod lifetimes;
mod options;
mod stats;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod tier;
mod tiers;

pub use answer::{Answer, Prior};
pub use batch::warm::{Warm, Warmed};
pub use cache::builder::{Builder, LoadLimiter, Memory};
pub use cache::explain::{Explanation, Prediction, StoredEntry};
pub use cache::{Cache, With};
pub use error::{BuildError, Cause, Error};
pub use forebay_engine::{BusStatus, Cluster, Tier, TierError, TierErrors};
#[cfg(feature = "macros")]
#[doc = include_str!("cached.md")]
pub use forebay_macros::cached;
pub use key_part::{KeyPart, key_of};
pub use lifetimes::schedule::Schedule;
pub use options::Options;
pub use stats::{Reasons, Stats, TierStats};
#[cfg(feature = "disk")]
pub use tiers::disk::{Disk, OpenError};
#[cfg(feature = "redis")]
pub use tiers::redis::{
    EndpointSettings, Login, Redis, RedisSettings, Servers, SettingsError, SharingSettings,
    TlsSettings,
};
pub use tiers::tier_config::TierConfig;

/// Documents of the repository, whose code examples run as doctests.
#[cfg(doctest)]
#[expect(
    rustdoc::invalid_codeblock_attributes,
    reason = "another tool reads the attributes of shell commands that must not run"
)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/migration/moka.md")]
    struct Moka;
    #[doc = include_str!("../../../docs/migration/cached.md")]
    struct Cached;
    #[doc = include_str!("../../../docs/migration/cachet.md")]
    struct Cachet;
    #[doc = include_str!("../../../docs/migration/two-tiers.md")]
    struct TwoTiers;
}

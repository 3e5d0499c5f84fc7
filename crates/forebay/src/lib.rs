//! A typed, stampede-proof cache for the inside of a service.
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
//! Keys are whatever is a `&str`; a hit copies none of it to the heap, and allocates nothing.
//! Values are held themselves, behind an `Arc`: nothing is encoded, and nothing asks for `serde`.
//! A `Cache` is made once and cloned: clones are the same cache.
//!
//! Which settings to choose, what happens when something fails, what to watch, how to stop and how
//! to test: `docs/library.md` in the repository goes through it with a whole service.
//!
//! # One load for all who ask
//!
//! All who ask for a key while it is loaded share that load, be they ten or ten thousand. The
//! load runs in a task of its own, and so its closure owns what it needs: clone handles, and write
//! `move || async move { .. }`. Callers that give up, or are dropped, take nothing with them. An
//! error reaches all who waited, as the loader gave it ([`Error::cause`]). After the second failure
//! in a row no load is begun for a moment, and callers are told what the last one failed by
//! ([`Error::BackingOff`]).
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
//! A loader may ask a cache in turn. One that would wait for itself, through however many others,
//! is told so ([`Error::Circular`]) instead of waiting for ever. What a loader spawns is not known
//! to be a part of it; there the time of a load, [`Builder::load_timeout`], ends the wait.
//!
//! # What the loader knows, and what it may say
//!
//! [`Cache::get_or_load_with`] tells the loader what is stored and no longer good enough, and lets
//! it choose: lifetime, tags, and whether there is anything at all. That there is nothing is an
//! answer like others, and remembered; a loader that says it with an error has failed, and is asked
//! again by each call. Where nothing but that matters, the loader returns an `Option`.
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
//! // The second load finds the version unchanged, and leaves the value as it is.
//! let second = cache.with(refresh).get_or_load_with("row:42", load).await?;
//! assert!(std::sync::Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
//! # Ok(())
//! # }
//! ```
//!
//! # How long values live
//!
//! | setting | a value ends |
//! |---|---|
//! | [`ttl`](Builder::ttl) | so long after it was loaded, give or take 5 % |
//! | [`sliding`](Builder::sliding) | when nobody has used it for so long, or it is so old |
//! | [`adaptive`](Builder::adaptive) | after a `ttl` that doubles while loads bring the same |
//! | [`expires_at`](Builder::expires_at) | at an hour of the day, or by another [`Schedule`] |
//! | [`negative_ttl`](Builder::negative_ttl) | if it is the knowledge that there is nothing |
//! | [`memory_ttl`](Builder::memory_ttl), [`TierConfig::ttl`] | here; tiers below are asked then |
//!
//! One answer, or one call, can say something else: [`Answer::ttl`], [`Answer::expires_at`],
//! [`Options::ttl`], [`Options::expires_at`]. That is kept to the letter.
//!
//! ```
//! # use std::time::Duration;
//! # use forebay::{Cache, Schedule, Memory};
//! # fn main() -> Result<(), forebay::BuildError> {
//! const MINUTE: Duration = Duration::from_secs(60);
//! // A session: twenty minutes after its last use, and never more than a day.
//! let sessions: Cache<String> = Cache::builder("sessions")
//!     .memory(Memory::entries(10_000))
//!     .sliding(20 * MINUTE, 24 * 60 * MINUTE)
//!     .build()?;
//! // A page that hardly ever changes: asked about each minute, then every two, up to an hour.
//! let pages: Cache<String> = Cache::builder("pages")
//!     .memory(Memory::entries(10_000))
//!     .ttl(MINUTE)
//!     .adaptive(60 * MINUTE)
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Stale values, and when
//!
//! What is past its time is not used unless a window says so. There are two, and both begin when
//! the value is no longer fresh:
//!
//! - within [`stale_while_revalidate`](Builder::stale_while_revalidate) a call is answered with the
//!   stale value at once, and one load refreshes it;
//! - within [`stale_if_error`](Builder::stale_if_error) a call waits for a load, and is answered
//!   with the stale value if that fails.
//!
//! Before its end a value may be refreshed early: the sooner, the more its load has cost, and at a
//! moment that dice choose, so that many caches do not choose the same. Nobody waits for that. It
//! is on unless [`Builder::beta`] is zero. Of the misses of a busy listing before SQLite it leaves
//! one in twelve, for four loads in a hundred more; what is asked for less than twice a second is
//! seldom asked for in time.
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
//! // The price is ten minutes old, and the database does not answer.
//! let price = cache.get_or_load("apple", || async { Err::<String, _>("no database") }).await?;
//! assert_eq!(*price, "1.20");
//! assert_eq!(cache.stats().fallbacks, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Within the window a load that takes longer than the soft timeout is answered with what is
//! stale. A call that has nothing to fall back on waits up to the hard timeout. In either case the
//! load goes on, and what it brings is kept; it is given up after [`Builder::load_timeout`].
//! At most [`Builder::loads_max`] loads are under way at once, and as many as a [`LoadLimiter`]
//! allows to several caches together. A loader that waits for another load gives up its places.
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
//! | call | reaches | and what it reaches |
//! |---|---|---|
//! | [`Cache::remove`] | one key | is gone |
//! | [`Cache::remove_versioned`] | one key, up to a version | is gone, and stays so |
//! | [`Cache::expire`] | one key | is stale |
//! | [`Cache::invalidate_tag`], [`Cache::invalidate_tags`] | all that carries a tag | is gone |
//! | [`Cache::expire_tag`] | all that carries a tag | is stale |
//! | [`Cache::invalidate_all`] | everything | is gone |
//!
//! A load that is under way when its key is removed, or set, answers those who wait for it and is
//! not kept: what was true before never comes back. Removing by tag costs the same however much
//! carries it.
//!
//! # Writers that know versions
//!
//! Two writers of one row may tell the cache in another order than the database has heard of them.
//! Where rows have a version, a number that grows, the cache puts that right:
//! [`Cache::set_versioned`] stores only what is newer, [`Cache::remove_versioned`] keeps out what
//! is older for the time of a load, and a load that names its [version](Answer::version) does not
//! replace a newer one. It holds in memory, in tiers below it, and between processes that share a
//! Redis.
//!
//! # Sizing
//!
//! [`Memory::entries`] bounds a cache by a number, exactly; [`Memory::bytes`] by what it takes,
//! with a [weigher](Builder::weigher) that says what each value owns. Overhead is some hundred
//! bytes an entry, and counted. With tiers below it, memory holds as many values as without: each
//! once, as itself, and not as it is written. Where there is no weigher, what is written of a
//! value, before it is compressed, stands for what it owns. [`Cache::stats`] tells hits, misses,
//! evictions and more; [`Cache::explain`] what a call for one key would do now, and why. Evictions
//! that stand still say that there is room enough: then misses come of lifetimes, and more memory
//! brings nothing.
//!
//! # Many keys
//!
//! [`Cache::get_many_or_load`] calls its loader once for all keys that are missing, and joins the
//! loads of those that somebody loads already. [`Cache::warm`] fills a cache a few loads at a
//! time, the most important keys first.
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
//! [`Builder::tiers`] takes tiers and a [`codec`]: what memory has let go of is found there, and
//! what other instances have written. A tier that fails makes a hit a miss, within a time of its
//! own. Many keys are read from a tier in one exchange. What is written says itself how to read
//! it, so that a codec is changed by deploying one instance after the other; what cannot be read
//! is a miss, and [counted](Stats::decode_failures).
//!
//! | feature | brings |
//! |---|---|
//! | `disk` | `Disk`, a directory in which values outlive the process; with MessagePack |
//! | `redis` | `Redis`, a server that instances share; with MessagePack |
//! | `serde-msgpack`, `serde-json`, `serde-postcard` | formats |
//! | `compression-gzip`, `-brotli`, `-zstd`, `-lz4`, `-snappy` | compressions |
//! | `compression-dictionary` | zstd with a dictionary that is trained from a sample |
//! | `macros` | `#[forebay::cached]`, for functions |
//! | `testkit` | a clock, dice and a tier for tests |
//!
//! None of them is on unless asked for: memory alone needs neither `serde` nor a codec.
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

What uses a cache is tested without waiting and without luck: the feature `testkit` has a clock that
is moved by hand, dice that are seeded, and a tier that fails as it is told; see [`testkit`].
"
)]
#![cfg_attr(
    feature = "macros",
    doc = "
# Functions

[`cached`](macro@cached) puts a cache before an `async fn`, with its arguments as the key.
"
)]
//!
//! # Stopping
//!
//! A cache of memory alone is dropped. What calls have brought is written to tiers behind them, and
//! so a process that is to end waits for it with [`Cache::flush`], and closes its `Disk` then.
//!
//! # PendingRead from elsewhere
//!
//! There are pages for those who come from moka, from cached, from cachet, and from two tiers of
//! one's own making, under `docs/migration` in the repository.
//!
//! Deliberately absent: globals, environment variables, threads of its own, and any runtime but
//! that of tokio which the calls are made on.

mod answer;
mod batched_reads;
mod builder;
mod cache;
mod call;
pub mod codec;
#[cfg(feature = "disk")]
mod disk;
mod error;
mod explain;
mod get_future;
mod key_part;
mod lifetimes;
mod load;
mod load_cycles;
mod many;
mod options;
#[cfg(feature = "redis")]
mod redis;
mod schedule;
mod shared;
mod stats;
#[cfg(feature = "testkit")]
pub mod testkit;
mod tier_config;
mod warm;

pub use answer::{Answer, Prior};
pub use builder::{Builder, LoadLimiter, Memory};
pub use cache::{Cache, With};
#[cfg(feature = "disk")]
pub use disk::{Disk, OpenError};
pub use error::{BuildError, Cause, Error};
pub use explain::{Explanation, Prediction, StoredEntry};
/// A tier below memory, as [`Builder::tiers`] takes it.
pub use forebay_engine::{BusStatus, Cluster, Tier, TierError, TierErrors};
#[cfg(feature = "macros")]
#[doc = include_str!("cached.md")]
pub use forebay_macros::cached;
pub use key_part::{KeyPart, key_of};
pub use options::Options;
#[cfg(feature = "redis")]
pub use redis::{
    EndpointSettings, Login, Redis, RedisSettings, Servers, SettingsError, SharingSettings,
    TlsSettings,
};
pub use schedule::Schedule;
pub use stats::{Reasons, Stats, TierStats};
pub use tier_config::TierConfig;
pub use warm::{Warm, Warmed};

/// Pages of the repository: what they print compiles, and runs.
#[cfg(doctest)]
#[expect(
    rustdoc::invalid_codeblock_attributes,
    reason = "commands that are not run say so to another program"
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

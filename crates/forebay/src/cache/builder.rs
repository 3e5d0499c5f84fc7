//! The builder of a cache. `build` rejects settings that contradict each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Demand, KeyBuf};
use forebay_engine::{
    Clock, Cluster, Engine, Limits, Observer, SystemClock, TierErrors, TierSetup,
};
use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::cache::shared::{Shared, ValueEq, Weigher};
use crate::codec::{Codec, DynCodec, Format};
use crate::error::BuildError;
use crate::lifetimes::schedule::Schedule;
use crate::lifetimes::{Lifetimes, Sliding};
use crate::stats::Counts;
use crate::tiers::tier_config::TierConfig;

mod checks;

/// Default maximum duration of a load: longer than a query that a client waits for, and an end for
/// one that hangs.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit of the engine for body bytes in flight. Typed values have no bodies, so the limit is far
/// above any memory size and never rejects a load.
const IN_FLIGHT_MAX: u64 = 1 << 50;

/// Largest memory size, in bytes or entries: its sum with [`IN_FLIGHT_MAX`] is exact up to here.
const MEMORY_MAX: u64 = 1 << 49;

/// Smallest cache, in entries, that reserves a 16th of its memory for absent values. The share
/// accepts entries of up to a quarter of its size; smaller caches keep absent values among others.
const ABSENT_SHARE_ENTRIES_MIN: u64 = 64;
/// Smallest cache, in bytes, that reserves a 16th of its memory for absent values.
const ABSENT_SHARE_BYTES_MIN: u64 = 64 << 10;

/// Default `value_max` as a fraction of memory: one 64th allows enough shards that threads seldom
/// contend for a lock.
const VALUE_MAX_DIVISOR: u64 = 64;

/// Assumed size of an entry in bytes, with its key and overhead.
const TYPICAL_ENTRY_BYTES: u64 = 1 << 10;

/// Upper limit of the default `value_max` of small caches, which is a quarter of their memory.
const VALUE_MAX_SMALL_CACHE: u64 = 256 << 10;

/// Largest bound in entries that holds exactly, with a single shard. Larger caches spread their
/// entries over several shards, so that threads seldom contend, and the shards fill up one by one.
const EXACT_ENTRIES_MAX: u64 = 16_384;

/// Bound on the size of a cache's memory tier: in bytes, or as a number of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(Bound);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Bytes(u64),
    Entries(u64),
}

impl Memory {
    /// Creates a bound in bytes, which includes keys and overhead. The [weigher](Builder::weigher)
    /// returns the size of each value. A 16th of the bound is reserved for absent values.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(Bound::Bytes(bytes))
    }

    /// Creates a bound on the number of values, plus a 15th as many absent values; below 64 values,
    /// absent ones count as values. Up to 16,384 entries the bound is exact. Larger caches never
    /// exceed it, and begin to evict a few percent below it.
    #[must_use]
    pub const fn entries(entries: u64) -> Self {
        Self(Bound::Entries(entries))
    }
}

/// Limit on concurrent loads that several caches share, for example all caches of one database; for
/// [`Builder::load_limiter`]. Clones are the same limit.
#[derive(Clone, Debug)]
pub struct LoadLimiter(Arc<Semaphore>);

impl LoadLimiter {
    /// Creates a limit of this many concurrent loads; zero counts as one.
    #[must_use]
    pub fn at_most(loads: usize) -> Self {
        Self(Arc::new(Semaphore::new(loads.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

/// Settings of a cache that is to be built, from [`Cache::builder`](crate::Cache::builder);
/// [`build`](Self::build) creates the cache. A cache shares only the tiers and the load limiter
/// that it is given with other caches, and reads no environment variables.
#[must_use]
pub struct Builder<V> {
    name: String,
    memory: Option<Memory>,
    value_max: Option<u64>,
    weigher: Option<Weigher<V>>,
    lifetimes: Lifetimes,
    memory_ttl: Option<Duration>,
    value_eq: Option<ValueEq<V>>,
    demand: Demand,
    hard_timeout: Option<Duration>,
    load_timeout: Duration,
    loads_max: Option<usize>,
    load_limiter: Option<LoadLimiter>,
    keys_in_errors: bool,
    clock: Arc<dyn Clock>,
    codec: Option<Arc<dyn DynCodec<V>>>,
    tiers: Vec<TierConfig>,
    tier_errors: TierErrors,
    cluster: Option<Cluster>,
}

impl<V: Send + Sync + 'static> Builder<V> {
    pub(crate) fn new(name: String) -> Self {
        let lifetimes = Lifetimes {
            ttl: None,
            negative_ttl: None,
            expires_at: None,
            adaptive_max: None,
            sliding: None,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            jitter: true,
        };
        Self {
            name,
            memory: None,
            value_max: None,
            weigher: None,
            lifetimes,
            memory_ttl: None,
            value_eq: None,
            demand: Demand::default(),
            hard_timeout: None,
            load_timeout: LOAD_TIMEOUT,
            loads_max: None,
            load_limiter: None,
            keys_in_errors: false,
            clock: Arc::new(SystemClock),
            codec: None,
            tiers: Vec::new(),
            tier_errors: TierErrors::default(),
            cluster: None,
        }
    }

    /// Sets the size of the memory tier. Required.
    pub const fn memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets the function that returns the size of a value in bytes, with the memory that the value
    /// owns, given its key. Required for a bound in bytes, except for types that own no memory and
    /// for caches with tiers. Not allowed with a bound on the number of values. With tiers the
    /// default is the length of the encoded value before compression.
    pub fn weigher(mut self, weigh: impl Fn(&str, &V) -> usize + Send + Sync + 'static) -> Self {
        self.weigher = Some(Arc::new(weigh));
        self
    }

    /// Sets the maximum size in bytes of an entry in memory. The size includes about 100 bytes of
    /// overhead, and not the key. Larger entries are not stored in memory; lower tiers may store
    /// them. Default: a 64th of the memory bound, but at least 256 KiB or a quarter of the bound,
    /// whichever is smaller. With a bound on the number of values, [`build`](Self::build) fails.
    pub const fn value_max(mut self, bytes: u64) -> Self {
        self.value_max = Some(bytes);
        self
    }

    /// Sets the freshness lifetime of values, with a jitter of up to 5 %. Default: values stay
    /// fresh until they are removed or evicted. Cannot be combined with
    /// [`expires_at`](Self::expires_at) or [`sliding`](Self::sliding).
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.lifetimes.ttl = Some(ttl);
        self
    }

    /// Sets a schedule: values become stale at the schedule's next time, such as midnight, plus a
    /// random part of its [spread](Schedule::spread). Cannot be combined with [`ttl`](Self::ttl) or
    /// [`sliding`](Self::sliding).
    pub const fn expires_at(mut self, schedule: Schedule) -> Self {
        self.lifetimes.expires_at = Some(schedule);
        self
    }

    /// Sets a sliding lifetime: a value stays fresh while each use follows the previous one within
    /// `idle`, and for `max` at most after its load. Cannot be combined with [`ttl`](Self::ttl) or
    /// [`expires_at`](Self::expires_at). `idle` is at least one second, and `max` is longer. A use
    /// is recorded at most 16 times within `idle`, so the effective idle time can be a 16th
    /// shorter. Absent values, and values whose own `ttl` is shorter than `idle`, do not slide.
    ///
    /// Only memory records uses. [Tiers](Self::tiers) below it keep a value for `idle` after its
    /// load. A value that is found there within that time slides on in memory; a value that memory
    /// evicts later is loaded again. So an unused value never returns, and other instances see a
    /// change after `max` at the latest.
    pub const fn sliding(mut self, idle: Duration, max: Duration) -> Self {
        self.lifetimes.sliding = Some(Sliding { idle, max });
        self
    }

    /// Sets an adaptive lifetime: each time a load returns an equal value, or an
    /// [unchanged](crate::Answer::unchanged) answer, the lifetime of the value doubles, up to
    /// `max`. A changed value starts with the [`ttl`](Self::ttl) again, which is required and must
    /// be shorter than `max`.
    pub fn adaptive(mut self, max: Duration) -> Self
    where
        V: PartialEq,
    {
        self.lifetimes.adaptive_max = Some(max);
        self.value_eq = Some(V::eq);
        self
    }

    /// Sets the time for which memory serves a value before it asks the [tiers](Self::tiers) below
    /// for a newer one. It bounds how long two instances can differ. The check loads nothing from
    /// the origin if a tier has a fresh value. Requires lower tiers. Default: the
    /// [limit](TierConfig::ttl) of the tier below, or else the value's own lifetime.
    pub const fn memory_ttl(mut self, ttl: Duration) -> Self {
        self.memory_ttl = Some(ttl);
        self
    }

    /// Sets the freshness lifetime of absent values, with a jitter of up to 5 %. Default: the
    /// lifetime of values.
    pub const fn negative_ttl(mut self, ttl: Duration) -> Self {
        self.lifetimes.negative_ttl = Some(ttl);
        self
    }

    /// Sets the time after the end of freshness during which a stale value is served while one load
    /// refreshes it in the background. A key that is requested at least this often never makes a
    /// call wait, as long as loads succeed. Requires values that become stale. Default: zero.
    pub const fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.lifetimes.stale_while_revalidate = window;
        self
    }

    /// Sets the time after the end of freshness during which a stale value is served if a load
    /// fails: the longest outage of the origin that callers do not notice. It is also served if no
    /// load starts (back-off, limits), or if the load exceeds a soft or hard timeout. It must be
    /// zero or at least as long as [`stale_while_revalidate`](Self::stale_while_revalidate).
    /// Requires values that become stale. Default: zero.
    pub const fn stale_if_error(mut self, window: Duration) -> Self {
        self.lifetimes.stale_if_error = window;
        self
    }

    /// Enables or disables the random variation of [`ttl`](Self::ttl), [`adaptive`](Self::adaptive)
    /// and [`negative_ttl`](Self::negative_ttl) lifetimes by up to 5 % in both directions. Values
    /// that were loaded together then do not expire together. Default: enabled. A `ttl` that an
    /// answer or a call sets is never varied.
    pub const fn jitter(mut self, jitter: bool) -> Self {
        self.lifetimes.jitter = jitter;
        self
    }

    /// Sets the factor of early refresh, which loads a used value again in the background within
    /// the last tenth of its lifetime. 0 disables it, 1 is the published optimum (XFetch) and the
    /// default, and larger values refresh earlier. The factor must be finite and not negative.
    pub const fn beta(mut self, beta: f64) -> Self {
        self.demand.beta = beta;
        self
    }

    /// Sets the time after which calls that wait for a load get the stale value instead, if there
    /// is one within [`stale_if_error`](Self::stale_if_error). The time runs from the start of the
    /// load, or of its search in lower tiers. The load continues, and its result is stored.
    /// Requires `stale_if_error`, and a longer [`hard_timeout`](Self::hard_timeout) if both are
    /// set. Default: the hard timeout, or else none, so that calls wait for the load.
    pub const fn soft_timeout(mut self, after: Duration) -> Self {
        self.demand.soft_timeout = Some(after);
        self
    }

    /// Sets the maximum time that a call with a loader waits. After it, the call gets the stale
    /// value, if there is one within [`stale_if_error`](Self::stale_if_error), or fails with
    /// [`Error::TimedOut`](crate::Error::TimedOut). The load continues, and its result is stored.
    /// Calls that only look up are bounded by the time limits of the tiers. Default: none.
    pub const fn hard_timeout(mut self, after: Duration) -> Self {
        self.hard_timeout = Some(after);
        self
    }

    /// Sets the maximum duration of a load, after which it is cancelled and fails with
    /// [`Error::TimedOut`](crate::Error::TimedOut). Before it starts, a load waits at most as long
    /// for a permit of [`loads_max`](Self::loads_max), and then at most as long for one of the
    /// [load limiter](Self::load_limiter). Versions are remembered for this time, too
    /// ([`Cache::set_versioned`](crate::Cache::set_versioned)). Default: one minute.
    pub const fn load_timeout(mut self, after: Duration) -> Self {
        self.load_timeout = after;
        self
    }

    /// Sets the maximum number of concurrent loads of this cache, background refreshes included.
    /// Further loads wait for a permit for up to [`load_timeout`](Self::load_timeout), and then
    /// fail with [`Error::Overloaded`](crate::Error::Overloaded). A batch counts as one load; a
    /// load that waits for another one gives up its permit. Default: unlimited.
    pub const fn loads_max(mut self, loads: usize) -> Self {
        self.loads_max = Some(loads);
        self
    }

    /// Adds a limit on concurrent loads that is shared with other caches;
    /// [`loads_max`](Self::loads_max) applies as well.
    pub fn load_limiter(mut self, limiter: &LoadLimiter) -> Self {
        self.load_limiter = Some(limiter.clone());
        self
    }

    /// Adds the key to the errors of calls, as [`Error::ForKey`](crate::Error::ForKey). Default:
    /// disabled, because keys may be personal data and errors end in logs.
    pub const fn keys_in_errors(mut self) -> Self {
        self.keys_in_errors = true;
        self
    }

    /// Adds tiers below memory, the fastest first, and sets the codec of the values in all lower
    /// tiers. They hold entries that memory has evicted and that other instances have written. Use
    /// a [`TierConfig`] to give a tier a maximum lifetime.
    pub fn tiers<F: Format<V> + Send + Sync + 'static>(
        mut self,
        codec: Codec<F>,
        tiers: impl IntoIterator<Item: Into<TierConfig>>,
    ) -> Self {
        self.codec = Some(Arc::new(codec));
        self.tiers.extend(tiers.into_iter().map(Into::into));
        self
    }

    /// Sets the codec of the values in all lower tiers; the last call of `codec` or
    /// [`tiers`](Self::tiers) counts. Default for tiers that `disk` and `redis` add: uncompressed
    /// MessagePack.
    pub fn codec<F: Format<V> + Send + Sync + 'static>(mut self, codec: Codec<F>) -> Self {
        self.codec = Some(Arc::new(codec));
        self
    }

    /// Adds a directory as the next lower tier, with entries that survive the process. Values are
    /// encoded as uncompressed MessagePack unless [`codec`](Self::codec) sets another codec.
    #[cfg(feature = "disk")]
    pub fn disk(self, disk: crate::tiers::disk::Disk) -> Self
    where
        V: serde::Serialize + serde::de::DeserializeOwned,
    {
        self.push_tier(disk)
    }

    /// Adds a Redis server as the next lower tier, which several processes share. Values are
    /// encoded as uncompressed MessagePack unless [`codec`](Self::codec) sets another codec.
    ///
    /// It also joins this cache with the caches of the same name in other processes, as
    /// [`cluster`](Self::cluster) does. It does not if the settings have no
    /// [`sharing`](crate::RedisSettings::sharing), or if a cluster is set already. Each cache needs
    /// a `Redis` of its own, not a clone, because a bus delivers to one cache only.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, redis: crate::tiers::redis::Redis) -> Self
    where
        V: serde::Serialize + serde::de::DeserializeOwned,
    {
        if self.cluster.is_none() {
            self.cluster = redis.cluster();
        }
        self.push_tier(redis)
    }

    #[cfg(any(feature = "disk", feature = "redis"))]
    fn push_tier(mut self, tier: impl Into<TierConfig>) -> Self
    where
        V: serde::Serialize + serde::de::DeserializeOwned,
    {
        let messagepack =
            || Arc::new(Codec::new(crate::codec::MessagePack)) as Arc<dyn DynCodec<V>>;
        self.codec.get_or_insert_with(messagepack);
        self.tiers.push(tier.into());
        self
    }

    /// Sets the effect of a failed read of a lower tier. Default: graceful, where the failure
    /// counts as a miss and the value is loaded. If strict, the call loads nothing: it gets a stale
    /// value within [`stale_if_error`](Self::stale_if_error), or fails with
    /// [`Error::Tier`](crate::Error::Tier). Hits in memory and background refreshes are not
    /// affected.
    pub const fn tier_errors(mut self, errors: TierErrors) -> Self {
        self.tier_errors = errors;
        self
    }

    /// Connects this cache to the caches of the same name in other processes. One process loads a
    /// key while the others wait for its result, for up to ten seconds by default. An invalidation
    /// reaches all of them. The processes share one of the [`tiers`](Self::tiers), which also
    /// carries leases and the bus: for Redis, pass the tier twice to [`Cluster::new`].
    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Sets the clock from which the cache computes lifetimes, ages and back-off. Timeouts use the
    /// clock of tokio. Default: the system's clock.
    #[cfg(feature = "testkit")]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the cache.
    ///
    /// # Errors
    /// A setting is missing or out of range, or two settings contradict each other. The message
    /// names the setting.
    pub fn build(self) -> Result<Cache<V>, BuildError> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        self.check()?;
        let limits = self.limits()?;
        // Only a tier that is shared with other caches needs the name in its keys.
        let key_prefix = if self.tiers.is_empty() { "" } else { &self.name };
        let key_prefix = KeyBuf::new(key_prefix).borrowed().to_key();
        let (tiers, memory_ttl) = inherit_ttls(self.tiers, self.memory_ttl);
        let counts = Arc::new(Counts::over(tiers.iter().map(|tier| tier.name)));
        let observer: Arc<dyn Observer> = counts.clone();
        let engine = match self.cluster {
            Some(cluster) => Engine::clustered(limits, self.clock, observer, tiers, cluster),
            None => Engine::with_tiers(limits, self.clock, observer, tiers),
        };
        // The cache's own permit comes first: a load that holds a shared permit starts at once.
        let own = self.loads_max.map(|loads| LoadLimiter::at_most(loads).0);
        let semaphores =
            own.into_iter().chain(self.load_limiter.map(|limiter| limiter.0)).collect();
        let mut demand = self.demand;
        demand.soft_timeout = demand.soft_timeout.or(self.hard_timeout);
        demand.min_fresh = self.lifetimes.sliding.map(Sliding::record_below);
        let shared = Shared {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            key_prefix,
            name: self.name.into(),
            engine,
            counts,
            demand,
            lifetimes: self.lifetimes,
            memory_ttl,
            value_eq: self.value_eq,
            keys_in_errors: self.keys_in_errors,
            weigher: self.weigher,
            codec: self.codec,
            bounded_by_entries: matches!(self.memory, Some(Memory(Bound::Entries(_)))),
            separate_absent: match self.memory {
                Some(Memory(Bound::Entries(entries))) => entries >= ABSENT_SHARE_ENTRIES_MIN,
                Some(Memory(Bound::Bytes(bytes))) => bytes >= ABSENT_SHARE_BYTES_MIN,
                None => false,
            },
            semaphores,
            load_timeout: self.load_timeout,
            hard_timeout: self.hard_timeout,
            tier_errors: self.tier_errors,
        };
        Ok(Cache { shared: Arc::new(shared) })
    }

    fn limits(&self) -> Result<Limits, BuildError> {
        let Some(Memory(bound)) = self.memory else {
            return reject("`memory` is missing: set it to `Memory::bytes` or `Memory::entries`");
        };
        let (size, object_max) = match bound {
            Bound::Bytes(0) | Bound::Entries(0) => {
                return reject("`memory` is zero: it must hold at least one value");
            }
            Bound::Entries(bound) | Bound::Bytes(bound) if bound > MEMORY_MAX => {
                return reject(format!("`memory` is {bound}: the maximum is {MEMORY_MAX}"));
            }
            Bound::Entries(entries) => (with_absent_share(entries), self.entry_max(entries)?),
            Bound::Bytes(bytes) => (bytes, self.byte_max(bytes)?),
        };
        let typical = if matches!(bound, Bound::Entries(_)) { 1 } else { TYPICAL_ENTRY_BYTES };
        let memory = size + IN_FLIGHT_MAX;
        Ok(Limits { memory, object_max, in_flight_max: IN_FLIGHT_MAX, typical })
    }

    fn entry_max(&self, entries: u64) -> Result<u64, BuildError> {
        if self.value_max.is_some() || self.weigher.is_some() {
            return reject(
                "`memory` is a number of entries, but `weigher` and `value_max` need a bound in \
                 bytes: remove them, or use `Memory::bytes`",
            );
        }
        let is_exact = entries <= EXACT_ENTRIES_MAX;
        Ok(if is_exact { entries } else { (entries / VALUE_MAX_DIVISOR).max(1) })
    }

    fn byte_max(&self, bytes: u64) -> Result<u64, BuildError> {
        if self.weigher.is_none() && self.codec.is_none() && std::mem::needs_drop::<V>() {
            return reject(
                "`memory` is a bound in bytes, but the size of a value is unknown because values \
                 own memory: set a `weigher`, or use `Memory::entries`",
            );
        }
        match self.value_max {
            Some(max) if max > bytes || max == 0 => reject(format!(
                "`value_max` is {max} bytes and `memory` {bytes} bytes: `value_max` must be \
                 between 1 and `memory`"
            )),
            Some(max) => Ok(max),
            None => Ok((bytes / VALUE_MAX_DIVISOR).max(VALUE_MAX_SMALL_CACHE.min(bytes / 4))),
        }
    }
}

/// Gives each tier without a limit of its own, and memory, the limit of the tier below: an entry
/// that has left a tier must not stay in a higher one.
fn inherit_ttls(
    configs: Vec<TierConfig>,
    memory_ttl: Option<Duration>,
) -> (Vec<TierSetup>, Option<Duration>) {
    let mut shortest = None;
    let mut tiers = Vec::with_capacity(configs.len());
    for mut config in configs.into_iter().rev() {
        config.ttl = config.ttl.or(shortest);
        shortest = config.ttl;
        tiers.push(config.setup());
    }
    tiers.reverse();
    (tiers, memory_ttl.or(shortest))
}

/// Returns the memory size that leaves space for this many values beside the absent values' share.
const fn with_absent_share(entries: u64) -> u64 {
    let size = entries + entries / 15;
    if size - size / 16 < entries { size + 1 } else { size }
}

fn reject<T>(message: impl Into<String>) -> Result<T, BuildError> {
    Err(BuildError(message.into()))
}

#[cfg(test)]
mod tests;

//! Building a cache, and refusing what cannot work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Demand, KeyBuf};
use forebay_engine::{Clock, Cluster, Engine, Limits, Observer, SystemClock, Tier, TierErrors};
use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::codec::{Codec, DynCodec, Format};
use crate::error::BuildError;
use crate::lifetimes::{Lifetimes, Sliding};
use crate::schedule::Schedule;
use crate::shared::{Shared, ValueEq, Weigher};
use crate::stats::Counts;
use crate::tier_config::TierConfig;

mod checks;

/// How long a load may take unless told otherwise: longer than any query somebody waits for,
/// and an end for one that hangs.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Bodies in flight are bytes of lower tiers and of peers, which values are not. Far above what
/// any bound of memory can be, so that it is never what refuses.
const IN_FLIGHT_MAX: u64 = 1 << 50;

/// The largest bound of memory: what is left beside bodies in flight is exact up to here.
const MEMORY_MAX: u64 = 1 << 49;

/// Memory keeps a sixteenth for what is known to be absent, and takes nothing there that is more
/// than a quarter of that. Smaller caches than these keep it among the values.
const ENTRIES_APART: u64 = 64;
const BYTES_APART: u64 = 64 << 10;

/// Values below this part of the bound are taken unless told otherwise: so many shards can be had
/// that threads rarely meet.
const VALUE_SHARE: u64 = 64;

/// What a value takes as a rule, key and overhead included.
const TYPICAL: u64 = 1 << 10;

/// Small caches take values of up to a quarter of the bound, but need not take more than this.
const VALUE_SMALL: u64 = 256 << 10;

/// Up to here a bound in entries is exact: one shard. Beyond it threads would meet too often, and
/// the entries are spread over shards that fill up one by one.
const ENTRIES_EXACT: u64 = 16_384;

/// The room of the memory tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(Bound);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Bytes(u64),
    Entries(u64),
}

impl Memory {
    /// So many bytes, keys and overhead included. How much a value takes, its
    /// [weigher](Builder::weigher) says.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self(Bound::Bytes(bytes))
    }

    /// So many values: exactly, up to 16,384, and a fifteenth as many keys more of which is known
    /// that there is nothing under them. Larger caches hold at most so many, and begin to
    /// let go of some when they are a few percent short of it.
    #[must_use]
    pub const fn entries(entries: u64) -> Self {
        Self(Bound::Entries(entries))
    }
}

/// Caches that load from one place and share a bound on how many loads it bears at once.
#[derive(Clone, Debug)]
pub struct LoadLimiter(Arc<Semaphore>);

impl LoadLimiter {
    /// At most so many loads at once; at least one.
    #[must_use]
    pub fn at_most(loads: usize) -> Self {
        Self(Arc::new(Semaphore::new(loads.clamp(1, Semaphore::MAX_PERMITS))))
    }
}

/// A cache to be built. Nothing is shared with other caches, and nothing is taken from the
/// environment.
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

    /// The room of the memory tier. Has to be given.
    pub const fn memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// How many bytes a value takes, what it owns included. Has to be given for a bound in bytes,
    /// unless values own nothing beside themselves, or there are tiers: then what a value owns
    /// counts as much as what is written of it before that is compressed, if nothing else is said.
    pub fn weigher(mut self, weigh: impl Fn(&str, &V) -> usize + Send + Sync + 'static) -> Self {
        self.weigher = Some(Arc::new(weigh));
        self
    }

    /// The heaviest entry that is kept, in bytes with its overhead of some hundred. Unless told
    /// otherwise a 64th of the bound; in small caches a quarter of it, or 256 KiB.
    pub const fn value_max(mut self, bytes: u64) -> Self {
        self.value_max = Some(bytes);
        self
    }

    /// How long values are fresh. Unless told otherwise they are until they are removed, or make
    /// room for others.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.lifetimes.ttl = Some(ttl);
        self
    }

    /// Values are fresh until an hour of the day, or of another [`Schedule`]; in the place of a
    /// `ttl`.
    pub const fn expires_at(mut self, schedule: Schedule) -> Self {
        self.lifetimes.expires_at = Some(schedule);
        self
    }

    /// Values are fresh for as long as each use comes within `idle` of the one before, but never
    /// for longer than `max`: after that even the busiest value is loaded anew. In the place of a
    /// `ttl`. A use is noted at most sixteen times in `idle`, which so may be a sixteenth shorter.
    ///
    /// It is memory that notes uses. [Tiers](Self::tiers) below it keep a value for `idle` after
    /// its load, whether it is used or not: what is found there within that time slides on from
    /// there, and what memory has let go of later is loaded anew. So nothing ever comes back that
    /// nobody has used, and other instances see a change after `max` at the latest.
    pub const fn sliding(mut self, idle: Duration, max: Duration) -> Self {
        self.lifetimes.sliding = Some(Sliding { idle, max });
        self
    }

    /// A value that is loaded again and is the same as before lives twice as long as before, up to
    /// `max`; one that has changed begins with the `ttl` again. What
    /// [answers](crate::Answer::unchanged) that it is unchanged is the same, too.
    pub fn adaptive(mut self, max: Duration) -> Self
    where
        V: PartialEq,
    {
        self.lifetimes.adaptive_max = Some(max);
        self.value_eq = Some(V::eq);
        self
    }

    /// For how long memory believes what [tiers](Self::tiers) below it keep for longer. From then
    /// on they are asked whether they have something newer, as another instance may have written;
    /// that bounds for how long two instances may differ. Nothing is loaded for it. Unless told
    /// otherwise memory believes it for as long as the tier below it keeps it.
    pub const fn memory_ttl(mut self, ttl: Duration) -> Self {
        self.memory_ttl = Some(ttl);
        self
    }

    /// How long it is believed that there is nothing under a key; as long as values are fresh
    /// unless told otherwise.
    pub const fn negative_ttl(mut self, ttl: Duration) -> Self {
        self.lifetimes.negative_ttl = Some(ttl);
        self
    }

    /// For how long after its time a value is served while one load refreshes it: nobody waits
    /// for a value that is asked for at least this often.
    pub const fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.lifetimes.stale_while_revalidate = window;
        self
    }

    /// For how long after its time a value is served when a load fails: how long an outage may
    /// last unnoticed.
    pub const fn stale_if_error(mut self, window: Duration) -> Self {
        self.lifetimes.stale_if_error = window;
        self
    }

    /// Whether lifetimes that this cache has chosen are spread by up to 5 % either way, so that
    /// what was loaded together does not expire together. They are, unless told otherwise.
    pub const fn jitter(mut self, jitter: bool) -> Self {
        self.lifetimes.jitter = jitter;
        self
    }

    /// How eagerly values are refreshed shortly before their end: 0 never, 1 the published
    /// optimum and the default, more is earlier.
    pub const fn beta(mut self, beta: f64) -> Self {
        self.demand.beta = beta;
        self
    }

    /// How long a load may take before a stale value is served in its stead, where there is one
    /// within [`stale_if_error`](Self::stale_if_error). The load goes on, and what it brings is
    /// kept.
    pub const fn soft_timeout(mut self, after: Duration) -> Self {
        self.demand.soft_timeout = Some(after);
        self
    }

    /// How long any call waits. The load goes on, and what it brings is kept.
    pub const fn hard_timeout(mut self, after: Duration) -> Self {
        self.hard_timeout = Some(after);
        self
    }

    /// How long a load may take before it is given up, and how long it may wait for its turn.
    /// A minute unless told otherwise.
    pub const fn load_timeout(mut self, after: Duration) -> Self {
        self.load_timeout = after;
        self
    }

    /// How many loads may be under way at once. Others wait for their turn.
    pub const fn loads_max(mut self, loads: usize) -> Self {
        self.loads_max = Some(loads);
        self
    }

    /// The same, together with other caches. Both bounds hold where both are given.
    pub fn load_limiter(mut self, limiter: &LoadLimiter) -> Self {
        self.load_limiter = Some(limiter.clone());
        self
    }

    /// Lets errors name the key that they are about, as [`Error::ForKey`](crate::Error::ForKey). They do
    /// not unless told so: keys may be personal, and errors end in logs.
    pub const fn keys_in_errors(mut self) -> Self {
        self.keys_in_errors = true;
        self
    }

    /// Tiers below memory, the uppermost first, and how values are written in them. What memory
    /// has let go of is found there, and what other instances have written. A tier that is to
    /// keep values for a time of its own is a [`TierConfig`].
    pub fn tiers<F: Format<V> + Send + Sync + 'static>(
        mut self,
        codec: Codec<F>,
        tiers: impl IntoIterator<Item: Into<TierConfig>>,
    ) -> Self {
        self.codec = Some(Arc::new(codec));
        self.tiers.extend(tiers.into_iter().map(Into::into));
        self
    }

    /// How values are written in tiers below memory, where these are given one by one.
    pub fn codec<F: Format<V> + Send + Sync + 'static>(mut self, codec: Codec<F>) -> Self {
        self.codec = Some(Arc::new(codec));
        self
    }

    /// A directory below what was given before. Values are written as MessagePack, uncompressed,
    /// unless a [`codec`](Self::codec) says otherwise.
    #[cfg(feature = "disk")]
    pub fn disk(self, disk: crate::Disk) -> Self
    where
        V: serde::Serialize + serde::de::DeserializeOwned,
    {
        self.below(disk)
    }

    /// A server below what was given before; as with a [directory](Self::disk).
    #[cfg(feature = "redis")]
    ///
    /// It also joins this cache with those of the same name in other processes, as a
    /// [`cluster`](Self::cluster) does. Each cache needs a handle of its own.
    pub fn redis(mut self, redis: crate::Redis) -> Self
    where
        V: serde::Serialize + serde::de::DeserializeOwned,
    {
        if self.cluster.is_none() {
            self.cluster = redis.cluster();
        }
        self.below(redis)
    }

    #[cfg(any(feature = "disk", feature = "redis"))]
    fn below(mut self, below: impl Into<TierConfig>) -> Self
    where
        V: serde::Serialize + serde::de::DeserializeOwned,
    {
        let usual = || Arc::new(Codec::new(crate::codec::MessagePack)) as Arc<dyn DynCodec<V>>;
        self.codec.get_or_insert_with(usual);
        self.tiers.push(below.into());
        self
    }

    /// What a tier below memory means that cannot be read: unless told otherwise a miss. Strict
    /// calls get [`Error::Tier`](crate::Error::Tier) in the place of a load; what is in memory
    /// they get all the same, and refreshes behind an answer go on.
    pub const fn tier_errors(mut self, errors: TierErrors) -> Self {
        self.tier_errors = errors;
        self
    }

    /// What joins this cache with the same one in other processes. One of them loads a key while
    /// the others wait and are given what it brings; what one removes or invalidates is gone in
    /// all of them. They share one of the [`tiers`](Self::tiers), and what they are joined by is
    /// that tier's: for Redis, [`Cluster::new`] takes the tier twice.
    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// The clock to live by: another one in tests.
    #[cfg(feature = "testkit")]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// If its settings cannot work, alone or together.
    pub fn build(self) -> Result<Cache<V>, BuildError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        self.check()?;
        let limits = self.limits()?;
        // In memory that is its own its name would tell nobody anything.
        let key_prefix = if self.tiers.is_empty() { "" } else { &self.name };
        let key_prefix = KeyBuf::new(key_prefix).borrowed().to_key();
        let (tiers, memory_ttl) = within_those_below(self.tiers, self.memory_ttl);
        let counts = Arc::new(Counts::over(tiers.iter().map(|tier| tier.name())));
        let told = (self.clock, counts.clone() as Arc<dyn Observer>);
        let engine = match self.cluster {
            Some(cluster) => Engine::clustered(limits, told, tiers, cluster),
            None => Engine::with_tiers(limits, told.0, told.1, tiers),
        };
        // A place of its own is waited for first: who has one of the group's is about to load.
        let own = self.loads_max.map(|loads| LoadLimiter::at_most(loads).0);
        let semaphores =
            own.into_iter().chain(self.load_limiter.map(|limiter| limiter.0)).collect();
        let mut demand = self.demand;
        demand.soft_timeout = demand.soft_timeout.or(self.hard_timeout);
        demand.min_fresh = self.lifetimes.sliding.map(Sliding::left_when_noted);
        let shared = Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
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
                Some(Memory(Bound::Entries(entries))) => entries >= ENTRIES_APART,
                Some(Memory(Bound::Bytes(bytes))) => bytes >= BYTES_APART,
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
            return refuse("a cache needs room: give it `memory`, in bytes or in entries");
        };
        let (size, object_max) = match bound {
            Bound::Bytes(0) | Bound::Entries(0) => {
                return refuse("`memory` is zero, so that nothing could be kept");
            }
            Bound::Entries(bound) | Bound::Bytes(bound) if bound > MEMORY_MAX => {
                return refuse("`memory` is larger than any machine");
            }
            Bound::Entries(entries) => (beside_absent(entries), self.entry_max(entries)?),
            Bound::Bytes(bytes) => (bytes, self.byte_max(bytes)?),
        };
        let typical = if matches!(bound, Bound::Entries(_)) { 1 } else { TYPICAL };
        let memory = size + IN_FLIGHT_MAX;
        Ok(Limits { memory, object_max, in_flight_max: IN_FLIGHT_MAX, typical })
    }

    fn entry_max(&self, entries: u64) -> Result<u64, BuildError> {
        if self.value_max.is_some() || self.weigher.is_some() {
            return refuse(
                "`memory` is a number of entries, and `weigher` or `value_max` speak of bytes: \
                 leave them out, or give `memory` in bytes",
            );
        }
        let is_exact = entries <= ENTRIES_EXACT;
        Ok(if is_exact { entries } else { (entries / VALUE_SHARE).max(1) })
    }

    fn byte_max(&self, bytes: u64) -> Result<u64, BuildError> {
        if self.weigher.is_none() && self.codec.is_none() && std::mem::needs_drop::<V>() {
            return refuse(
                "`memory` is given in bytes, and values own memory that cannot be seen from \
                 outside: give a `weigher`, or `memory` in entries",
            );
        }
        match self.value_max {
            Some(max) if max > bytes || max == 0 => refuse(format!(
                "`value_max` is {max} bytes and `memory` {bytes}: it is at least one byte, and \
                     no more than `memory`"
            )),
            Some(max) => Ok(max),
            None => Ok((bytes / VALUE_SHARE).max(VALUE_SMALL.min(bytes / 4))),
        }
    }
}

/// Whoever was given no time of their own, tiers and memory, keep values for as long as those below
/// them do: what is gone there is to be gone everywhere.
fn within_those_below(
    below: Vec<TierConfig>,
    memory_ttl: Option<Duration>,
) -> (Vec<Arc<dyn Tier>>, Option<Duration>) {
    let mut shortest = None;
    let mut tiers: Vec<Arc<dyn Tier>> = Vec::with_capacity(below.len());
    for mut one in below.into_iter().rev() {
        one.ttl = one.ttl.or(shortest);
        shortest = one.ttl;
        tiers.push(one.tier());
    }
    tiers.reverse();
    (tiers, memory_ttl.or(shortest))
}

/// What memory has to be for so many entries to be left for values.
const fn beside_absent(entries: u64) -> u64 {
    let size = entries + entries / 15;
    if size - size / 16 < entries { size + 1 } else { size }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, BuildError> {
    Err(BuildError(why.into()))
}

#[cfg(test)]
mod tests;

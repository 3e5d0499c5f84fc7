//! Building a cache, and refusing what cannot work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Demand, KeyBuf};
use forebay_engine::{Clock, Engine, Limits, SystemClock, Tier, TierErrors};
use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::codec::{Codec, Coding, Format};
use crate::error::BuildError;
use crate::lifetimes::Lifetimes;
use crate::shared::{Shared, Weigh};
use crate::stats::Counts;

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
pub struct LoadGroup(Arc<Semaphore>);

impl LoadGroup {
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
    weigh: Option<Weigh<V>>,
    lifetimes: Lifetimes,
    demand: Demand,
    hard_timeout: Option<Duration>,
    load_timeout: Duration,
    loads_max: Option<usize>,
    group: Option<LoadGroup>,
    clock: Arc<dyn Clock>,
    coding: Option<Arc<dyn Coding<V>>>,
    tiers: Vec<Arc<dyn Tier>>,
    tier_errors: TierErrors,
}

impl<V: Send + Sync + 'static> Builder<V> {
    pub(crate) fn new(name: String) -> Self {
        let lifetimes = Lifetimes {
            ttl: Duration::MAX,
            negative_ttl: None,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            jitter: true,
        };
        Self {
            name,
            memory: None,
            value_max: None,
            weigh: None,
            lifetimes,
            demand: Demand::default(),
            hard_timeout: None,
            load_timeout: LOAD_TIMEOUT,
            loads_max: None,
            group: None,
            clock: Arc::new(SystemClock),
            coding: None,
            tiers: Vec::new(),
            tier_errors: TierErrors::default(),
        }
    }

    /// The room of the memory tier. Has to be given.
    pub const fn memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// How many bytes a value takes, what it owns included. Has to be given for a bound in bytes,
    /// unless values own nothing beside themselves, or there are tiers: then a value counts as
    /// much as what is written of it, if nothing else is said.
    pub fn weigher(mut self, weigh: impl Fn(&str, &V) -> usize + Send + Sync + 'static) -> Self {
        self.weigh = Some(Arc::new(weigh));
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
        self.lifetimes.ttl = ttl;
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

    /// The same, together with other caches.
    pub fn load_group(mut self, group: &LoadGroup) -> Self {
        self.group = Some(group.clone());
        self
    }

    /// Tiers below memory, the uppermost first, and how values are written in them. What memory
    /// has let go of is found there, and what other instances have written.
    pub fn tiers<F: Format<V> + Send + Sync + 'static>(
        mut self,
        codec: Codec<F>,
        tiers: impl IntoIterator<Item = Arc<dyn Tier>>,
    ) -> Self {
        self.coding = Some(Arc::new(codec));
        self.tiers.extend(tiers);
        self
    }

    /// What a tier below memory means that cannot be read: unless told otherwise a miss. Strict
    /// calls get [`Error::Tier`](crate::Error::Tier) in the place of a load; what is in memory
    /// they get all the same, and refreshes behind an answer go on.
    pub const fn tier_errors(mut self, errors: TierErrors) -> Self {
        self.tier_errors = errors;
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
        self.check_lifetimes()?;
        self.check_loads()?;
        if self.name.is_empty() && !self.tiers.is_empty() {
            return refuse("a cache with `tiers` needs a name: others may write there, too");
        }
        if self.coding.is_some() && self.tiers.is_empty() {
            return refuse("`tiers` is empty: name one, or leave it out");
        }
        let limits = self.limits()?;
        let counts = Arc::new(Counts::default());
        // In memory that is its own its name would tell nobody anything.
        let front = if self.tiers.is_empty() { "" } else { &self.name };
        let front = KeyBuf::new(front).borrowed().to_key();
        let engine = Engine::with_tiers(limits, self.clock, counts.clone(), self.tiers);
        let own = self.loads_max.map(|loads| LoadGroup::at_most(loads).0);
        let mut demand = self.demand;
        demand.soft_timeout = demand.soft_timeout.or(self.hard_timeout);
        let shared = Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            front,
            name: self.name.into(),
            engine,
            counts,
            demand,
            lifetimes: self.lifetimes,
            weigh: self.weigh,
            coding: self.coding,
            counted: matches!(self.memory, Some(Memory(Bound::Entries(_)))),
            absent_apart: match self.memory {
                Some(Memory(Bound::Entries(entries))) => entries >= ENTRIES_APART,
                Some(Memory(Bound::Bytes(bytes))) => bytes >= BYTES_APART,
                None => false,
            },
            turns: self.group.map(|group| group.0).or(own),
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
        if self.value_max.is_some() || self.weigh.is_some() {
            return refuse(
                "`memory` is a number of entries, and `weigher` or `value_max` speak of bytes: \
                 leave them out, or give `memory` in bytes",
            );
        }
        let is_exact = entries <= ENTRIES_EXACT;
        Ok(if is_exact { entries } else { (entries / VALUE_SHARE).max(1) })
    }

    fn byte_max(&self, bytes: u64) -> Result<u64, BuildError> {
        if self.weigh.is_none() && self.coding.is_none() && std::mem::needs_drop::<V>() {
            return refuse(
                "`memory` is given in bytes, and values own memory that cannot be seen from \
                 outside: give a `weigher`, or `memory` in entries",
            );
        }
        match self.value_max {
            Some(max) if max > bytes || max == 0 => {
                refuse(format!("`value_max` is {max} bytes of a `memory` of {bytes}"))
            }
            Some(max) => Ok(max),
            None => Ok((bytes / VALUE_SHARE).max(VALUE_SMALL.min(bytes / 4))),
        }
    }

    fn check_lifetimes(&self) -> Result<(), BuildError> {
        let Lifetimes { ttl, negative_ttl, stale_while_revalidate, stale_if_error, .. } =
            self.lifetimes;
        if ttl.is_zero() || negative_ttl.is_some_and(|ttl| ttl.is_zero()) {
            return refuse("`ttl` and `negative_ttl` are longer than zero, or nothing is kept");
        }
        let windows = (stale_while_revalidate, stale_if_error);
        if ttl == Duration::MAX && windows != (Duration::ZERO, Duration::ZERO) {
            return refuse("values without a `ttl` are never stale: give one, or no windows");
        }
        if !stale_if_error.is_zero() && stale_if_error < stale_while_revalidate {
            return refuse(format!(
                "`stale_if_error` ({stale_if_error:?}) ends before `stale_while_revalidate` \
                 ({stale_while_revalidate:?}) and would never matter: make it longer"
            ));
        }
        let beta = self.demand.beta;
        if !beta.is_finite() || beta < 0.0 {
            return refuse(format!("`beta` is {beta}, and has to be zero or more"));
        }
        Ok(())
    }

    fn check_loads(&self) -> Result<(), BuildError> {
        let (soft, hard) = (self.demand.soft_timeout, self.hard_timeout);
        if self.load_timeout.is_zero() || [soft, hard].contains(&Some(Duration::ZERO)) {
            return refuse("a timeout of zero would end every load before it begins");
        }
        if let (Some(soft), Some(hard)) = (soft, hard)
            && soft >= hard
        {
            return refuse(format!(
                "`soft_timeout` ({soft:?}) comes after `hard_timeout` ({hard:?}): make it shorter"
            ));
        }
        if soft.is_some() && self.lifetimes.stale_if_error.is_zero() {
            return refuse(
                "`soft_timeout` serves what is stale within `stale_if_error`: give that, too",
            );
        }
        match (self.loads_max, &self.group) {
            (Some(0), _) => refuse("`loads_max` is zero, so that nothing could be loaded"),
            (Some(_), Some(_)) => refuse("give `loads_max` or `load_group`, and not both"),
            _ => Ok(()),
        }
    }
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

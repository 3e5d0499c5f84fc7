//! The counters of a cache.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Why;
use forebay_engine::{Event, Observer};

mod reasons;
mod tiers;

pub use reasons::Reasons;
pub use tiers::TierStats;

use reasons::ReasonCounts;
use tiers::TierCounts;

/// Number of stripes of the hit counter. Each is on a cache line of its own, so that threads that
/// hit do not contend.
const STRIPES: usize = 16;

/// Index of the stripe of all threads that have none of their own.
const SHARED: usize = STRIPES - 1;

/// One stripe. The alignment keeps two stripes out of one cache line and out of one pair of lines
/// that the processor fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A counter for events of every call, with little contention.
#[derive(Debug, Default)]
pub(crate) struct StripedCounter([Stripe; STRIPES]);

impl StripedCounter {
    #[inline]
    pub(crate) fn increment(&self) {
        let index = STRIPE_INDEX.get();
        match self.0.get(index) {
            // Only this thread writes to its stripe, so the increment need not be atomic.
            Some(Stripe(own)) if index != SHARED => {
                own.store(own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
            _ => self.increment_shared(),
        }
    }

    /// Counts on the shared stripe, and assigns a stripe to the thread if one is free.
    #[cold]
    fn increment_shared(&self) {
        self.0[SHARED].0.fetch_add(1, Ordering::Relaxed);
        if STRIPE_INDEX.get() == UNASSIGNED {
            // Fails while the thread ends; then it keeps counting on the shared stripe.
            let _ = STRIPE.try_with(|stripe| STRIPE_INDEX.set(stripe.0));
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// Index of a thread that has not counted anything yet.
const UNASSIGNED: usize = usize::MAX;

thread_local! {
    static STRIPE_INDEX: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static STRIPE: StripeOwner = StripeOwner::assign();
}

/// Bit set of the stripes that are assigned to a thread.
static ASSIGNED: AtomicU64 = AtomicU64::new(0);

/// The index of a thread's stripe, assigned until the thread ends.
struct StripeOwner(usize);

impl StripeOwner {
    fn assign() -> Self {
        let with_one = |assigned: u64| {
            let index = assigned.trailing_ones();
            ((index as usize) < SHARED).then(|| assigned | 1 << index)
        };
        // `Acquire`, with `Release` in `drop`: the new owner sees the counts of the previous one.
        match ASSIGNED.fetch_update(Ordering::Acquire, Ordering::Relaxed, with_one) {
            Ok(before) => Self(before.trailing_ones() as usize),
            Err(_) => Self(SHARED),
        }
    }
}

impl Drop for StripeOwner {
    fn drop(&mut self) {
        STRIPE_INDEX.set(SHARED);
        if self.0 != SHARED {
            ASSIGNED.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

/// The counters of one cache.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: StripedCounter,
    pub(crate) stale: AtomicU64,
    pub(crate) refreshing: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) coalesced: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) loaded_elsewhere: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) decode_failures: AtomicU64,
    pub(crate) tiers: TierCounts,
    reasons: ReasonCounts,
    loads: AtomicU64,
    load_micros: AtomicU64,
    load_failures: AtomicU64,
    backed_off: AtomicU64,
    soft_timeouts: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Converts to microseconds. A sum of them overflows after half a million years.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Results of successful loads in [`Event::Loaded`]. Every other result is a failure.
const SUCCESSFUL_RESULTS: [&str; 4] = ["stored", "unchanged", "pass", "absent"];

impl Observer for Counts {
    fn observe(&self, event: Event<'_>) {
        match event {
            // A call with `only_if_cached` has looked into the lower tiers.
            Event::Loaded { result: "not-cached", .. } => {}
            Event::Loaded { result, cost, .. } => {
                count(&self.loads);
                self.load_micros.fetch_add(micros(cost), Ordering::Relaxed);
                if !SUCCESSFUL_RESULTS.contains(&result) {
                    count(&self.load_failures);
                }
            }
            Event::BackingOff(_) => count(&self.backed_off),
            Event::SoftTimeout(_) => count(&self.soft_timeouts),
            event => self.tiers.observe(event),
        }
    }
}

/// Counters of a cache since it was built, and its current size; from
/// [`Cache::stats`](crate::Cache::stats).
///
/// Each call that reads or loads one key counts once: as a hit, a miss or an error. A call for many
/// keys counts once for each key. While calls run on other threads, a snapshot can miss the latest
/// increments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls answered from memory without waiting, with a value or its known absence, fresh or
    /// allowed to be stale.
    pub hits: u64,
    /// Calls answered from memory with a stale entry, or with one that an invalidation by another
    /// process may have affected; included in `hits`.
    pub stale_hits: u64,
    /// Calls answered from memory with an entry that was due for a background refresh, before or
    /// after the end of its freshness; included in `hits`. Calls that only look up, such as `get`,
    /// are not counted here.
    pub refreshing_hits: u64,
    /// Calls that memory could not answer and that returned no error: a value, its known absence,
    /// or nothing found. The sum of `hits`, `misses` and `errors` is the number of calls.
    pub misses: u64,
    /// Numbers of misses and errors, by the reason why memory could not answer.
    pub reasons: Reasons,
    /// Misses answered by a lower tier, without a load. Coalesced misses count once;
    /// [`Cache::tiers`](crate::Cache::tiers) has the count of each tier.
    pub tier_hits: u64,
    /// Misses answered by a load of another process that this one waited for. Calls that shared the
    /// wait count as `coalesced`.
    pub loaded_elsewhere: u64,
    /// Misses that shared the load, tier lookup or wait of another call.
    pub coalesced: u64,
    /// Misses answered with a stale value because the load failed, was slow, or was not started
    /// (back-off or a limit).
    pub fallbacks: u64,
    /// Misses whose answer only the call that loaded it got
    /// ([`Answer::pass`](crate::Answer::pass)).
    pub passed: u64,
    /// Calls that returned an error other than [`Error::Absent`](crate::Error::Absent), which
    /// counts as a hit or a miss.
    pub errors: u64,
    /// Loads that have ended, background refreshes included. Each key of a batch counts.
    pub loads: u64,
    /// Sum of the durations of all loads that have ended, with the wait for a permit of a limit.
    /// For each key of a batch, the duration of the whole batch counts.
    pub load_time: Duration,
    /// Loads that ended with an error, and those not started because of a limit or, with strict
    /// `tier_errors`, of a failed tier; included in `loads`.
    pub load_failures: u64,
    /// Number of calls and background refreshes that started no load, because the last loads of the
    /// key had failed (back-off).
    pub backed_off: u64,
    /// Number of calls that got a stale value because their load took longer than the soft timeout,
    /// or because another process took too long; included in `fallbacks`.
    pub soft_timeouts: u64,
    /// Reads of values in lower tiers that could not be decoded, such as those of another program.
    pub decode_failures: u64,
    /// Sum of [`failures`](TierStats::failures) and
    /// [`skipped_writes`](TierStats::skipped_writes) of all lower tiers.
    pub tier_failures: u64,
    /// Entries that were removed from memory to make space for others.
    pub evictions: u64,
    /// Number of entries in memory, absent values included. Stale entries count, and so do those
    /// that were invalidated by tag or all together, until they are replaced or evicted.
    pub entries: u64,
    /// Current size of the entries in memory, in the unit of its bound: bytes with keys and
    /// overhead, or entries.
    pub weight: u64,
    /// Number of loads in progress now, with those that search lower tiers or wait for a permit or
    /// another process.
    pub loading: usize,
    /// Number of entries that are being written to lower tiers now.
    pub writing: usize,
}

impl Counts {
    /// Creates the counters of a cache with these lower tiers.
    pub(crate) fn over(tiers: impl IntoIterator<Item = &'static str>) -> Self {
        Self { tiers: TierCounts::of(tiers), ..Self::default() }
    }

    /// Counts the reason of a miss or an error.
    pub(crate) fn count_reason(&self, why: Why) {
        self.reasons.count(why);
    }

    /// Returns a snapshot, without the fields that the engine counts.
    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (stale, refreshing) = (read(&self.stale), read(&self.refreshing));
        Stats {
            hits: self.hits.sum(),
            stale_hits: stale,
            refreshing_hits: refreshing,
            misses: read(&self.misses),
            reasons: self.reasons.read(),
            tier_hits: self.tiers.hits(),
            loaded_elsewhere: read(&self.loaded_elsewhere),
            coalesced: read(&self.coalesced),
            fallbacks: read(&self.fallbacks),
            passed: read(&self.passed),
            errors: read(&self.errors),
            loads: read(&self.loads),
            load_time: Duration::from_micros(read(&self.load_micros)),
            load_failures: read(&self.load_failures),
            backed_off: read(&self.backed_off),
            soft_timeouts: read(&self.soft_timeouts),
            decode_failures: read(&self.decode_failures),
            tier_failures: self.tiers.failures(),
            ..Stats::default()
        }
    }
}

impl Stats {
    /// Returns the share of hits among all calls of the cache, from 0 to 1; 0 before the first
    /// call.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts needs no more than 53 bits")]
    pub fn hit_ratio(&self) -> f64 {
        let calls = self.hits + self.misses + self.errors;
        if calls == 0 { 0.0 } else { self.hits as f64 / calls as f64 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn more_threads_than_stripes_lose_no_count() {
        let (counter, threads, each) =
            (Arc::new(StripedCounter::default()), 3 * STRIPES, 5_000_u64);
        for _ in 0..3 {
            let counting = || {
                let counter = counter.clone();
                std::thread::spawn(move || (0..each).for_each(|_| counter.increment()))
            };
            let counting: Vec<_> = (0..threads).map(|_| counting()).collect();
            counting.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(counter.sum(), 3 * threads as u64 * each);
    }

    #[test]
    fn a_stripe_is_free_again_when_its_thread_ends() {
        let index = || {
            let counting = std::thread::spawn(|| {
                StripedCounter::default().increment();
                STRIPE_INDEX.get()
            });
            counting.join().unwrap()
        };
        // Other tests use stripes too. If ended threads kept theirs, none would be left here.
        let indices: Vec<usize> = (0..10 * STRIPES).map(|_| index()).collect();
        assert!(indices.iter().any(|index| *index != SHARED), "{indices:?}");
        assert!(indices[STRIPES..].iter().any(|index| *index != SHARED), "{indices:?}");
    }
}

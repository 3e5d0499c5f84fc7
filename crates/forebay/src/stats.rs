//! What is counted, and what it adds up to.

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

/// Hits are counted in this many places, each on a cache line of its own, so that threads that
/// only read do not wait for each other.
const STRIPES: usize = 16;

/// The place of all threads that have none of their own.
const SHARED: usize = STRIPES - 1;

/// Large enough that two of them never share a line, nor the pair that is fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A counter that every call increments.
#[derive(Debug, Default)]
pub(crate) struct StripedCounter([Stripe; STRIPES]);

impl StripedCounter {
    #[inline]
    pub(crate) fn increment(&self) {
        let place = PLACE.get();
        match self.0.get(place) {
            // Nobody else writes there, and so it need not be one step.
            Some(Stripe(own)) if place != SHARED => {
                own.store(own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            }
            _ => self.increment_shared(),
        }
    }

    /// For a thread without a place of its own, which gets one here for the next time if it can.
    #[cold]
    fn increment_shared(&self) {
        self.0[SHARED].0.fetch_add(1, Ordering::Relaxed);
        if PLACE.get() == UNKNOWN {
            // Refused while the thread ends: it need not count much any more.
            let _ = LEASE.try_with(|lease| PLACE.set(lease.0));
        }
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// A thread that has not counted anything yet.
const UNKNOWN: usize = usize::MAX;

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = Lease::take();
}

/// Which places belong to a thread, bit by bit.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A thread's place, until the thread ends.
struct Lease(usize);

impl Lease {
    fn take() -> Self {
        let with_one = |taken: u64| {
            let place = taken.trailing_ones();
            ((place as usize) < SHARED).then(|| taken | 1 << place)
        };
        // What its last owner has counted is seen by the next one.
        match TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, with_one) {
            Ok(before) => Self(before.trailing_ones() as usize),
            Err(_) => Self(SHARED),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        PLACE.set(SHARED);
        if self.0 != SHARED {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

/// What one cache counts.
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

/// A sum of these overflows after half a million years.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// What a load is called that brought something; anything else is why it did not.
const BROUGHT: [&str; 4] = ["stored", "unchanged", "pass", "absent"];

impl Observer for Counts {
    fn observe(&self, event: Event<'_>) {
        match event {
            // Somebody has looked into the lower tiers, and wanted nothing loaded.
            Event::Loaded { result: "not-cached", .. } => {}
            Event::Loaded { result, cost, .. } => {
                count(&self.loads);
                self.load_micros.fetch_add(micros(cost), Ordering::Relaxed);
                if !BROUGHT.contains(&result) {
                    count(&self.load_failures);
                }
            }
            Event::HeldBack(_) => count(&self.backed_off),
            Event::SoftTimeout(_) => count(&self.soft_timeouts),
            event => self.tiers.observe(event),
        }
    }
}

/// What a cache has done since it was built, and what it holds now.
///
/// Each call for one key counts once: as a hit, a miss or an error. What is counted on different
/// threads at the same time may be off by what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Answered at once by what was at hand: fresh, or stale within what was allowed.
    pub hits: u64,
    /// Hits that were past their time.
    pub stale_hits: u64,
    /// Hits behind which a load was to refresh them, early or late.
    pub refreshing_hits: u64,
    /// Not at hand, or not good enough. With `hits` and `errors` these are all calls.
    pub misses: u64,
    /// Why the misses and the errors were no hits: each of them once.
    pub reasons: Reasons,
    /// Misses that a tier below memory had, and that nothing was loaded for. Of those that asked
    /// for one key together, one; [`Cache::tiers`](crate::Cache::tiers) tells which tier.
    pub tier_hits: u64,
    /// Misses that another process has loaded, and that nothing was loaded for here.
    pub loaded_elsewhere: u64,
    /// Misses that shared somebody else's load.
    pub coalesced: u64,
    /// Misses that were answered with something stale, since the load failed or took long.
    pub fallbacks: u64,
    /// Misses that were loaded for one call alone.
    pub passed: u64,
    /// Calls without an answer.
    pub errors: u64,
    /// Loads that have ended, also those behind an answer. Each key of a batch is one.
    pub loads: u64,
    /// How long these took, all together: divided by `loads`, what one takes.
    pub load_time: Duration,
    /// Loads that brought nothing.
    pub load_failures: u64,
    /// Loads that were not begun, since others had failed a moment before.
    pub backed_off: u64,
    /// Calls that were answered with something stale, since the load took long.
    pub soft_timeouts: u64,
    /// What lower tiers had and could not be read: written by nobody that this cache knows.
    pub decode_failures: u64,
    /// Times that a tier below memory failed, took too long, or had too much to do.
    pub tier_failures: u64,
    /// Entries that have made room for others.
    pub evictions: u64,
    /// Entries held, those included that have expired and not made room yet.
    pub entries: u64,
    /// What they take of the bound of memory: bytes, or entries.
    pub weight: u64,
    /// Loads under way.
    pub loading: usize,
    /// Values on their way into tiers below memory.
    pub writing: usize,
}

impl Counts {
    /// Of a cache over these tiers.
    pub(crate) fn over(tiers: impl IntoIterator<Item = &'static str>) -> Self {
        Self { tiers: TierCounts::of(tiers), ..Self::default() }
    }

    /// A call that was no hit, whatever came of it then.
    pub(crate) fn count_reason(&self, why: Why) {
        self.reasons.count(why);
    }

    /// Without what only the engine knows.
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
    /// The part of all calls that were hits; zero before the first call.
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

    /// More threads than places, at the same time and one after the other.
    #[test]
    fn no_hit_is_lost_however_many_threads_count() {
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
    fn a_place_is_given_back_when_its_thread_ends() {
        let place = || {
            let counting = std::thread::spawn(|| {
                StripedCounter::default().increment();
                PLACE.get()
            });
            counting.join().unwrap()
        };
        // Other tests take places meanwhile; without giving back, none would be left here.
        let places: Vec<usize> = (0..10 * STRIPES).map(|_| place()).collect();
        assert!(places.iter().any(|place| *place != SHARED), "{places:?}");
        assert!(places[STRIPES..].iter().any(|place| *place != SHARED), "{places:?}");
    }
}

//! What is counted, and what it adds up to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_engine::{Event, Observer};

/// Hits are counted in this many places, each on a cache line of its own, so that threads that
/// only read do not wait for each other.
const STRIPES: usize = 16;

/// Large enough that two of them never share a line, nor the pair that is fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A counter that every call increments.
#[derive(Debug, Default)]
pub(crate) struct Striped([Stripe; STRIPES]);

impl Striped {
    #[inline]
    pub(crate) fn increment(&self) {
        self.0[stripe()].0.fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// This thread's place: the threads take turns.
#[inline]
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    let mine = MINE.get();
    if mine != usize::MAX {
        return mine % STRIPES;
    }
    let mine = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    MINE.set(mine);
    mine
}

/// What one cache counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: Striped,
    pub(crate) stale: AtomicU64,
    pub(crate) refreshing: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) followed: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) unreadable: AtomicU64,
    tier_failures: AtomicU64,
    loads: AtomicU64,
    load_failures: AtomicU64,
    held_back: AtomicU64,
    soft_timeouts: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What a load is called that brought something; anything else is why it did not.
const BROUGHT: [&str; 4] = ["stored", "unchanged", "pass", "absent"];

impl Observer for Counts {
    fn observe(&self, event: Event<'_>) {
        match event {
            // Somebody has looked into the lower tiers, and wanted nothing loaded.
            Event::Loaded { result: "not-cached", .. } => {}
            Event::Loaded { result, .. } => {
                count(&self.loads);
                if !BROUGHT.contains(&result) {
                    count(&self.load_failures);
                }
            }
            Event::TierFailed { .. } | Event::TierSkipped(_) => count(&self.tier_failures),
            Event::HeldBack(_) => count(&self.held_back),
            Event::SoftTimeout(_) => count(&self.soft_timeouts),
            _ => {}
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
    /// Misses that shared somebody else's load.
    pub followed: u64,
    /// Misses that were answered with something stale, since the load failed or took long.
    pub fallbacks: u64,
    /// Misses that were loaded for one call alone.
    pub passed: u64,
    /// Calls without an answer.
    pub errors: u64,
    /// Loads that have ended, also those behind an answer. Each key of a batch is one.
    pub loads: u64,
    /// Loads that brought nothing.
    pub load_failures: u64,
    /// Loads that were not begun, since others had failed a moment before.
    pub held_back: u64,
    /// Calls that were answered with something stale, since the load took long.
    pub soft_timeouts: u64,
    /// What lower tiers had and could not be read: written by nobody that this cache knows.
    pub unreadable: u64,
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
}

impl Counts {
    /// Without what only the engine knows.
    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (stale, refreshing) = (read(&self.stale), read(&self.refreshing));
        Stats {
            hits: self.hits.sum(),
            stale_hits: stale,
            refreshing_hits: refreshing,
            misses: read(&self.misses),
            followed: read(&self.followed),
            fallbacks: read(&self.fallbacks),
            passed: read(&self.passed),
            errors: read(&self.errors),
            loads: read(&self.loads),
            load_failures: read(&self.load_failures),
            held_back: read(&self.held_back),
            soft_timeouts: read(&self.soft_timeouts),
            unreadable: read(&self.unreadable),
            tier_failures: read(&self.tier_failures),
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

//! The counters of the tiers below memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Condition;
use forebay_engine::Event;

/// Counters of one lower tier; see [`Cache::tiers`](crate::Cache::tiers).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// Name of the tier, such as `disk` or `redis`. Tiers of the same name are counted together, in
    /// the first of them.
    pub name: &'static str,
    /// Calls answered with an entry of this tier; calls that shared one lookup count once.
    pub hits: u64,
    /// Number of operations of the tier: reads, lease requests, steps of writes, and removals of
    /// single keys. Each key of a batch counts. Operations that are skipped while the tier is
    /// bypassed do not count.
    pub operations: u64,
    /// Sum of the durations of all operations of the tier.
    pub time: Duration,
    /// Operations of the tier that failed or timed out. Operations that are skipped while the tier
    /// is bypassed do not count.
    pub failures: u64,
    /// Values that were not written to the tier because 256 values were being written to lower
    /// tiers, or because the codec could not encode them.
    pub skipped_writes: u64,
    /// `true` while the circuit breaker for reads of the tier is open after failures. Reads and
    /// writes then skip the tier, except for single trial reads. Failed writes alone do not set it.
    pub is_bypassed: bool,
}

/// The counters of all lower tiers.
#[derive(Debug, Default)]
pub(crate) struct TierCounts(Box<[TierCount]>);

#[derive(Debug, Default)]
struct TierCount {
    name: &'static str,
    hits: AtomicU64,
    operations: AtomicU64,
    micros: AtomicU64,
    failures: AtomicU64,
    skipped_writes: AtomicU64,
}

impl TierCounts {
    pub(super) fn of(names: impl IntoIterator<Item = &'static str>) -> Self {
        let count = |name| TierCount { name, ..TierCount::default() };
        Self(names.into_iter().map(count).collect())
    }

    pub(super) fn observe(&self, event: Event<'_>) {
        match event {
            Event::TierCalled { tier, took, .. } => self.with(tier, |count| {
                super::count(&count.operations);
                count.micros.fetch_add(super::micros(took), Ordering::Relaxed);
            }),
            Event::TierFailed { tier, .. } => self.with(tier, |it| super::count(&it.failures)),
            Event::TierSkipped(tier) => self.with(tier, |it| super::count(&it.skipped_writes)),
            _ => {}
        }
    }

    /// Counts a call that was answered with an entry of the tier.
    pub(crate) fn count_hit(&self, tier: &str) {
        self.with(tier, |count| super::count(&count.hits));
    }

    fn with(&self, tier: &str, count: impl FnOnce(&TierCount)) {
        if let Some(known) = self.0.iter().find(|known| known.name == tier) {
            count(known);
        }
    }

    pub(super) fn hits(&self) -> u64 {
        self.0.iter().map(|count| count.hits.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of failed operations and skipped writes of all tiers.
    pub(super) fn failures(&self) -> u64 {
        let of = |count: &TierCount| {
            count.failures.load(Ordering::Relaxed) + count.skipped_writes.load(Ordering::Relaxed)
        };
        self.0.iter().map(of).sum()
    }

    /// Returns a snapshot. `conditions` has the breaker state of each tier, in the same order.
    pub(crate) fn read(&self, conditions: impl Iterator<Item = Condition>) -> Vec<TierStats> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stats = |(count, condition): (&TierCount, Condition)| TierStats {
            name: count.name,
            hits: read(&count.hits),
            operations: read(&count.operations),
            time: Duration::from_micros(read(&count.micros)),
            failures: read(&count.failures),
            skipped_writes: read(&count.skipped_writes),
            is_bypassed: condition != Condition::Closed,
        };
        self.0.iter().zip(conditions).map(stats).collect()
    }
}

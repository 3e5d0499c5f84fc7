//! What the tiers below memory were asked, and what came of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::Condition;
use forebay_engine::Event;

/// What one tier below memory has done for a cache; see [`Cache::tiers`](crate::Cache::tiers).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// What it is called: `disk`, `redis`. Of several of one name the first counts for all.
    pub name: &'static str,
    /// Calls that were answered with what it had, one of those that asked together.
    pub hits: u64,
    /// Operations that it was asked for: reading, writing and removing, in their steps.
    pub operations: u64,
    /// How long these took, all together.
    pub time: Duration,
    /// Times that it failed, or took too long.
    pub failures: u64,
    /// Values that were not written to it, since too many were on their way already.
    pub skipped_writes: u64,
    /// Whether it has failed so often that it is left alone for the moment, but for a trial now
    /// and then.
    pub is_bypassed: bool,
}

/// The counters of all of them.
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
            Event::TierAsked { tier, took, .. } => self.with(tier, |count| {
                super::count(&count.operations);
                count.micros.fetch_add(super::micros(took), Ordering::Relaxed);
            }),
            Event::TierFailed { tier, .. } => self.with(tier, |it| super::count(&it.failures)),
            Event::TierSkipped(tier) => self.with(tier, |it| super::count(&it.skipped_writes)),
            _ => {}
        }
    }

    /// A call was answered with what a tier had.
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

    /// What is not there that was to be.
    pub(super) fn failures(&self) -> u64 {
        let of = |count: &TierCount| {
            count.failures.load(Ordering::Relaxed) + count.skipped_writes.load(Ordering::Relaxed)
        };
        self.0.iter().map(of).sum()
    }

    /// With the condition that each is in, in the same order.
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

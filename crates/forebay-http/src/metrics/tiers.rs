//! Metrics of the tiers below memory.
//!
//! The engine reports its operations on the tiers and their results. Counts that only a tier knows
//! are read from it when the metrics are rendered.

use forebay_core::Condition;
use forebay_engine::{Engine, Event};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::TierLabel;
use super::latency::{LatencySum, SharedLatency};

/// Kind of counter that a lower tier (disk, Redis) keeps itself. Beside `tier`, each has one label:
/// `reason` (rejected, errors), `result` (writes) or `direction` (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierCounter {
    /// Number of values that were read and rejected, by reason; on disk also of unreadable parts,
    /// discarded segments and foreign files.
    Rejected,
    /// Number of writes and removals, by result.
    Writes,
    /// Number of failed operations (Redis commands or file system calls), by reason.
    Errors,
    /// Number of bytes of values read from Redis (`in`) or written to it (`out`), by direction.
    Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpLabels {
    tier: &'static str,
    op: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    tier: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    tier: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    tier: &'static str,
    direction: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct LowerTierMetrics {
    state: Family<TierLabel, Gauge>,
    seconds: Family<OpLabels, SharedLatency>,
    failures: Family<OpLabels, Counter>,
    skipped: Family<TierLabel, Counter>,
    opened: Family<TierLabel, Counter>,
    rejected: Family<ReasonLabels, Counter>,
    writes: Family<ResultLabels, Counter>,
    errors: Family<ReasonLabels, Counter>,
    bytes: Family<DirectionLabels, Counter>,
}

impl LowerTierMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let state = "State of a lower tier (disk or Redis): 0 ok, 1 probing, 2 bypassed";
        registry.register("tier_state", state, self.state.clone());
        let seconds = "Seconds that an operation of a lower tier (disk or Redis) took until it ended, \
                       failed or timed out, by operation";
        registry.register("tier_seconds", seconds, self.seconds.clone());
        let failures = "Failed or timed out operations of a lower tier, by operation";
        registry.register("tier_failures", failures, self.failures.clone());
        let skipped = "Entries not written to a lower tier because too many writes were in progress, or \
                       their head could not be encoded";
        registry.register("tier_skipped", skipped, self.skipped.clone());
        registry.register(
            "tier_opened",
            "Times that the circuit breaker of a lower tier opened, so that the tier was \
             bypassed",
            self.opened.clone(),
        );
        let rejected = "Values read from a lower tier and rejected, by reason; on disk also unreadable \
                        parts (hole), discarded segments (suspect) and foreign files";
        registry.register("tier_rejected", rejected, self.rejected.clone());
        registry.register(
            "tier_writes",
            "Writes and removals in a lower tier, by result: stored, removed, refused; on disk also \
             failed, reinserted and widened (prefix purges); in Redis also too-large and overtaken",
            self.writes.clone(),
        );
        let errors = "Failed Redis commands (tier redis) and failed file system calls (tier disk), by \
                      cause";
        registry.register("tier_errors", errors, self.errors.clone());
        let bytes = "Bytes of values read from Redis (in) and written to it (out), by direction";
        registry.register("tier_traffic_bytes", bytes, self.bytes.clone());
    }

    pub(super) fn observe(&self, event: Event<'_>) {
        match event {
            Event::TierCalled { tier, op, took } => {
                let seconds = self.seconds.get_or_create(&OpLabels { tier, op });
                seconds.observe(took);
            }
            Event::TierFailed { tier, op } => {
                self.failures.get_or_create(&OpLabels { tier, op }).inc();
            }
            Event::TierSkipped(tier) => {
                self.skipped.get_or_create(&TierLabel { tier }).inc();
            }
            Event::TierBypassed(tier) => {
                self.opened.get_or_create(&TierLabel { tier }).inc();
            }
            _ => {}
        }
    }

    pub(super) fn refresh(&self, engine: &Engine) {
        for (tier, condition) in engine.lower_tiers() {
            let state = match condition {
                Condition::Closed => 0,
                Condition::HalfOpen => 1,
                Condition::Open => 2,
            };
            let label = TierLabel { tier };
            self.state.get_or_create(&label).set(state);
            // Created at zero, so that an alert sees the first increase.
            drop(self.opened.get_or_create(&label));
            drop(self.skipped.get_or_create(&label));
        }
    }

    /// Returns the durations of the lookups in a tier, with and without a request for the lease.
    pub(super) fn reads(&self, tier: &'static str) -> LatencySum {
        let mut sum = LatencySum::default();
        for op in ["open", "lease"] {
            sum.merge(&self.seconds.get_or_create(&OpLabels { tier, op }).sum());
        }
        sum
    }

    /// Returns the counter for a metric that a tier counts itself.
    pub(super) fn counter(
        &self,
        count: TierCounter,
        tier: &'static str,
        label: &'static str,
    ) -> Counter {
        match count {
            TierCounter::Writes => {
                self.writes.get_or_create(&ResultLabels { tier, result: label }).clone()
            }
            TierCounter::Rejected => {
                self.rejected.get_or_create(&ReasonLabels { tier, reason: label }).clone()
            }
            TierCounter::Errors => {
                self.errors.get_or_create(&ReasonLabels { tier, reason: label }).clone()
            }
            TierCounter::Bytes => {
                self.bytes.get_or_create(&DirectionLabels { tier, direction: label }).clone()
            }
        }
    }
}

//! The disk tier: opened, told about, counted.

use std::sync::Arc;

use forebay_core::Condition;
use forebay_disk::{Condition as DiskCondition, Disk, Limits};
use forebay_engine::{Engine, SystemClock};
use forebay_http::Metrics;
use forebay_http::metrics::TierCount;
use serde_json::{Value, json};

use crate::config::resolved::ResolvedDisk;

/// What it is called in metrics and health: as the tier calls itself.
pub(crate) const NAME: &str = "disk";

/// Opens its directory. What is in it is read while the cache serves.
pub(crate) fn open(config: &ResolvedDisk) -> anyhow::Result<Arc<Disk>> {
    let limits = Limits { size: config.size, object_max: config.object_max };
    Ok(Arc::new(Disk::open(&config.path, limits, Arc::new(SystemClock))?))
}

/// Says in the log when a purge by prefix becomes one of its whole site.
pub(crate) async fn log_widened_purges(disk: Arc<Disk>) {
    let mut widened = disk.widened();
    drop(disk);
    while widened.changed().await.is_ok() {
        tracing::warn!(
            "disk: more prefixes have been purged than are told apart: the oldest one counts for \
             its whole site now"
        );
    }
}

/// Whether it is used as it was meant to be: asked, and written to.
pub(crate) fn is_healthy(engine: &Engine, disk: &Disk) -> bool {
    let is_used = |(name, condition)| name != NAME || condition == Condition::Closed;
    engine.lower_tiers().all(is_used) && disk.condition() == DiskCondition::Healthy
}

/// What there is to know of it.
pub(crate) fn shown(disk: &Disk) -> Value {
    let counts = disk.counts();
    json!({
        "condition": condition_word(disk.condition()),
        "bytes": counts.bytes,
        "entries": counts.entries,
        "io_errors": counts.io_errors,
        "damaged": counts.damaged,
    })
}

const fn condition_word(condition: DiskCondition) -> &'static str {
    match condition {
        DiskCondition::Healthy => "well",
        DiskCondition::Full => "full",
        DiskCondition::ReadOnly => "read-only",
        DiskCondition::Failing => "failing",
        DiskCondition::Stopped => "stopped",
    }
}

/// Brings the metrics up to what the tier itself has counted.
pub(crate) fn count(disk: &Disk, metrics: &Metrics) {
    use TierCount::{Rejected, Troubles, Writes};
    let counts = disk.counts();
    metrics.take_over_size(NAME, (counts.bytes, counts.entries));
    metrics.take_over_evictions(NAME, "room", counts.evicted_entries);
    metrics.take_over_lookups(NAME, &[("hit", counts.hits), ("miss", counts.misses)]);
    let counts = [
        (Rejected, "damaged", counts.damaged),
        (Rejected, "hole", counts.holes),
        (Rejected, "suspect", counts.discarded_segments),
        (Rejected, "foreign", counts.foreign),
        (Writes, "stored", counts.stored),
        (Writes, "removed", counts.removed),
        (Writes, "reinserted", counts.reinserted),
        (Writes, "refused", counts.refused),
        (Writes, "failed", counts.failed),
        (Writes, "widened", counts.widened),
        (Troubles, "io", counts.io_errors),
    ];
    metrics.take_over(NAME, &counts);
}

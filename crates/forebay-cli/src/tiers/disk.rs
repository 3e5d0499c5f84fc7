//! Disk tier: opening, health and metrics.

use std::sync::Arc;

use forebay_disk::{Condition as DiskCondition, Disk, INDEX_WAIT_MAX, Limits};
use forebay_engine::SystemClock;
use forebay_http::Metrics;
use forebay_http::metrics::TierCounter;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::config::resolved::ResolvedDisk;

/// Name of the disk tier in metrics and health, equal to `Disk::name`.
pub(crate) const NAME: &str = "disk";

/// Opens the directory. Its index is read in the background; see [`wait_for_index`].
///
/// # Errors
/// If the directory cannot be created, locked or read.
pub(crate) fn open(config: &ResolvedDisk) -> anyhow::Result<Arc<Disk>> {
    let limits = Limits { size: config.size, object_max: config.object_max };
    Ok(Arc::new(Disk::open(&config.path, limits, Arc::new(SystemClock))?))
}

/// Waits until the entries of earlier processes are indexed, at most [`INDEX_WAIT_MAX`]. An entry
/// that is not indexed yet is a miss, so a start without this wait would fetch stored responses again.
pub(crate) async fn wait_for_index(disk: &Disk) {
    if timeout(INDEX_WAIT_MAX, disk.loaded()).await.is_err() {
        tracing::info!(
            wait_max = ?INDEX_WAIT_MAX,
            entries = disk.counts().entries,
            "disk tier: serving begins before all stored entries are indexed; those not indexed yet \
             are misses until then"
        );
    }
}

/// Logs a warning each time a purge by prefix is widened to its whole site.
pub(crate) async fn log_widened_purges(disk: Arc<Disk>) {
    let mut widened = disk.widened();
    drop(disk);
    while widened.changed().await.is_ok() {
        tracing::warn!(
            "disk tier: more than 64 purges by prefix are recorded, so the oldest one now applies \
             to its whole site: older entries of the site are fetched again; purge by tag instead \
             of by many prefixes to avoid this"
        );
    }
}

/// Fields of the disk tier in `GET /healthz`.
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

/// Copies the counters of the disk tier into the metrics.
pub(crate) fn count(disk: &Disk, metrics: &Metrics) {
    use TierCounter::{Errors, Rejected, Writes};
    let counts = disk.counts();
    metrics.set_tier_size(NAME, counts.bytes, counts.entries);
    metrics.set_tier_evictions(NAME, "room", counts.evicted_entries);
    metrics.set_tier_lookups(NAME, &[("hit", counts.hits), ("miss", counts.misses)]);
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
        (Errors, "io", counts.io_errors),
    ];
    metrics.set_tier_counters(NAME, &counts);
}

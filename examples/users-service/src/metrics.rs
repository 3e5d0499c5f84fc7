//! What the caches have done, for Prometheus: read from their [`Stats`] each time it asks, so that
//! nothing is counted twice and a hit costs nothing more.

use std::fmt;

use forebay::Stats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::users::Users;

/// The form in which [`text`] writes them.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A name, what it tells, and where it stands in what a cache tells of itself.
type Row = (&'static str, &'static str, fn(&Stats) -> u64);

/// What only grows. Hits, misses and errors are all calls.
const COUNTERS: [Row; 10] = [
    ("cache_hits", "Calls answered by what was at hand", |stats| stats.hits),
    ("cache_stale_hits", "Hits that were past their time", |stats| stats.stale_hits),
    ("cache_misses", "Calls that had to wait", |stats| stats.misses),
    ("cache_coalesced", "Misses that shared a load", |stats| stats.coalesced),
    ("cache_fallbacks", "Misses answered with something stale", |stats| stats.fallbacks),
    ("cache_errors", "Calls without an answer", |stats| stats.errors),
    ("cache_loads", "Loads that have ended", |stats| stats.loads),
    ("cache_load_failures", "Loads that brought nothing", |stats| stats.load_failures),
    ("cache_tier_failures", "Failures of tiers below memory", |stats| stats.tier_failures),
    ("cache_evictions", "Entries that made room for others", |stats| stats.evictions),
];

/// What goes up and down.
const GAUGES: [Row; 3] = [
    ("cache_entries", "Entries held in memory", |stats| stats.entries),
    ("cache_weight", "What they take of the bound", |stats| stats.weight),
    ("cache_loading", "Loads under way", |stats| stats.loading as u64),
];

/// The metrics of a service, as text.
///
/// # Errors
/// None, as nothing can fail that is written to a text.
pub fn text(users: &Users) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(users.clone()));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Users {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let caches = self.stats_by_cache();
        for (name, help, read) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (cache, stats) in &caches {
                let label = [("cache", *cache)];
                ConstCounter::new(read(stats)).encode(metric.encode_family(&label)?)?;
            }
        }
        let (name, help) = ("cache_no_hits", "Misses and errors, by why they were no hits");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (cache, stats) in &caches {
            for (reason, calls) in stats.reasons.iter() {
                let labels = [("cache", *cache), ("reason", reason)];
                ConstCounter::new(calls).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (cache, stats) in &caches {
                let label = [("cache", *cache)];
                ConstGauge::new(read(stats)).encode(metric.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

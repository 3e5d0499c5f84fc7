//! Prometheus metrics of the caches, read from their [`Stats`] at each scrape, so that a hit costs
//! nothing more.

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

/// Content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Name, help text and value of a metric.
type Metric = (&'static str, &'static str, fn(&Stats) -> u64);

/// Counters. The sum of hits, misses and errors is the number of calls.
const COUNTERS: [Metric; 10] = [
    ("cache_hits", "Calls answered from memory without waiting.", |stats| stats.hits),
    ("cache_stale_hits", "Hits with a stale value.", |stats| stats.stale_hits),
    ("cache_misses", "Calls that memory could not answer.", |stats| stats.misses),
    ("cache_coalesced", "Misses that shared the load of another call.", |stats| stats.coalesced),
    (
        "cache_fallbacks",
        "Misses answered with a stale value because the load failed or was slow.",
        |stats| stats.fallbacks,
    ),
    ("cache_errors", "Calls that returned an error.", |stats| stats.errors),
    ("cache_loads", "Loads that have ended.", |stats| stats.loads),
    ("cache_load_failures", "Loads that ended with an error.", |stats| stats.load_failures),
    ("cache_tier_failures", "Failed operations of lower tiers.", |stats| stats.tier_failures),
    ("cache_evictions", "Entries removed from memory to make space.", |stats| stats.evictions),
];

/// Gauges.
const GAUGES: [Metric; 3] = [
    ("cache_entries", "Entries in memory.", |stats| stats.entries),
    ("cache_weight", "Size of the entries in the unit of the memory bound.", |stats| stats.weight),
    ("cache_loading", "Loads in flight.", |stats| stats.loading as u64),
];

/// Returns the metrics in the OpenMetrics text format.
///
/// # Errors
/// Formatting fails, which a `String` never does.
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
        let (name, help) = ("cache_no_hits", "Misses and errors, by reason.");
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

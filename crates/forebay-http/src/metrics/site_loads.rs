//! Metrics of the loads of each site, found by one lookup per event instead of one per metric.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::latency::SharedLatency;
use super::{LOADS, LoadLabels, Metrics, SiteLabel};

/// Metrics of the loads of one site, shared with their families.
#[derive(Debug)]
pub(super) struct SiteLoads {
    /// Loads by result, in the order of [`LOADS`].
    loads: [Counter; LOADS.len()],
    pub(super) seconds: SharedLatency,
    pub(super) in_flight: Gauge,
}

/// Metrics of the loads of each site that has had one.
#[derive(Debug, Default)]
pub(super) struct SiteLoadsById(RwLock<HashMap<Box<str>, Arc<SiteLoads>, ahash::RandomState>>);

impl SiteLoads {
    /// Returns the counter of a result; `None` if it is not one of [`LOADS`].
    pub(super) fn of(&self, result: &str) -> Option<&Counter> {
        let place = LOADS.iter().position(|known| *known == result)?;
        self.loads.get(place)
    }
}

impl Metrics {
    /// Returns the metrics of the loads of a site.
    pub(super) fn site_loads(&self, site: &str) -> Arc<SiteLoads> {
        if let Some(known) = self.site_loads.0.read().get(site) {
            return known.clone();
        }
        let label = SiteLabel { site: site.into() };
        let created = Arc::new(SiteLoads {
            loads: LOADS.map(|result| {
                let labels = LoadLabels { site: site.into(), result };
                self.loads.get_or_create_owned(&labels)
            }),
            seconds: self.load_seconds.get_or_create_owned(&label),
            in_flight: self.in_flight.get_or_create_owned(&label),
        });
        self.site_loads.0.write().entry(site.into()).or_insert(created).clone()
    }
}

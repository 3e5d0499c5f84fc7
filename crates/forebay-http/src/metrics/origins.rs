//! Metrics of origins.

use std::sync::Arc;

use forebay_core::CallState;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::SiteLabel;
use crate::site::Site;

#[derive(Debug, Default)]
pub(super) struct OriginMetrics {
    state: Family<SiteLabel, Gauge>,
}

impl OriginMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "origin_state",
            "State of the circuit breaker of a site: 0 closed, 1 half-open, 2 open.",
            self.state.clone(),
        );
    }

    /// Replaces the gauges by those of the current sites.
    pub(super) fn refresh(&self, sites: &[Arc<Site>]) {
        self.state.clear();
        for site in sites {
            let Some(state) = site.origin.breaker_state() else { continue };
            let label = SiteLabel { site: site.settings.id.clone() };
            self.state.get_or_create(&label).set(match state {
                CallState::Closed => 0,
                CallState::HalfOpen => 1,
                CallState::Open => 2,
            });
        }
    }
}

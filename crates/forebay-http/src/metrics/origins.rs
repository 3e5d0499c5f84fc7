//! Metrics of origins.

use forebay_core::CallState;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::SiteLabel;

#[derive(Debug, Default)]
pub(super) struct OriginMetrics {
    state: Family<SiteLabel, Gauge>,
}

impl OriginMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "origin_state",
            "State of the circuit breaker of a site: 0 closed, 1 half-open, 2 open; absent if the \
             site has none",
            self.state.clone(),
        );
    }

    /// Replaces the gauges by the states of the current sites that have a breaker.
    pub(super) fn refresh<'s>(&self, states: impl Iterator<Item = (&'s str, CallState)>) {
        self.state.clear();
        for (site, state) in states {
            let label = SiteLabel { site: site.into() };
            self.state.get_or_create(&label).set(match state {
                CallState::Closed => 0,
                CallState::HalfOpen => 1,
                CallState::Open => 2,
            });
        }
    }
}

//! Metrics of origins.

use forebay_core::{CallState, EndpointState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{SiteLabel, raise};
use crate::endpoint_status::{EndpointStatus, OriginUsage};

/// State of the origin of one site.
pub(crate) struct SiteOrigin<'s> {
    /// Id of the site.
    pub(crate) site: &'s str,
    /// State of the circuit breaker, if there is one.
    pub(crate) breaker: Option<CallState>,
    pub(crate) usage: OriginUsage,
    pub(crate) endpoints: Vec<EndpointStatus>,
    /// Numbers of retries by result, if there are retries.
    pub(crate) retries: Option<[(&'static str, u64); 3]>,
}

#[derive(Debug, Default)]
pub(super) struct OriginMetrics {
    state: Family<SiteLabel, Gauge>,
    connections_max: Family<SiteLabel, Gauge>,
    waiting: Family<SiteLabel, Gauge>,
    up: Family<EndpointLabels, Gauge>,
    endpoint_state: Family<EndpointLabels, Gauge>,
    requests: Family<ResultLabels, Counter>,
    ejections: Family<ReasonLabels, Counter>,
    checks: Family<ResultLabels, Counter>,
    retries: Family<RetryLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    site: Box<str>,
    endpoint: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    site: Box<str>,
    endpoint: Box<str>,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryLabels {
    site: Box<str>,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    site: Box<str>,
    endpoint: Box<str>,
    reason: &'static str,
}

impl OriginMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "origin_state",
            "State of the circuit breaker of a site: 0 closed, 1 half-open, 2 open; absent if the \
             site has none",
            self.state.clone(),
        );
        registry.register(
            "origin_connections_max",
            "Maximum number of connections to the origin of a site",
            self.connections_max.clone(),
        );
        registry.register(
            "origin_waiting",
            "Requests that wait now for a free connection to the origin of a site",
            self.waiting.clone(),
        );
        registry.register(
            "origin_up",
            "Whether an origin server gets requests: 1 yes, 0 ejected or unhealthy",
            self.up.clone(),
        );
        registry.register(
            "endpoint_state",
            "State of an origin server: 0 usable, 1 slow start, 2 ejected, 3 unhealthy",
            self.endpoint_state.clone(),
        );
        registry.register(
            "origin_requests",
            "Requests to an origin server, by result",
            self.requests.clone(),
        );
        registry.register(
            "endpoint_ejections",
            "Exclusions of an origin server from requests, by reason (requests: failed requests, \
             checks: failed health checks)",
            self.ejections.clone(),
        );
        registry.register(
            "health_checks",
            "Health checks of an origin server, by result",
            self.checks.clone(),
        );
        registry.register(
            "retries",
            "Requests sent to an origin again, and retries refused by the budget, by result",
            self.retries.clone(),
        );
    }

    /// Replaces the gauges by the states of the current sites, and updates the counters.
    pub(super) fn refresh<'s>(&self, origins: impl Iterator<Item = SiteOrigin<'s>>) {
        self.state.clear();
        self.connections_max.clear();
        self.waiting.clear();
        self.up.clear();
        self.endpoint_state.clear();
        for SiteOrigin { site, breaker, usage, endpoints, retries } in origins {
            let label = SiteLabel { site: site.into() };
            let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            self.connections_max.get_or_create(&label).set(gauge(usage.connections_max));
            self.waiting.get_or_create(&label).set(gauge(usage.waiting));
            if let Some(state) = breaker {
                self.state.get_or_create(&label).set(match state {
                    CallState::Closed => 0,
                    CallState::HalfOpen => 1,
                    CallState::Open => 2,
                });
            }
            for (result, total) in retries.into_iter().flatten() {
                let labels = RetryLabels { site: site.into(), result };
                raise(&self.retries.get_or_create(&labels).clone(), total);
            }
            endpoints.iter().for_each(|endpoint| self.refresh_endpoint(site, endpoint));
        }
    }

    fn refresh_endpoint(&self, site: &str, status: &EndpointStatus) {
        let (site, endpoint) = (|| site.into(), || status.endpoint.clone());
        let with_result = |result| ResultLabels { site: site(), endpoint: endpoint(), result };
        let with_reason = |reason| ReasonLabels { site: site(), endpoint: endpoint(), reason };
        for (result, total) in status.requests {
            raise(&self.requests.get_or_create(&with_result(result)).clone(), total);
        }
        let Some(state) = status.state else { return };
        let label = EndpointLabels { site: site(), endpoint: endpoint() };
        self.up.get_or_create(&label).set(state.is_usable().into());
        self.endpoint_state.get_or_create(&label).set(match state {
            EndpointState::Usable => 0,
            EndpointState::SlowStart => 1,
            EndpointState::Ejected => 2,
            EndpointState::Unhealthy => 3,
        });
        for (reason, total) in status.ejections {
            raise(&self.ejections.get_or_create(&with_reason(reason)).clone(), total);
        }
        for (result, total) in status.checks {
            raise(&self.checks.get_or_create(&with_result(result)).clone(), total);
        }
    }
}

//! Metrics of origins.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use forebay_core::origin_budget::{RATE_UNIT, UNBOUNDED};
use forebay_core::{CallState, EndpointState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{SiteLabel, raise};
use crate::endpoint_status::{EndpointStatus, OriginUsage};
use crate::origin_status::{BudgetStatus, OriginLoad};

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
    pub(crate) load: OriginLoad,
    /// Status of the budget, if there is one.
    pub(crate) budget: Option<BudgetStatus>,
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
    connects: Family<ResultLabels, Counter>,
    connections: Family<UseLabels, Gauge>,
    resolves: Family<SiteResultLabels, Counter>,
    retries: Family<SiteResultLabels, Counter>,
    limit: Family<SiteLabel, Gauge>,
    in_flight: Family<SiteLabel, Gauge>,
    admissions: Family<SiteResultLabels, Counter>,
    budget: Family<BudgetLabels, Gauge<f64, AtomicU64>>,
    budget_held: Family<BudgetLabels, Gauge<f64, AtomicU64>>,
    budget_lost: Family<SiteLabel, Gauge>,
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
struct UseLabels {
    site: Box<str>,
    endpoint: Box<str>,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SiteResultLabels {
    site: Box<str>,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BudgetLabels {
    site: Box<str>,
    part: &'static str,
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
            "Requests that wait now for the limit on requests to the origin of a site, or for its budget",
            self.waiting.clone(),
        );
        registry.register(
            "retries",
            "Retries of requests to an origin, by result (ok, failed; budget: not sent, because too \
             many requests were retried)",
            self.retries.clone(),
        );
        registry.register(
            "origin_limit",
            "Maximum number of concurrent requests to an origin (in_flight_max, adaptive)",
            self.limit.clone(),
        );
        registry.register(
            "origin_in_flight",
            "Requests to an origin that are in progress",
            self.in_flight.clone(),
        );
        registry.register(
            "origin_admissions",
            "Requests to an origin, by result of their admission (at-once, queued, timed-out, \
             queue-full, over-budget)",
            self.admissions.clone(),
        );
        self.register_endpoints(registry);
        self.register_budget(registry);
    }

    fn register_endpoints(&self, registry: &mut Registry) {
        registry.register(
            "origin_up",
            "1 if an origin server gets requests, 0 while it is ejected or unhealthy",
            self.up.clone(),
        );
        registry.register(
            "endpoint_state",
            "State of an origin server: 0 usable, 1 slow start, 2 ejected, 3 unhealthy",
            self.endpoint_state.clone(),
        );
        registry.register(
            "origin_requests",
            "Requests to an origin server, by result (ok, failed)",
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
            "Health checks of an origin server, by result (passed, failed)",
            self.checks.clone(),
        );
        registry.register(
            "origin_connects",
            "Attempts to connect to an origin server, by result (name: lookup failed, protocol: no \
             common version of HTTP)",
            self.connects.clone(),
        );
        registry.register(
            "origin_connections",
            "Open connections to an origin server, by state (used, idle; those of HTTP/2 are used)",
            self.connections.clone(),
        );
        registry.register(
            "resolves",
            "Lookups of the names of the servers of an origin, by result",
            self.resolves.clone(),
        );
    }

    fn register_budget(&self, registry: &mut Registry) {
        registry.register(
            "origin_budget",
            "Budget of requests to an origin that all instances share, by part (in_flight: \
             concurrent requests, rate: requests per second)",
            self.budget.clone(),
        );
        registry.register(
            "origin_budget_held",
            "Part of the budget of an origin that this instance may use, by part",
            self.budget_held.clone(),
        );
        registry.register(
            "origin_budget_lost",
            "1 while the shared tier with the budget of an origin does not answer, so that this \
             instance uses an equal part; otherwise 0",
            self.budget_lost.clone(),
        );
    }

    /// Replaces the gauges by the states of the current sites, and updates the counters.
    pub(super) fn refresh<'s>(&self, origins: impl Iterator<Item = SiteOrigin<'s>>) {
        self.state.clear();
        self.connections_max.clear();
        self.waiting.clear();
        self.up.clear();
        self.endpoint_state.clear();
        self.connections.clear();
        let gauges = [&self.limit, &self.in_flight, &self.budget_lost];
        gauges.into_iter().for_each(Family::clear);
        [&self.budget, &self.budget_held].into_iter().for_each(Family::clear);
        for SiteOrigin { site, breaker, usage, endpoints, retries, load, budget } in origins {
            self.refresh_load(site, &load);
            self.refresh_budget(site, budget);
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
                let labels = SiteResultLabels { site: site.into(), result };
                raise(&self.retries.get_or_create(&labels).clone(), total);
            }
            endpoints.iter().for_each(|endpoint| self.refresh_endpoint(site, endpoint));
            self.refresh_resolves(site, &endpoints);
        }
    }

    fn refresh_resolves(&self, site: &str, endpoints: &[EndpointStatus]) {
        let mut totals: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (result, total) in endpoints.iter().flat_map(|endpoint| endpoint.resolves) {
            *totals.entry(result).or_default() += total;
        }
        for (result, total) in totals {
            let labels = SiteResultLabels { site: site.into(), result };
            raise(&self.resolves.get_or_create(&labels).clone(), total);
        }
    }

    fn refresh_load(&self, site: &str, load: &OriginLoad) {
        let label = SiteLabel { site: site.into() };
        for (gauge, value) in [(&self.limit, load.limit), (&self.in_flight, load.in_flight)] {
            gauge.get_or_create(&label).set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        for (result, total) in load.results {
            let labels = SiteResultLabels { site: site.into(), result };
            raise(&self.admissions.get_or_create(&labels).clone(), total);
        }
    }

    fn refresh_budget(&self, site: &str, status: Option<BudgetStatus>) {
        let Some(BudgetStatus { total, held, is_lost, .. }) = status else { return };
        for (gauge, amount) in [(&self.budget, total), (&self.budget_held, held)] {
            let rate = amount.rate as f64 / RATE_UNIT as f64;
            let parts =
                [("in_flight", total.slots, amount.slots as f64), ("rate", total.rate, rate)];
            for (part, _, value) in parts.into_iter().filter(|(_, total, _)| *total < UNBOUNDED) {
                gauge.get_or_create(&BudgetLabels { site: site.into(), part }).set(value);
            }
        }
        self.budget_lost.get_or_create(&SiteLabel { site: site.into() }).set(is_lost.into());
    }

    fn refresh_endpoint(&self, site: &str, status: &EndpointStatus) {
        let (site, endpoint) = (|| site.into(), || status.endpoint.clone());
        let with_result = |result| ResultLabels { site: site(), endpoint: endpoint(), result };
        let with_reason = |reason| ReasonLabels { site: site(), endpoint: endpoint(), reason };
        for (result, total) in status.requests {
            raise(&self.requests.get_or_create(&with_result(result)).clone(), total);
        }
        for (result, total) in status.connects {
            raise(&self.connects.get_or_create(&with_result(result)).clone(), total);
        }
        for (state, count) in status.connections {
            let labels = UseLabels { site: site(), endpoint: endpoint(), state };
            self.connections.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
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

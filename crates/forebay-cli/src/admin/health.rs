//! `GET /readyz` and `GET /healthz`.
//!
//! A cache whose lower tier fails is degraded and still ready: it answers from memory and from the
//! origin. A load balancer that removed every such cache would cause an outage.

use std::time::SystemTime;

use forebay_core::origin_budget::{RATE_UNIT, UNBOUNDED};
use forebay_core::{Condition, EndpointState};
use forebay_http::{BudgetStatus, EndpointStatus, Phase};
use serde_json::{Map, Value, json};

use super::AdminState;
use super::reasons::{self, Reason};
use crate::log::rfc_3339;
use crate::probe;
use crate::tiers::{disk, shared};

/// Body of `GET /readyz`: readiness of the cache, and the state of each tier.
pub(super) fn readiness(state: &AdminState) -> Value {
    let mut tiers = Map::new();
    tiers.insert("memory".to_owned(), OK.into());
    for (name, condition) in state.service.engine().lower_tiers() {
        tiers.insert(name.to_owned(), state_word(condition).into());
    }
    let is_ready = state.service.phase() == Phase::Ready;
    json!({ "ready": is_ready, "state": overall(state), "tiers": tiers })
}

/// Body of `GET /healthz`: the state, sizes and servers of each tier, and of the cluster.
pub(super) fn health(state: &AdminState) -> Value {
    let engine = state.service.engine();
    let memory = engine.memory();
    let mut tiers = Map::new();
    let bounds = json!({
        "state": OK,
        "bytes": memory.bytes(),
        "entries": memory.entries(),
    });
    tiers.insert("memory".to_owned(), bounds);
    for (name, condition) in engine.lower_tiers() {
        let mut tier =
            json!({ "state": state_word(condition), "breaker": breaker_word(condition) });
        if let (disk::NAME, Some(disk)) = (name, &state.disk) {
            extend(&mut tier, disk::shown(disk));
        }
        if let Some(endpoints) = shared::endpoints(&state.shared, name) {
            tier["endpoints"] = endpoints;
        }
        tiers.insert(name.to_owned(), tier);
    }
    let reasons = state.monitor.since.note(reasons::current(state));
    let mut health = json!({ "state": overall_word(state, reasons.is_empty()), "tiers": tiers });
    if !reasons.is_empty() {
        health["reasons"] = shown_reasons(&reasons);
    }
    let overdue = overdue(state);
    if !overdue.is_empty() {
        health["certificates_overdue"] = overdue.iter().map(|name| &**name).collect();
    }
    let origins = origins(state);
    if !origins.is_empty() {
        health["origins"] = origins.into();
    }
    let budgets = budgets(state);
    if !budgets.is_empty() {
        health["budgets"] = budgets.into();
    }
    if let Some(cluster) = cluster(state) {
        health["cluster"] = cluster;
    }
    health
}

/// Origin servers by site, with their states. A server without checks and without others beside it
/// has no known state.
fn origins(state: &AdminState) -> Map<String, Value> {
    let mut origins = Map::new();
    for site in state.service.sites() {
        let shown = |status: EndpointStatus| {
            let state = endpoint_word(status.state?);
            Some(json!({ "endpoint": &*status.endpoint, "state": state }))
        };
        let servers: Vec<Value> = site.endpoints().into_iter().filter_map(shown).collect();
        if !servers.is_empty() {
            origins.insert(site.settings.id.to_string(), servers.into());
        }
    }
    origins
}

/// Budgets of origins by site: the whole, and the part of this instance.
fn budgets(state: &AdminState) -> Map<String, Value> {
    let sites = state.service.sites();
    let shown = sites.iter().filter_map(|site| {
        let BudgetStatus { is_shared, is_lost, instances, total, held, in_flight } =
            site.budget()?;
        let mut shown = json!({
            "state": match (is_shared, is_lost) {
                (false, _) => "local",
                (true, false) => "shared",
                (true, true) => "lost",
            },
            "instances": instances,
        });
        if total.slots < UNBOUNDED {
            let used = in_flight;
            shown["in_flight"] = json!({ "budget": total.slots, "held": held.slots, "used": used });
        }
        if total.rate < UNBOUNDED {
            let per_second = |rate: u64| rate as f64 / RATE_UNIT as f64;
            shown["rate"] =
                json!({ "budget": per_second(total.rate), "held": per_second(held.rate) });
        }
        Some((site.settings.id.to_string(), shown))
    });
    shown.collect()
}

/// State of an origin server.
pub(super) const fn endpoint_word(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Usable => OK,
        EndpointState::SlowStart => "slow-start",
        EndpointState::Ejected => "ejected",
        EndpointState::Unhealthy => "unhealthy",
    }
}

/// Cluster part of `GET /healthz`; `None` without a shared tier.
fn cluster(state: &AdminState) -> Option<Value> {
    let bus = state.service.engine().bus_status()?;
    let cluster = shared::sharing(&state.shared, state.started)?;
    Some(json!({
        "instances": cluster.instances,
        "bus": if bus.connected { "heard" } else { "lost" },
        "lag_seconds": cluster.lag.as_secs_f64(),
        "purges_waiting": bus.unpublished,
    }))
}

/// Names whose automatic certificate is absent or about to expire.
fn overdue(state: &AdminState) -> Vec<Box<str>> {
    state.certificates.as_ref().map(|store| store.overdue()).unwrap_or_default()
}

fn overall(state: &AdminState) -> &'static str {
    overall_word(state, reasons::current(state).is_empty())
}

/// Word of the whole cache: its phase, or whether it is degraded.
pub(super) fn overall_word(state: &AdminState, is_healthy: bool) -> &'static str {
    match state.service.phase() {
        Phase::Ready if !is_healthy => "degraded",
        phase => probe::readiness(phase).1,
    }
}

/// Reasons why the cache is degraded, each with the time since when it holds.
pub(super) fn shown_reasons(reasons: &[(Reason, SystemTime)]) -> Value {
    let shown = |(reason, since): &(Reason, SystemTime)| {
        let Reason { because, name } = reason;
        json!({ "because": because.code(), "name": name, "since": rfc_3339(*since) })
    };
    reasons.iter().map(shown).collect()
}

fn extend(tier: &mut Value, more: Value) {
    if let (Value::Object(tier), Value::Object(more)) = (tier, more) {
        tier.extend(more);
    }
}

/// State of a tier that is in use. The memory tier has no circuit breaker and no other state.
pub(super) const OK: &str = "ok";

/// State of a tier, as in the metric `tier_state`.
pub(super) const fn state_word(condition: Condition) -> &'static str {
    match condition {
        Condition::Closed => OK,
        Condition::HalfOpen => "probing",
        Condition::Open => "bypassed",
    }
}

/// State of the tier's circuit breaker.
const fn breaker_word(condition: Condition) -> &'static str {
    match condition {
        Condition::Closed => "closed",
        Condition::HalfOpen => "half-open",
        Condition::Open => "open",
    }
}

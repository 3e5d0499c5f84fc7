//! `GET /readyz` and `GET /healthz`.
//!
//! A cache with a lower tier that fails is degraded and still ready: it answers from memory and
//! from the origin, and a balancer that took all such caches away would make an outage of it.

use forebay_core::Condition;
use serde_json::{Map, Value, json};

use super::Behind;
use crate::{disk, shared};

/// Whether requests may be sent here, and what they will find.
pub(super) fn readiness(behind: &Behind) -> Value {
    let mut tiers = Map::new();
    tiers.insert("memory".to_owned(), "closed".into());
    for (name, condition) in behind.service.engine().lower_tiers() {
        tiers.insert(name.to_owned(), word(condition).into());
    }
    json!({ "ready": true, "state": state(behind), "tiers": tiers })
}

/// The same with what there is to know of each tier.
pub(super) fn health(behind: &Behind) -> Value {
    let engine = behind.service.engine();
    let memory = engine.memory();
    let mut tiers = Map::new();
    let bounds = json!({
        "state": "closed",
        "bytes": memory.bytes(),
        "entries": memory.entries(),
    });
    tiers.insert("memory".to_owned(), bounds);
    for (name, condition) in engine.lower_tiers() {
        let mut tier = json!({ "state": word(condition) });
        if let (disk::NAME, Some(disk)) = (name, &behind.disk) {
            extend(&mut tier, disk::shown(disk));
        }
        if let Some(endpoints) = shared::endpoints(&behind.shared, name) {
            tier["endpoints"] = endpoints;
        }
        tiers.insert(name.to_owned(), tier);
    }
    let mut health = json!({ "state": state(behind), "tiers": tiers });
    if let Some(cluster) = cluster(behind) {
        health["cluster"] = cluster;
    }
    health
}

/// How it stands with other instances; nothing if nothing is shared.
fn cluster(behind: &Behind) -> Option<Value> {
    let bus = behind.service.engine().bus_status()?;
    let (instances, lag) = shared::sharing(&behind.shared).unwrap_or((1, None));
    Some(json!({
        "instances": instances,
        "bus": if bus.connected { "heard" } else { "lost" },
        "lag_seconds": lag.map(|lag| lag.as_secs_f64()),
        "purges_waiting": bus.unpublished,
    }))
}

fn state(behind: &Behind) -> &'static str {
    let engine = behind.service.engine();
    let is_told = engine.bus_status().is_none_or(|bus| bus.unpublished == 0);
    let is_well = is_told
        && shared::are_well(engine, &behind.shared)
        && behind.disk.as_ref().is_none_or(|disk| disk::is_well(engine, disk));
    if is_well { "ready" } else { "degraded" }
}

fn extend(tier: &mut Value, more: Value) {
    if let (Value::Object(tier), Value::Object(more)) = (tier, more) {
        tier.extend(more);
    }
}

const fn word(condition: Condition) -> &'static str {
    match condition {
        Condition::Closed => "closed",
        Condition::HalfOpen => "half-open",
        Condition::Open => "open",
    }
}

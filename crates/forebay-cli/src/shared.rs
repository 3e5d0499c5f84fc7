//! The tier that several caches share: connected, told about, counted.

use std::sync::Arc;

use anyhow::Context;
use forebay_core::Condition;
use forebay_engine::{Clock, Engine};
use forebay_http::Metrics;
use forebay_http::metrics::TierCount;
use forebay_redis::{EndpointState, Notice, Redis, Witness};
use serde_json::{Value, json};

use crate::config::plan::RedisPlan;
use crate::settings;

/// What it is called in metrics and health: as the tier calls itself.
const NAME: &str = "redis";

/// Writes into the log what an operator wants to know of the servers.
struct Log;

impl Witness for Log {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Up { .. } => tracing::info!("Redis: {notice}"),
            _ => tracing::warn!("Redis: {notice}"),
        }
    }
}

/// Begins to connect, and waits for nobody: what is unreachable now may be there later.
pub(crate) fn connect(plan: &RedisPlan, clock: Arc<dyn Clock>) -> anyhow::Result<Redis> {
    Redis::connect(settings::of_redis(plan), clock, Arc::new(Log))
        .context("the shared tier of [redis] cannot be used")
}

/// Whether it is used as it was meant to be: asked, by its nearest server, and written to.
pub(crate) fn is_well(engine: &Engine, redis: &Redis) -> bool {
    let is_asked = |(name, condition)| name != NAME || condition == Condition::Closed;
    let nearest = redis.endpoints().into_iter().next();
    engine.lower_tiers().all(is_asked)
        && nearest.is_some_and(|one| one.is_used && !one.is_read_only)
}

/// Its servers, the nearest first.
pub(crate) fn endpoints(redis: &Redis) -> Value {
    let shown = |one: EndpointState| {
        json!({
            "address": one.address,
            "answers": one.is_up,
            "used": one.is_used,
            "read_only": one.is_read_only,
            "owed": one.owed,
            "trouble": one.trouble,
        })
    };
    redis.endpoints().into_iter().map(shown).collect()
}

/// Brings the metrics up to what the tier itself has counted.
pub(crate) fn count(redis: &Redis, metrics: &Metrics) {
    use TierCount::{Bytes, Rejected, Troubles, Writes};
    let counts = redis.counts();
    metrics.take_over_lookups(NAME, &[("hit", counts.hits), ("miss", counts.misses)]);
    let counts = [
        (Rejected, "foreign", counts.foreign),
        (Rejected, "other-version", counts.other_version),
        (Rejected, "unauthentic", counts.unauthentic),
        (Rejected, "unbelievable", counts.unbelievable),
        (Rejected, "damaged", counts.damaged),
        (Rejected, "ageless", counts.ageless),
        (Rejected, "other-key", counts.other_key),
        (Writes, "stored", counts.stored),
        (Writes, "removed", counts.removed),
        (Writes, "too-large", counts.too_large),
        (Writes, "overtaken", counts.fills_refused),
        (Writes, "refused", counts.writes_refused),
        (Troubles, "absent", counts.absent),
        (Troubles, "timed-out", counts.timed_out),
        (Troubles, "broken", counts.broken),
        (Troubles, "denied", counts.denied),
        (Troubles, "unable", counts.unable),
        (Bytes, "in", counts.bytes_in),
        (Bytes, "out", counts.bytes_out),
    ];
    metrics.take_over(NAME, &counts);
}

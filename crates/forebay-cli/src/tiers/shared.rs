//! Shared Redis tiers: connecting, health and metrics. One tier serves all sites, except for sites
//! with their own `[site.redis]`, which have one each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_engine::{Clock, Event, Namespaces, Observer, OriginBudgets, TierSetup};
use forebay_http::Metrics;
use forebay_http::metrics::TierCounter;
use forebay_redis::{EndpointState, Notice, NoticeListener, Redis, SharingState};
use serde_json::{Value, json};

use crate::config::resolved::{ResolvedConfig, ResolvedRedis};
use crate::settings;
use crate::tiers::because::Because;

/// Name of the tier of all sites in metrics and health, equal to the name that `Redis` reports.
const NAME: &str = "redis";

/// Shared tier in Redis. Clones are handles to one tier.
#[derive(Clone)]
pub(crate) struct SharedTier {
    /// Name in metrics and health: `redis`, or `redis-SITE`.
    pub(crate) name: &'static str,
    pub(crate) redis: Redis,
    /// Sites whose entries the tier holds: the id of a site is the namespace of its keys.
    pub(crate) namespaces: Namespaces,
}

/// Logs notices of the Redis client.
struct Log {
    /// Subject of each message, such as `Redis of site "shop"`.
    subject: String,
}

impl NoticeListener for Log {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Up { .. } | Notice::LeasesAvailable { .. } => {
                tracing::info!("{}: {notice}", self.subject);
            }
            _ => tracing::warn!("{}: {notice}", self.subject),
        }
    }
}

/// Creates all shared tiers of the configuration. Connecting happens in the background: a server
/// that is unreachable now may become reachable later.
///
/// # Errors
/// If the settings of a tier are invalid.
pub(crate) fn connect(
    config: &ResolvedConfig,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Vec<SharedTier>> {
    let own = config.sites.iter().filter_map(|site| Some((&site.id, site.redis.as_ref()?)));
    let others = own.clone().map(|(id, _)| id.as_bytes().into()).collect();
    let namespaces = Namespaces::Except(others);
    let all = config.redis.iter().map(|redis| {
        let namespaces = namespaces.clone();
        connect_one(redis, config, NAME, "Redis".to_owned(), namespaces, clock).context("[redis]")
    });
    let own = own.map(|(id, redis)| {
        // Leaked once for each site at the start; the name lives as long as the process.
        let name = Box::leak(format!("{NAME}-{id}").into_boxed_str());
        let subject = format!("Redis of site \"{id}\"");
        let namespaces = Namespaces::Only(id.as_bytes().into());
        let connected = connect_one(redis, config, name, subject, namespaces, clock);
        connected.with_context(|| format!("[site.redis] of site \"{id}\""))
    });
    all.chain(own).collect::<anyhow::Result<_>>().context("shared tier cannot be created")
}

fn connect_one(
    redis: &ResolvedRedis,
    config: &ResolvedConfig,
    name: &'static str,
    subject: String,
    namespaces: Namespaces,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<SharedTier> {
    let settings = settings::of_redis(redis, &config.sites);
    let redis = Redis::connect(settings, clock.clone(), Arc::new(Log { subject }))?;
    Ok(SharedTier { name, redis, namespaces })
}

impl SharedTier {
    /// Returns the tier with the settings of an engine.
    pub(crate) fn setup(&self) -> TierSetup {
        let tier = TierSetup::new(Arc::new(self.redis.clone()));
        TierSetup { name: self.name, namespaces: self.namespaces.clone(), ..tier }
    }
}

/// Counts engine events, and logs once when a tier is bypassed and once when it is used again.
pub(crate) struct LoggingObserver {
    metrics: Arc<Metrics>,
    tiers: Vec<SharedTier>,
}

impl LoggingObserver {
    pub(crate) fn new(metrics: Arc<Metrics>, tiers: Vec<SharedTier>) -> Self {
        Self { metrics, tiers }
    }

    fn address(&self, name: &str) -> Option<String> {
        let tier = self.tiers.iter().find(|tier| tier.name == name)?;
        tier.redis.endpoints().into_iter().next().map(|nearest| nearest.address)
    }
}

impl Observer for LoggingObserver {
    fn observe(&self, event: Event<'_>) {
        self.metrics.observe(event);
        log_purge_event(event);
        let (name, is_opened) = match event {
            Event::TierBypassed(name) => (name, true),
            Event::TierRestored(name) => (name, false),
            _ => return,
        };
        // Tiers without an address are local.
        let address = self.address(name).unwrap_or_else(|| "local".to_owned());
        if is_opened {
            tracing::warn!(
                tier = name,
                %address,
                "tier bypassed after repeated failures: requests skip it until a probe succeeds"
            );
        } else {
            tracing::info!(tier = name, %address, "tier answers again and is used");
        }
    }
}

/// Logs changes of the invalidation bus, and findings of the self-check of purges.
fn log_purge_event(event: Event<'_>) {
    match event {
        Event::BusDisconnected => tracing::warn!(
            "invalidation bus disconnected: purges by other instances are not received, so purged \
             entries may be served; `when_blind` limits for how long"
        ),
        Event::BusGap => tracing::warn!(
            "gap in the invalidation bus: purges by other instances may have been missed, so purged \
             entries may be served; `when_blind` limits for how long, then stored entries are \
             checked in Redis before use"
        ),
        Event::BusConnected => tracing::info!("invalidation bus connected"),
        Event::PublishFailed(kind) => {
            tracing::warn!(
                kind,
                "purge not published to the other instances yet; publishing is retried until it \
                 succeeds"
            );
        }
        Event::PurgedEntryFound(key) => tracing::error!(
            site = %String::from_utf8_lossy(key.namespace()),
            key = %format_args!("{:016x}", forebay_http::key_hash(key)),
            "self-check of purges: an entry is valid although it was purged; purge the whole site, and \
             report this with the metrics"
        ),
        _ => {}
    }
}

/// Returns the common place of the budget of a site; `None` if no tier is shared for the site.
pub(crate) fn budgets_of(tiers: &[SharedTier], site: &str) -> Option<Arc<dyn OriginBudgets>> {
    let tier = tiers.iter().find(|tier| tier.namespaces.contains(site.as_bytes()))?;
    Some(Arc::new(tier.redis.clone()))
}

/// Maximum wait for the first connection to a shared tier. A server that takes longer may be away.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Interval of looks at the connection to a shared tier.
const CONNECT_LOOK: Duration = Duration::from_millis(10);

/// Waits until each shared tier answers, at most [`CONNECT_WAIT_MAX`].
pub(crate) async fn wait_until_connected(tiers: &[SharedTier]) {
    let is_up = |tier: &SharedTier| tier.redis.endpoints().iter().any(|one| one.is_up);
    let waiting = async {
        while !tiers.iter().all(is_up) {
            tokio::time::sleep(CONNECT_LOOK).await;
        }
    };
    // The caller goes on without the tier, as requests do.
    let _ = tokio::time::timeout(CONNECT_WAIT_MAX, waiting).await;
}

/// Returns why a tier is degraded: it must use its nearest server for reads and writes, and share
/// leases and purges.
pub(crate) fn reasons(tier: &SharedTier) -> Vec<Because> {
    let servers = tier.redis.endpoints();
    let mut reasons = Vec::new();
    match servers.iter().position(|server| server.is_used) {
        None => reasons.push(Because::TierBypassed),
        Some(0) => {}
        Some(_) => reasons.push(Because::FallbackServer),
    }
    if servers.first().is_some_and(|nearest| nearest.is_read_only) {
        reasons.push(Because::TierReadOnly);
    }
    if servers.first().is_some_and(|nearest| nearest.lease_error.is_some()) {
        reasons.push(Because::LeasesOff);
    }
    if tier.redis.sharing().is_some_and(|sharing| !sharing.bus_connected) {
        reasons.push(Because::BusLost);
    }
    reasons
}

/// Servers of a tier for `GET /healthz`, the nearest first; `None` if the tier is not shared.
pub(crate) fn endpoints(tiers: &[SharedTier], name: &str) -> Option<Value> {
    let shown = |one: EndpointState| {
        json!({
            "address": one.address,
            "answers": one.is_up,
            "used": one.is_used,
            "read_only": one.is_read_only,
            "owed": one.pending,
            "trouble": one.error,
            "purges_unheard": one.bus_error,
            "loads_unshared": one.lease_error,
            "writes_unheard": one.tracking_error,
        })
    };
    let tier = tiers.iter().find(|tier| tier.name == name)?;
    Some(tier.redis.endpoints().into_iter().map(shown).collect())
}

/// State of the instances that share tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Number of live instances: this one alone while the bus is disconnected, because then nothing
    /// is known of the others.
    pub(crate) instances: usize,
    /// Time since it was last certain that no purge was missed, or since the start of the process.
    pub(crate) lag: Duration,
}

/// State of the instances; `None` without a shared tier. Of several tiers, the largest values count.
pub(crate) fn sharing(tiers: &[SharedTier], started: Instant) -> Option<Cluster> {
    let states = tiers.iter().filter_map(|tier| tier.redis.sharing());
    let clusters = states.map(|state| Cluster::of(&state, started.elapsed()));
    clusters.reduce(|one, other| Cluster {
        instances: one.instances.max(other.instances),
        lag: one.lag.max(other.lag),
    })
}

impl Cluster {
    fn of(state: &SharingState, uptime: Duration) -> Self {
        let instances = if state.bus_connected { state.instances } else { 1 };
        Self { instances: instances.max(1), lag: state.lag.unwrap_or(uptime) }
    }
}

/// Copies the counters of a shared tier into the metrics.
pub(crate) fn count(tier: &SharedTier, metrics: &Metrics) {
    use TierCounter::{Bytes, Errors, Rejected, Writes};
    let (name, counts) = (tier.name, tier.redis.counts());
    metrics.set_tier_lookups(name, &[("hit", counts.hits), ("miss", counts.misses)]);
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
        (Errors, "absent", counts.absent),
        (Errors, "timed-out", counts.timed_out),
        (Errors, "broken", counts.broken),
        (Errors, "denied", counts.denied),
        (Errors, "unable", counts.unable),
        (Bytes, "in", counts.bytes_in),
        (Bytes, "out", counts.bytes_out),
    ];
    metrics.set_tier_counters(name, &counts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_bus_is_disconnected_this_instance_alone_is_known_to_live() {
        let uptime = Duration::from_secs(7);
        let of = |bus_connected, instances, lag| {
            Cluster::of(&SharingState { bus_connected, instances, lag }, uptime)
        };
        let lag = Duration::from_secs(1);
        assert_eq!(of(true, 3, Some(lag)), Cluster { instances: 3, lag });
        assert_eq!(of(false, 3, Some(lag)), Cluster { instances: 1, lag });
        assert_eq!(of(false, 0, None), Cluster { instances: 1, lag: uptime });
    }
}

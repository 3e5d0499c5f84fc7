//! The tiers that several caches share: connected, told about, counted. There is one for all
//! sites, and one for each site that has a `[site.redis]`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use forebay_core::{Condition, Key, KeyRef, Meta, Purge};
use forebay_engine::bus::{Bookmark, Chain};
use forebay_engine::{
    Budget, Clock, Engine, Event, LeasedWrite, Observer, Stored, Tier, TierError, Writer,
};
use forebay_http::Metrics;
use forebay_http::metrics::TierCount;
use forebay_redis::{EndpointState, Notice, NoticeListener, Redis};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::config::resolved::{ResolvedConfig, ResolvedRedis};
use crate::settings;

/// What the one for all sites is called in metrics and health: as the tier calls itself.
const NAME: &str = "redis";

/// A tier in Redis. Clones are the same tier.
#[derive(Clone)]
pub(crate) struct SharedTier {
    /// What it is called in metrics and health.
    pub(crate) name: &'static str,
    pub(crate) redis: Redis,
    sites: Arc<Sites>,
}

/// The sites that a tier is for, by their ids: what the keys of their entries begin with.
enum Sites {
    AllBut(Vec<String>),
    Only(String),
}

/// Writes into the log what an operator wants to know of the servers.
struct Log {
    /// Whose they are.
    of: String,
}

impl NoticeListener for Log {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Up { .. } | Notice::LeasesAvailable { .. } => {
                tracing::info!("{}: {notice}", self.of);
            }
            _ => tracing::warn!("{}: {notice}", self.of),
        }
    }
}

/// All that a plan wants. It begins to connect, and waits for nobody: what is unreachable now may
/// be there later.
pub(crate) fn connect(
    config: &ResolvedConfig,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Vec<SharedTier>> {
    let own = config.sites.iter().filter_map(|site| Some((&site.id, site.redis.as_ref()?)));
    let others: Vec<String> = own.clone().map(|(id, _)| id.clone()).collect();
    let all = config.redis.iter().map(|redis| {
        let named = (NAME, "Redis".to_owned());
        connect_one((redis, config), named, Sites::AllBut(others.clone()), clock).context("[redis]")
    });
    let own = own.map(|(id, redis)| {
        // One for each site at the start, for as long as the process lives.
        let name = Box::leak(format!("{NAME}-{id}").into_boxed_str());
        let named = (&*name, format!("Redis of site \"{id}\""));
        let connected = connect_one((redis, config), named, Sites::Only(id.clone()), clock);
        connected.with_context(|| format!("[site.redis] of site \"{id}\""))
    });
    all.chain(own).collect::<anyhow::Result<_>>().context("a shared tier cannot be used")
}

fn connect_one(
    (redis, config): (&ResolvedRedis, &ResolvedConfig),
    (name, of): (&'static str, String),
    sites: Sites,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<SharedTier> {
    let settings = settings::of_redis(redis, &config.sites);
    let redis = Redis::connect(settings, clock.clone(), Arc::new(Log { of }))?;
    Ok(SharedTier { name, redis, sites: Arc::new(sites) })
}

impl SharedTier {
    /// Whether it is for what belongs to a site.
    pub(crate) fn is_for(&self, site: &[u8]) -> bool {
        let is = |id: &String| site == id.as_bytes();
        match &*self.sites {
            Sites::AllBut(others) => !others.iter().any(is),
            Sites::Only(site) => is(site),
        }
    }
}

#[warn(clippy::missing_trait_methods)]
impl Tier for SharedTier {
    fn name(&self) -> &'static str {
        self.name
    }

    fn budget(&self) -> Budget {
        self.redis.budget()
    }

    fn takes(&self, primary: KeyRef<'_>) -> bool {
        self.is_for(primary.namespace())
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.redis.open(key)
    }

    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        self.redis.open_many(keys)
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.redis.begin(key, meta, head)
    }

    fn begin_put<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.redis.begin_put(key, meta, head)
    }

    fn begin_leased<'a>(
        &'a self,
        key: KeyRef<'a>,
        described: (&'a Meta, &'a Bytes),
        lease: LeasedWrite<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        self.redis.begin_leased(key, described, lease)
    }

    fn is_shared(&self) -> bool {
        self.redis.is_shared()
    }

    fn purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        self.redis.purge(what)
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.redis.bookmark()
    }

    fn keep_bookmark<'a>(
        &'a self,
        bookmark: &'a Bookmark,
        chain: Chain,
    ) -> BoxFuture<'a, Result<(), TierError>> {
        self.redis.keep_bookmark(bookmark, chain)
    }

    fn carries_out_purges(&self) -> bool {
        self.redis.carries_out_purges()
    }

    fn has_drafts(&self) -> bool {
        self.redis.has_drafts()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.redis.remove(key)
    }
}

/// Counts what happens in the engine, and tells the operator when a shared tier is left alone and
/// when it is used again: once each time, however many requests notice.
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
        log_bus_event(event);
        let (name, is_opened) = match event {
            Event::TierOpened(name) => (name, true),
            Event::TierClosed(name) => (name, false),
            _ => return,
        };
        // A tier without an address is on this machine.
        let place = self.address(name).map(|address| format!(" at {address}")).unwrap_or_default();
        if is_opened {
            tracing::warn!("the tier {name}{place} fails, and is left alone until it works again");
        } else {
            tracing::info!("the tier {name}{place} works again");
        }
    }
}

/// What an operator wants to know of the other instances.
fn log_bus_event(event: Event<'_>) {
    match event {
        Event::BusLost => tracing::warn!(
            "other instances are not heard: what is served may have been purged there"
        ),
        Event::BusGap => tracing::warn!(
            "purges of other instances may have been missed: what was stored until now is looked \
             at anew"
        ),
        Event::BusHeard => tracing::info!("other instances are heard"),
        Event::PublishFailed(kind) => {
            tracing::warn!(kind, "other instances could not be told of a purge; tried again");
        }
        _ => {}
    }
}

/// Whether all of them are used as they were meant to be.
pub(crate) fn all_healthy(engine: &Engine, tiers: &[SharedTier]) -> bool {
    let is_shared = |name| tiers.iter().any(|tier| tier.name == name);
    let is_used = |(name, condition)| !is_shared(name) || condition == Condition::Closed;
    engine.lower_tiers().all(is_used) && tiers.iter().all(is_healthy)
}

/// Whether it is asked by its nearest server, and written to, and loads and purges are shared.
fn is_healthy(tier: &SharedTier) -> bool {
    let nearest = tier.redis.endpoints().into_iter().next();
    let is_connected = tier.redis.sharing().is_none_or(|sharing| sharing.bus_connected);
    let is_whole =
        |one: EndpointState| one.is_used && !one.is_read_only && one.lease_error.is_none();
    is_connected && nearest.is_some_and(is_whole)
}

/// The servers of a tier, the nearest first; nothing if it is not one of these.
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

/// How many instances there are, as far as is known, and how long ago it was last certain that no
/// purge of theirs was missed: of the tier where that is longest.
pub(crate) fn sharing(tiers: &[SharedTier]) -> Option<(usize, Option<Duration>)> {
    let states = tiers.iter().filter_map(|tier| tier.redis.sharing());
    states.map(|state| (state.instances, state.lag)).reduce(|(some, lag), (others, other)| {
        (some.max(others), lag.zip(other).map(|(lag, other)| lag.max(other)))
    })
}

/// Brings the metrics up to what the tier itself has counted.
pub(crate) fn count(tier: &SharedTier, metrics: &Metrics) {
    use TierCount::{Bytes, Rejected, Troubles, Writes};
    let (name, counts) = (tier.name, tier.redis.counts());
    metrics.take_over_lookups(name, &[("hit", counts.hits), ("miss", counts.misses)]);
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
    metrics.take_over(name, &counts);
}

//! Prometheus metrics. Label values are bounded: never a URL, a key or a field value.

mod cluster;
mod compress;
mod edge;
mod latency;
mod origins;
mod process;
mod responses;
pub(crate) mod rules;
mod site_loads;
mod text;
mod tiers;
mod totals;
mod usage;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use forebay_core::{KeyRef, Timestamp, Why};
use forebay_engine::{Engine, Entry, Event, Observer, Outcome, Source};
use forebay_tls::store::CertificateStore;
use prometheus_client::encoding::{self, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::client::peer::AddressOrigin;
use crate::phase::Phase;
use crate::record::decisions::Decisions;
use crate::record::{End, IS_RECORDED, KeySamples, LoadFeed, Record, SiteSlot};
use crate::request_guard::GuardCounters;
use cluster::ClusterMetrics;
use compress::CompressMetrics;
pub(crate) use compress::{CompressionCounts, CompressionQueue};
use edge::EdgeMetrics;
pub(crate) use edge::OpenConnection;
use latency::SharedLatency;
pub use latency::{LatencyBucket, LatencySum};
use origins::OriginMetrics;
pub(crate) use origins::SiteOrigin;
pub use process::DrainCut;
use process::ProcessMetrics;
use responses::{ResponseCollector, ResponseMetrics};
use rules::{RuleMetrics, SiteRules};
use site_loads::SiteLoadsById;
use tiers::LowerTierMetrics;
pub use tiers::TierCounter;
pub use totals::{SiteTotals, TierTotals};
pub use usage::ResourceUsage;
use usage::UsageMetrics;

/// Bucket bounds of the latency histograms, in seconds.
const SECONDS: [f64; 22] = [
    5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1,
    0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0,
];

/// Bucket bounds of the staleness histogram, in seconds.
const STALENESS: [f64; 8] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 3_600.0, 86_400.0];

/// Results of loads.
const LOADS: [&str; 13] = [
    "stored",
    "unchanged",
    "pass",
    "failed",
    "origin",
    "unreachable",
    "timed-out",
    "answered",
    "overloaded",
    "over-budget",
    "breaker-open",
    "tier-failed",
    "panicked",
];

/// Means that avoid a load.
const AVOIDED: [&str; 5] = ["flight", "lease", "early", "stale", "back-off"];

/// Reasons why a body is not stored.
const BODIES: [&str; 4] = ["broken", "outgrown", "crowded-out", "refresh-skipped"];

/// Kinds of purges.
const PURGES: [&str; 5] = ["key", "tag", "prefix", "site", "all"];

/// Text format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MetricsFormat {
    /// Prometheus text format 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// All metrics of the process. The engine reports to them as its [`Observer`]; the service reports
/// its responses.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    decisions: Arc<Decisions>,
    ended_loads: Arc<LoadFeed>,
    samples: KeySamples,
    predicted: Family<FactorLabel, Gauge<f64, AtomicU64>>,
    responses: Arc<ResponseMetrics>,
    lookups: Family<LookupLabels, Counter>,
    /// Lookups in memory that found nothing, and a stale entry.
    missed: [Counter; 2],
    loads: Family<LoadLabels, Counter>,
    load_seconds: Family<SiteLabel, SharedLatency>,
    loads_avoided: Family<AvoidedLabels, Counter>,
    staleness: Family<SiteLabel, Histogram, fn() -> Histogram>,
    in_flight: Family<SiteLabel, Gauge>,
    site_loads: SiteLoadsById,
    tunnels: Family<SiteLabel, Gauge>,
    bodies: Family<BodyLabels, Counter>,
    admissions: Family<ResultLabel, Counter>,
    invalidations: Family<KindLabel, Counter>,
    reloads: Family<ResultLabel, Counter>,
    refused: Family<LimitLabel, Counter>,
    tier_bytes: Family<TierLabel, Gauge>,
    tier_entries: Family<TierLabel, Gauge>,
    evictions: Family<EvictionLabels, Counter<u64>>,
    in_flight_bytes: Gauge,
    in_flight_limit: Gauge,
    flights: Gauge,
    lower: LowerTierMetrics,
    cluster: ClusterMetrics,
    origins: OriginMetrics,
    rules: RuleMetrics,
    compress: CompressMetrics,
    edge: EdgeMetrics,
    process: ProcessMetrics,
    usage: UsageMetrics,
    usage_registry: Registry,
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($field: $kind),* })*
    };
}

labels! {
    LookupLabels { tier: &'static str, result: &'static str }
    LoadLabels { site: Box<str>, result: &'static str }
    AvoidedLabels { site: Box<str>, how: &'static str }
    SiteLabel { site: Box<str> }
    BodyLabels { site: Box<str>, result: &'static str }
    KindLabel { kind: &'static str }
    ResultLabel { result: &'static str }
    LimitLabel { limit: &'static str }
    TierLabel { tier: &'static str }
    FactorLabel { factor: &'static str }
    EvictionLabels { tier: &'static str, reason: &'static str }
}

impl Metrics {
    /// Creates the metrics for a build whose commit is not known.
    #[must_use]
    pub fn new() -> Self {
        Self::of_commit("unknown")
    }

    /// Creates the metrics. `commit` names the source of the binary in `forebay_build_info`.
    #[must_use]
    pub fn of_commit(commit: &'static str) -> Self {
        let usage = UsageMetrics::default();
        let mut metrics = Self {
            registry: Registry::with_prefix("forebay"),
            decisions: Arc::default(),
            ended_loads: Arc::default(),
            samples: KeySamples::default(),
            predicted: Family::default(),
            responses: Arc::default(),
            lookups: Family::default(),
            missed: Default::default(),
            loads: Family::default(),
            load_seconds: Family::default(),
            loads_avoided: Family::default(),
            staleness: Family::new_with_constructor(|| Histogram::new(STALENESS)),
            in_flight: Family::default(),
            site_loads: SiteLoadsById::default(),
            tunnels: Family::default(),
            bodies: Family::default(),
            admissions: Family::default(),
            invalidations: Family::default(),
            reloads: Family::default(),
            refused: Family::default(),
            tier_bytes: Family::default(),
            tier_entries: Family::default(),
            evictions: Family::default(),
            in_flight_bytes: Gauge::default(),
            in_flight_limit: Gauge::default(),
            flights: Gauge::default(),
            lower: LowerTierMetrics::default(),
            cluster: ClusterMetrics::default(),
            origins: OriginMetrics::default(),
            rules: RuleMetrics::default(),
            compress: CompressMetrics::default(),
            edge: EdgeMetrics::default(),
            process: ProcessMetrics::default(),
            usage_registry: usage.registry(),
            usage,
        };
        metrics.register(commit);
        // Created at zero, so that an alert sees the first increase.
        for result in ["ok", "refused"] {
            let _ = metrics.reloads.get_or_create(&ResultLabel { result });
        }
        for kind in PURGES {
            let _ = metrics.invalidations.get_or_create(&KindLabel { kind });
        }
        let of_memory = |result| LookupLabels { tier: "memory", result };
        let _ = metrics.lookups.get_or_create(&of_memory("hit"));
        metrics.missed =
            ["miss", "stale"].map(|result| metrics.lookups.get_or_create_owned(&of_memory(result)));
        for result in ["waited", "refused", "released"] {
            let _ = metrics.admissions.get_or_create(&ResultLabel { result });
        }
        metrics
    }

    fn register(&mut self, commit: &'static str) {
        let build = [("version", env!("CARGO_PKG_VERSION")), ("commit", commit)];
        let info = Info::new(build);
        let help = "Version and commit of the running binary, as labels; the value is always 1";
        self.registry.register("build", help, info);
        self.process.register(&mut self.registry);
        self.register_requests();
        self.register_waits();
        self.register_storage();
    }

    fn register_requests(&mut self) {
        let registry = &mut self.registry;
        registry.register_collector(Box::new(ResponseCollector(self.responses.clone())));
        registry.register(
            "lookups",
            "Lookups in storage tiers (memory, disk, Redis), by tier and result (hit, miss; in \
             memory also stale: an entry that cannot be used without a fetch)",
            self.lookups.clone(),
        );
        registry.register(
            "loads",
            "Loads of cacheable requests, counted when the response head arrives or the load fails, \
             by result (stored, unchanged, pass, failed, or an error code)",
            self.loads.clone(),
        );
        registry.register(
            "load_seconds",
            "Seconds from the start of an origin fetch to the response head or the failure; 0 if \
             no request was sent because of a limit, or of a failed tier with tier_errors = strict",
            self.load_seconds.clone(),
        );
        registry.register(
            "loads_avoided",
            "Requests answered without waiting for an origin fetch of their own, by mechanism \
             (flight, lease, early, stale, back-off); back-off also counts background refreshes \
             that were not started because the last ones failed",
            self.loads_avoided.clone(),
        );
        registry.register(
            "served_staleness_seconds",
            "Seconds between the expiry of a stored response and its use, for each stale response \
             that was served; not counted if the request allowed it by max-stale",
            self.staleness.clone(),
        );
    }

    fn register_waits(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "in_flight",
            "Requests that wait now for their response head, which comes from the origin, a lower \
             tier or the load of another request",
            self.in_flight.clone(),
        );
        registry.register(
            "tunnels",
            "Client connections that are now upgraded to another protocol, such as WebSocket",
            self.tunnels.clone(),
        );
        registry.register(
            "bodies",
            "Response bodies not stored because they broke off (broken), are too large (outgrown) or \
             found no memory (crowded-out), and background refreshes not started because too many \
             ran (refresh-skipped)",
            self.bodies.clone(),
        );
        registry.register(
            "admissions",
            "Origin fetches that waited for memory (waited) or were rejected for lack of it, \
             also after a wait (refused), and bodies dropped to free memory, which aborts the \
             responses of their slow or idle clients (released)",
            self.admissions.clone(),
        );
        registry.register(
            "invalidations",
            "Purges carried out because a request to this instance demanded them (admin API, or \
             an unsafe method), by kind of target (key, tag, prefix, site, all); a purge by URL \
             counts each of its keys and tags, a purge by prefix each site",
            self.invalidations.clone(),
        );
        registry.register(
            "reloads",
            "Configuration reloads, by result (ok, or refused: the old configuration stays)",
            self.reloads.clone(),
        );
        registry.register(
            "refused",
            "Requests rejected, client connections rejected or closed by a timeout (also the idle \
             timeout), and interim responses dropped, by limit or framing rule",
            self.refused.clone(),
        );
    }

    fn register_storage(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "tier_bytes",
            "Bytes stored in a tier (memory, disk)",
            self.tier_bytes.clone(),
        );
        registry.register(
            "tier_entries",
            "Entries stored in a tier (memory, disk)",
            self.tier_entries.clone(),
        );
        registry.register(
            "hit_ratio_predicted",
            "Estimated share of lookups in memory that are hits if memory were this many times its \
             size; absent before enough requests were sampled",
            self.predicted.clone(),
        );
        registry.register(
            "evictions",
            "Entries evicted from a tier (memory, disk), by reason; room means for lack of space",
            self.evictions.clone(),
        );
        registry.register(
            "in_flight_bytes",
            "Bytes in memory of response bodies in transfer that are not stored yet, and of evicted \
             bodies that clients still read",
            self.in_flight_bytes.clone(),
        );
        registry.register(
            "in_flight_limit_bytes",
            "Maximum of forebay_in_flight_bytes",
            self.in_flight_limit.clone(),
        );
        registry.register(
            "flights",
            "Loads in progress now: lookups in lower tiers, waits for another instance and origin \
             fetches, until the response is written to all tiers or found not shareable; loads \
             that a purge has affected are not counted",
            self.flights.clone(),
        );
        self.lower.register(registry);
        self.cluster.register(registry);
        self.origins.register(registry);
        self.rules.register(registry);
        self.compress.register(registry);
        self.edge.register(registry);
    }

    /// Returns the slot of a site, whose counters exist from then on.
    #[must_use]
    pub(crate) fn slot(&self, site: &str) -> SiteSlot {
        self.begin_site(site);
        self.responses.slot(site)
    }

    /// Creates the metrics of a site at zero, so that an alert sees the first increase.
    fn begin_site(&self, site: &str) {
        let site = || SiteLabel { site: site.into() };
        self.site_loads(&site().site);
        for how in AVOIDED {
            drop(self.loads_avoided.get_or_create(&AvoidedLabels { site: site().site, how }));
        }
        for result in BODIES {
            drop(self.bodies.get_or_create(&BodyLabels { site: site().site, result }));
        }
        drop(self.staleness.get_or_create(&site()));
        drop(self.tunnels.get_or_create(&site()));
    }

    /// Returns the last decisions about loads.
    pub(crate) fn decisions(&self) -> &Arc<Decisions> {
        &self.decisions
    }

    /// Returns the samples of requests for a model of memory.
    #[must_use]
    pub const fn samples(&self) -> &KeySamples {
        &self.samples
    }

    /// Samples a request that memory or a load answered with an entry that may be stored.
    #[inline]
    pub(crate) fn sample(&self, key: KeyRef<'_>, entry: &Entry, now: Timestamp) {
        if IS_RECORDED {
            self.samples.add(key, entry, now);
        }
    }

    /// Replaces the estimated hit ratios, by the size of memory as a multiple of the present one.
    pub fn set_predicted(&self, ratios: &[(&'static str, f64)]) {
        self.predicted.clear();
        for (factor, ratio) in ratios {
            self.predicted.get_or_create(&FactorLabel { factor }).set(*ratio);
        }
    }

    /// Returns the feed of loads that have ended.
    #[must_use]
    pub fn ended_loads(&self) -> &Arc<LoadFeed> {
        &self.ended_loads
    }

    /// Returns the id of the site of a slot.
    pub(crate) fn site_of_slot(&self, slot: SiteSlot) -> &Arc<str> {
        self.responses.id(slot)
    }

    /// Counts a response that ended `total` after its request.
    pub(crate) fn count_response(&self, record: &Record, total: Duration, end: End) {
        if IS_RECORDED {
            self.responses.count(record, total, end);
        }
    }

    /// Counts a lookup in memory that found a usable entry.
    pub(crate) fn count_found(&self) {
        if IS_RECORDED {
            self.responses.count_found();
        }
    }

    /// Counts a lookup that found no usable entry.
    pub(crate) fn count_lookup(&self, why: Why) {
        let [nothing, stale] = &self.missed;
        let is_nothing = why == Why::UriMiss || why == Why::VaryMiss;
        if is_nothing {
            nothing.inc()
        } else {
            stale.inc()
        };
    }

    /// Counts the origin fetch that a response avoided, and its staleness.
    pub(crate) fn count_obtained(&self, site: &str, obtained: &Outcome, staleness: Duration) {
        match (obtained.source, obtained.why) {
            (Source::Followed, _) => self.count_avoided(site.into(), "flight"),
            (Source::Instance, _) => self.count_avoided(site.into(), "lease"),
            (Source::Refreshing, Some(Why::EarlyRefresh)) => {
                self.count_avoided(site.into(), "early");
            }
            // The engine reports each load that it held back.
            (Source::Fallback, Some(Why::BackOff)) => {}
            (Source::Refreshing | Source::Fallback, _) => self.count_avoided(site.into(), "stale"),
            _ => return,
        }
        if !staleness.is_zero() {
            let site = SiteLabel { site: site.into() };
            self.staleness.get_or_create(&site).observe(staleness.as_secs_f64());
        }
    }

    /// Counts a request as waiting for the origin until the returned guard is dropped.
    #[must_use]
    pub(crate) fn waits(&self, site: &str) -> WaitingRequest {
        let gauge = self.site_loads(site).in_flight.clone();
        gauge.inc();
        WaitingRequest(gauge)
    }

    /// Counts an open tunnel until the returned guard is dropped.
    #[must_use]
    pub(crate) fn tunnel(&self, site: &str) -> OpenTunnel {
        let gauge = self.tunnels.get_or_create(&SiteLabel { site: site.into() }).clone();
        gauge.inc();
        let cut = self.process.drain_cut_of(DrainCut::Tunnel);
        OpenTunnel { open: gauge, cut, is_carrying: false }
    }

    /// Counts a connection, and keeps it in the gauges of open ones.
    pub(crate) fn open_connection(&self, listener: &str, protocol: &'static str) -> OpenConnection {
        self.edge.open(listener, protocol)
    }

    /// Counts a TLS handshake.
    pub(crate) fn count_handshake(&self, listener: &str, result: &'static str, took: Duration) {
        self.edge.handshake(listener, result, took);
    }

    /// Counts a request of a client that has sent too many.
    pub(crate) fn count_rate_limited(&self, site: &str) {
        self.edge.rate_limited(site);
    }

    /// Counts a request of a client that may not use the site.
    pub(crate) fn count_denied(&self, site: &str) {
        self.edge.denied(site);
    }

    /// Sets the maximum number of client connections.
    pub fn set_connections_max(&self, connections: usize) {
        self.edge.set_connections_max(connections);
    }

    /// Replaces the expiry times of the certificates by those of `store`, and sets the totals of
    /// certificate loads.
    pub fn set_certificates(&self, store: &CertificateStore) {
        self.edge.set_certificates(store);
    }

    /// Returns the gauge of open HTTP/2 streams.
    pub(crate) fn h2_streams(&self) -> Gauge {
        self.edge.h2_streams()
    }

    /// Sets the totals since the start of the process: orders that ended with an automatic
    /// certificate, and failed ones.
    pub fn set_acme_orders(&self, issued: u64, failed: u64) {
        self.edge.set_acme_orders(issued, failed);
    }

    /// Counts a request of a trusted proxy.
    pub(crate) fn count_forwarded(&self, origin: AddressOrigin) {
        self.edge.forwarded(origin);
    }

    /// Sets the resources that the process uses.
    pub fn set_usage(&self, usage: ResourceUsage) {
        self.usage.set(usage);
    }

    /// Sets the phase of the process.
    pub fn set_phase(&self, phase: Phase) {
        self.process.set_phase(phase);
    }

    /// Sets whether the cache is degraded for a reason.
    pub fn set_degraded(&self, because: &'static str, is_degraded: bool) {
        self.process.set_degraded(because, is_degraded);
    }

    /// Counts `number` objects that were cut when the time limit of a drain was reached. A tunnel
    /// counts itself when it is dropped while it carries bytes.
    pub fn count_drain_cut(&self, cut: DrainCut, number: usize) {
        self.process.drain_cut_of(cut).inc_by(number as u64);
    }

    /// Sets the number of lines of the log with this name that were dropped since the start of the
    /// process.
    pub fn set_log_dropped(&self, log: &'static str, total: u64) {
        self.process.set_log_dropped(log, total);
    }

    /// Sets the numbers of spans since the start of the process, by their result.
    pub fn set_spans(&self, totals: [(&'static str, u64); 3]) {
        self.process.set_spans(totals);
    }

    /// Counts a configuration reload: `taken` if it was applied, otherwise rejected.
    pub fn count_reload(&self, taken: bool) {
        let result = if taken { "ok" } else { "refused" };
        self.reloads.get_or_create(&ResultLabel { result }).inc();
        self.process.set_reload(taken, SystemTime::now());
    }

    /// Sets counters to the totals that a lower tier has counted since the start of the process.
    /// Each item is the metric, its label value and the total.
    pub fn set_tier_counters(
        &self,
        tier: &'static str,
        counts: &[(TierCounter, &'static str, u64)],
    ) {
        for (count, label, total) in counts {
            raise(&self.lower.counter(*count, tier, label), *total);
        }
    }

    /// Sets the lookup counters of a lower tier to its totals since the start of the process, by
    /// result.
    pub fn set_tier_lookups(&self, tier: &'static str, counts: &[(&'static str, u64)]) {
        for (result, total) in counts {
            let counter = self.lookups.get_or_create(&LookupLabels { tier, result }).clone();
            raise(&counter, *total);
        }
    }

    /// Sets the number of live instances that share a tier, this one included, and the time since
    /// this one last confirmed that it had missed no purge of another, or since its start.
    pub fn set_cluster_state(&self, instances: usize, lag: Duration) {
        self.cluster.sharing(instances, lag);
    }

    /// Sets the size of a lower tier in bytes and entries.
    pub fn set_tier_size(&self, tier: &'static str, bytes: u64, entries: u64) {
        let label = TierLabel { tier };
        self.tier_bytes.get_or_create(&label).set(signed(bytes));
        self.tier_entries.get_or_create(&label).set(signed(entries));
    }

    /// Sets the number of entries evicted from a lower tier for one reason, since the start of the
    /// process.
    pub fn set_tier_evictions(&self, tier: &'static str, reason: &'static str, total: u64) {
        raise(&self.evictions.get_or_create(&EvictionLabels { tier, reason }).clone(), total);
    }

    /// Renders all metrics.
    #[must_use]
    pub(crate) fn render<'s>(
        &self,
        engine: &Engine,
        guard: &GuardCounters,
        origins: impl Iterator<Item = SiteOrigin<'s>>,
        rules: impl Iterator<Item = SiteRules<'s>>,
        format: MetricsFormat,
    ) -> String {
        self.refresh(engine, guard);
        self.origins.refresh(origins);
        self.rules.refresh(rules);
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = encoding::text::encode_registry(&mut out, &self.registry)
            .and_then(|()| encoding::text::encode(&mut out, &self.usage_registry));
        match format {
            MetricsFormat::Prometheus => text::to_prometheus(&out),
            MetricsFormat::OpenMetrics => out,
        }
    }

    /// Updates the metrics that other components count.
    fn refresh(&self, engine: &Engine, guard: &GuardCounters) {
        self.refresh_memory(engine);
        self.lower.refresh(engine);
        self.cluster.refresh(engine);
        let traffic = engine.traffic();
        self.in_flight_bytes.set(signed(traffic.in_flight_bytes));
        self.in_flight_limit.set(signed(traffic.in_flight_limit));
        self.flights.set(i64::try_from(traffic.flights).unwrap_or(i64::MAX));
        for (limit, total) in guard.limits() {
            raise(&self.refused.get_or_create(&LimitLabel { limit }).clone(), total);
        }
    }

    /// Updates the metrics of the memory tier.
    fn refresh_memory(&self, engine: &Engine) {
        let memory = TierLabel { tier: "memory" };
        let tier = engine.memory();
        self.tier_bytes.get_or_create(&memory).set(signed(tier.bytes()));
        self.tier_entries.get_or_create(&memory).set(signed(tier.entries()));
        let evictions = self
            .evictions
            .get_or_create(&EvictionLabels { tier: "memory", reason: "room" })
            .clone();
        raise(&evictions, tier.evictions());
        let found = self.lookups.get_or_create(&LookupLabels { tier: "memory", result: "hit" });
        raise(&found, self.responses.found());
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Loaded { key, result, cost } => {
                let site = String::from_utf8_lossy(key.namespace());
                let loads = self.site_loads(&site);
                loads.seconds.observe(cost);
                match loads.of(result) {
                    Some(counter) => counter.inc(),
                    None => {
                        let site = site.into();
                        self.loads.get_or_create(&LoadLabels { site, result }).inc()
                    }
                };
            }
            Event::BodyBroken(key) => self.count_body(key, "broken"),
            Event::BodyOutgrown(key) => {
                self.decisions.outgrew(key);
                self.count_body(key, "outgrown");
            }
            Event::BodyNotAdmitted(key) => self.count_body(key, "crowded-out"),
            Event::LoadWaits(_) => self.count_admission("waited", 1),
            Event::LoadRefused(_) => self.count_admission("refused", 1),
            Event::BodiesDropped(count) => self.count_admission("released", count),
            Event::RefreshSkipped(key) => self.count_body(key, "refresh-skipped"),
            Event::BackingOff(key) => self.count_avoided(site_of(key), "back-off"),
            Event::Purged(kind) => {
                self.invalidations.get_or_create(&KindLabel { kind }).inc();
            }
            event => {
                self.lower.observe(event);
                self.cluster.observe(event);
            }
        }
    }
}

impl Metrics {
    fn count_admission(&self, result: &'static str, count: usize) {
        self.admissions.get_or_create(&ResultLabel { result }).inc_by(count as u64);
    }

    fn count_avoided(&self, site: Box<str>, how: &'static str) {
        self.loads_avoided.get_or_create(&AvoidedLabels { site, how }).inc();
    }

    fn count_body(&self, key: KeyRef<'_>, result: &'static str) {
        self.bodies.get_or_create(&BodyLabels { site: site_of(key), result }).inc();
    }
}

/// Guard of a request that waits for the origin; see [`Metrics::waits`].
#[derive(Debug)]
pub(crate) struct WaitingRequest(Gauge);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Guard of an open tunnel.
#[derive(Debug)]
pub(crate) struct OpenTunnel {
    open: Gauge,
    cut: Counter,
    is_carrying: bool,
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.open.dec();
        if self.is_carrying {
            self.cut.inc();
        }
    }
}

impl OpenTunnel {
    /// Marks the tunnel as carrying bytes: if it is dropped now, it counts as cut.
    pub(crate) fn begin(&mut self) {
        self.is_carrying = true;
    }

    /// Marks the tunnel as ended by one of its sides.
    pub(crate) fn end(&mut self) {
        self.is_carrying = false;
    }
}

fn site_of(key: KeyRef<'_>) -> Box<str> {
    String::from_utf8_lossy(key.namespace()).into()
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Raises a counter to a total that is counted elsewhere.
fn raise(counter: &Counter<u64>, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

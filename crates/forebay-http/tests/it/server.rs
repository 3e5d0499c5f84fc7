//! The service and its connections in this process, on a free port, with a manual clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use forebay_core::{Timestamp, WallTime};
use forebay_engine::{Clock, Coalesce, Engine, Limits};
use forebay_http::edge::accept::AcceptRules;
use forebay_http::edge::connection::Connections;
use forebay_http::metrics::MetricsFormat;
use forebay_http::request_guard::{ClientTimeouts, GuardCounters};
use forebay_http::{CompressSettings, HostPattern, Metrics, Service, Site, SiteSettings, Sites};
use forebay_semantics::coding::media_types::{MediaTypePattern, MediaTypes};
use forebay_semantics::groups::GroupLimits;
use forebay_testkit::clock::SteppedClock;
use forebay_testkit::scenario::{Front, Running, Scheme, Setting};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::carriers::Carrier;

/// Running service; it stops when this is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<Service>,
    pub(crate) clock: Arc<SteppedClock>,
    pub(crate) counters: Arc<GuardCounters>,
    accepting: JoinHandle<()>,
    carrying: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// Settings of a `forebay` block of a scenario.
struct Options {
    site: SiteSettings,
    limits: Limits,
    timeouts: ClientTimeouts,
    clients_max: usize,
}

/// Defaults of `forebay serve`.
const BODY_MAX: usize = 64 << 10;
const GROUPS: GroupLimits = GroupLimits { count: 64, length: 128 };

/// Clock that only the test advances.
struct Stepped(Arc<SteppedClock>);

/// Starts a [`TestServer`] for every `forebay` block.
pub(crate) struct TestServers {
    /// Settings for all servers, before those of the block.
    pub(crate) settings: Vec<Setting>,
    /// Way from the clients to each server.
    pub(crate) carrier: Carrier,
}

/// Returns settings as a scenario states them.
pub(crate) fn in_scenario_form(settings: &[(&str, &str)]) -> Vec<Setting> {
    let setting = |(key, value): &(&str, &str)| Setting {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        line: 0,
    };
    settings.iter().map(setting).collect()
}

impl TestServer {
    /// Starts a server for one origin, with settings in the form of scenarios.
    pub(crate) async fn start(
        origin: SocketAddr,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::with(origin, &in_scenario_form(settings), Carrier::Direct).await
    }

    async fn with(
        origin: SocketAddr,
        settings: &[Setting],
        carrier: Carrier,
    ) -> anyhow::Result<Self> {
        let options = Options::read(origin, settings)?;
        let clock = Arc::new(SteppedClock::new());
        let metrics = Arc::new(Metrics::new());
        let stepped = Arc::new(Stepped(clock.clone()));
        let engine = Engine::new(options.limits, stepped, metrics.clone());
        let sites = Sites::new(vec![Site::new(options.site)]);
        let service = Arc::new(Service::new(sites, engine, metrics));
        let counters = Arc::new(GuardCounters::default());
        let (stop, stopped) = watch::channel(false);
        let connections = Connections {
            service: service.clone(),
            timeouts: options.timeouts,
            counters: counters.clone(),
            stop: stopped,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let rules = (carrier != Carrier::Direct).then(|| carrier.rules()).transpose()?;
        let rules = rules.map(Arc::new);
        let accepting = tokio::spawn(accept(listener, connections, options.clients_max, rules));
        let (address, carrying) = match carrier {
            Carrier::Direct => (address, None),
            _ => {
                let (address, carrying) = carrier.start(address).await?;
                (address, Some(carrying))
            }
        };
        Ok(Self { address, service, clock, counters, accepting, carrying, stop })
    }

    /// Returns all metrics as text.
    pub(crate) fn metrics(&self) -> String {
        self.service.render_metrics(&self.counters, MetricsFormat::Prometheus)
    }

    /// Requests all connections to end.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until `wanted` requests wait for the origin.
    pub(crate) async fn wait_in_flight(&self, wanted: usize) -> anyhow::Result<()> {
        self.wait_metric(&format!("forebay_in_flight{{site=\"default\"}} {wanted}")).await
    }

    /// Waits until the metrics contain this line.
    pub(crate) async fn wait_metric(&self, line: &str) -> anyhow::Result<()> {
        for _ in 0..1_000 {
            if self.metrics().lines().any(|found| found == line) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("waited 10 s for {line}")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // The accepting task owns the connections, so this ends all of them.
        self.accepting.abort();
        self.carrying.iter().for_each(JoinHandle::abort);
    }
}

/// Serves connections: as HTTP/1, or by the rules of a listener.
async fn accept(
    listener: TcpListener,
    connections: Connections,
    clients_max: usize,
    rules: Option<Arc<AcceptRules>>,
) {
    let (mut serving, mut turned_away) = (JoinSet::new(), JoinSet::new());
    while let Ok((stream, peer)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        while serving.try_join_next().is_some() {}
        while turned_away.try_join_next().is_some() {}
        if serving.len() >= clients_max {
            turned_away.spawn(connections.clone().reject(stream, peer.into()));
        } else if let Some(rules) = rules.clone() {
            serving.spawn(connections.clone().accept(stream, peer.ip().into(), rules));
        } else {
            serving.spawn(connections.clone().serve(stream, peer.into()));
        }
    }
}

impl Options {
    fn read(origin: SocketAddr, settings: &[Setting]) -> anyhow::Result<Self> {
        let mut options = Self {
            site: site(origin)?,
            limits: Limits::of(64 << 20),
            timeouts: ClientTimeouts::default(),
            clients_max: usize::MAX,
        };
        for setting in settings {
            options.set(setting).with_context(|| format!("line {}: {setting}", setting.line))?;
        }
        Ok(options)
    }

    fn set(&mut self, Setting { key, value, .. }: &Setting) -> anyhow::Result<()> {
        let site = &mut self.site;
        match key.as_str() {
            "fetch_timeout" => site.fetch_timeout = time(value)?,
            "soft_timeout" => site.demand.soft_timeout = Some(time(value)?),
            "stale_on_disconnect_max" => site.demand.stale_if_unreachable = time(value)?,
            "default_ttl" => site.rules.default_ttl = time(value)?,
            "negative_ttl" => site.rules.negative_ttl = time(value)?,
            "variants_max" => site.variants_max = value.parse()?,
            "share_codings" => site.rules.share_codings = value.parse()?,
            "store_set_cookie" => site.rules.store_set_cookie = value.parse()?,
            "heuristics_with_cookie" => site.rules.heuristics_with_cookie = value.parse()?,
            "ignore_query" => site.ignore_query = list(value)?,
            "sort_query" => site.sort_query = value.parse()?,
            "coalesce" => site.coalesce = Coalesce::from_bool(value.parse()?),
            "direct_hits" => site.direct_hits = value.parse()?,
            "cache_methods" => {
                let methods = list(value)?.into_iter().map(|name| name.parse());
                site.opt_ins.methods = methods.collect::<Result<_, _>>()?;
                site.opt_ins.body_max = BODY_MAX;
            }
            "cache_body_max" => site.opt_ins.body_max = size(value)?.try_into()?,
            "cache_groups" => site.opt_ins.groups = value.parse::<bool>()?.then_some(GROUPS),
            "compress" => {
                let types = ["text/*", "application/json"];
                let types = types.iter().filter_map(|text| MediaTypePattern::parse(text));
                let types = MediaTypes::new(types);
                let pass = quoted(value)? == "pass";
                site.compress = Some(CompressSettings { types, pass, ..Default::default() });
            }
            "early_hints" => site.early_hints = value.parse()?,
            "no_vary_search" => site.no_vary_search = value.parse()?,
            "server_timing" => site.server_timing = value.parse()?,
            "expose_errors" => site.expose_errors = value.parse()?,
            "prefix" => site.prefix = Some(quoted(value)?.into()),
            "hosts" => {
                site.hosts = list(value)?.into_iter().map(HostPattern::Exact).collect();
            }
            "host" => site.origin.host = Some(quoted(value)?.parse()?),
            "connections_max" => site.origin.connections_max = value.parse()?,
            "requests_max" => site.origin.in_flight_max = Some(value.parse()?),
            "adaptive" => site.origin.adaptive = value.parse()?,
            "origin_fields_max" => site.origin.fields_max = value.parse()?,
            "origin_head_max" => site.origin.head_max = size(value)?.try_into()?,
            "head_timeout" => self.timeouts.head_timeout = time(value)?,
            "idle_timeout" => self.timeouts.idle_timeout = time(value)?,
            "first_byte_timeout" => self.timeouts.first_byte_timeout = time(value)?,
            "body_window" => self.timeouts.body_window = time(value)?,
            "write_window" => self.timeouts.write_window = time(value)?,
            "clients_max" => self.clients_max = value.parse()?,
            "memory" => self.limits = Limits { memory: size(value)?, ..self.limits },
            "in_flight_max" => self.limits.in_flight_max = size(value)?,
            "object_max" => self.limits.object_max = size(value)?,
            _ => bail!("no such setting"),
        }
        Ok(())
    }
}

pub(crate) fn site(origin: SocketAddr) -> anyhow::Result<SiteSettings> {
    let authority = origin.to_string().parse()?;
    let fetch_timeout = Duration::from_secs(10);
    Ok(SiteSettings { fetch_timeout, ..SiteSettings::new("default", authority) })
}

fn quoted(value: &str) -> anyhow::Result<&str> {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.context("expected text between double quotes")
}

fn list(value: &str) -> anyhow::Result<Vec<Box<str>>> {
    let inner = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
    let members = inner.context("expected a list between brackets")?.split(',');
    members.map(|member| quoted(member.trim()).map(Into::into)).collect()
}

fn time(value: &str) -> anyhow::Result<Duration> {
    let (number, unit) = with_unit(value)?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => bail!("expected a time such as \"250ms\" or \"2s\""),
    }
}

fn size(value: &str) -> anyhow::Result<u64> {
    match with_unit(value)? {
        (number, "KiB") => Ok(number << 10),
        (number, "MiB") => Ok(number << 20),
        _ => bail!("expected a size such as \"64KiB\" or \"1MiB\""),
    }
}

fn with_unit(value: &str) -> anyhow::Result<(u64, &str)> {
    let text = quoted(value)?;
    let end = text.find(|c: char| !c.is_ascii_digit()).context("expected a number with a unit")?;
    let (number, unit) = text.split_at(end);
    Ok((number.parse()?, unit))
}

impl Clock for Stepped {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now_ms())
    }

    fn wall(&self) -> WallTime {
        WallTime::from_secs(self.0.unix_seconds().try_into().unwrap_or(0))
    }

    fn exact(&self) -> Duration {
        Duration::from_millis(self.0.now_ms().try_into().unwrap_or(0))
    }
}

impl Front for TestServers {
    async fn start(&self, origin: SocketAddr, settings: &[Setting]) -> anyhow::Result<Running> {
        let settings = [&self.settings, settings].concat();
        let server = Arc::new(TestServer::with(origin, &settings, self.carrier).await?);
        let (address, clock, counted) = (server.address, server.clock.clone(), server.clone());
        let running = Running::new(address, server).with_clock(clock);
        Ok(running.with_metrics(move || counted.metrics()))
    }

    fn scheme(&self) -> Scheme {
        if self.carrier == Carrier::Tls { Scheme::Https } else { Scheme::Http }
    }
}

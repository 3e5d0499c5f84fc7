//! `forebay serve`: resolve the configuration, build, listen, report ready, serve, drain.

mod demo;
mod listen;
mod operators;
mod shutdown;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_disk::Disk;
use forebay_engine::{Clock, Engine, Limits, SystemClock, TierSetup};
use forebay_http::edge::address_limits::AddressLimits;
use forebay_http::edge::connection::Connections;
use forebay_http::request_guard::{ClientTimeouts, GuardCounters};
use forebay_http::{Metrics, Phase, Service, Site, Sites, WarningLimits};
use tokio::sync::watch;

use crate::admin::{AdminState, Monitor, TierBounds};
use crate::admin_token::Token;
use crate::args::{ServeArgs, unknown_variables};
use crate::config::ListenAddress;
use crate::config::resolved::ResolvedConfig;
use crate::listener::inherited::InheritedSockets;
use crate::listener::opener::Opener;
use crate::listener::tls::Tls;
use crate::listener::workers::Workers;
use crate::live::Live;
use crate::log::Log;
use crate::output::{FAILED, USAGE, print_error, print_line};
use crate::reload::{Reload, ReloadTargets, Source, stop_times};
use crate::sanity::MachineFacts;
use crate::stop::{CurrentStopTimes, Signals, hang_ups, log_rotations, raise_open_files};
use crate::tiers::shared::{LoggingObserver, SharedTier};
use crate::tiers::{cluster, disk, shared};
use crate::warm::before_ready;
use crate::{log, otlp, sanity, service_manager, settings};
use demo::{Demo, TempFolder};
use listen::Listeners;
use operators::Operators;

/// Interval of the self-check of purges.
const PURGE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the cache until a stop signal.
///
/// # Errors
/// If a tier cannot be opened, or an address cannot be bound.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<u8> {
    let complaints = args.complaints();
    if !complaints.is_empty() {
        complaints.iter().for_each(|sentence| print_error(format_args!("forebay: {sentence}")));
        return Ok(USAGE);
    }
    // Listeners, signals and the admin listener run on this thread; connections on the workers.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the main runtime cannot be started")?;
    let code = runtime.block_on(serve(args));
    // After a second stop signal, the process exits without waiting for its threads.
    runtime.shutdown_background();
    code
}

async fn serve(args: &ServeArgs) -> anyhow::Result<u8> {
    let mut overrides = args.overrides();
    let demo = if args.demo { Some(Demo::bind(&mut overrides)?) } else { None };
    // Dropped last, after the disk tier has closed its files.
    let is_demo_alone = args.demo && args.config.is_none();
    let folder = is_demo_alone.then(|| TempFolder::make_for(&mut overrides)).flatten();
    let config = match ResolvedConfig::load(args.config.as_deref(), &overrides) {
        Ok(config) => config,
        Err(problems) => {
            print_error(format_args!("{problems}"));
            return Ok(if problems.are_of_flags() { USAGE } else { FAILED });
        }
    };
    let log = log::init(&config)?;
    let log = Arc::new(log);
    raise_open_files();
    // The temporary directory of a demo is no choice of the operator.
    let disk = config.disk.as_ref().filter(|_| folder.is_none());
    let warnings = sanity::check(&config, &MachineFacts::read(disk))?;
    let variables = unknown_variables(std::env::vars_os().map(|(name, _)| name));
    let (signals, hang_ups) = (Signals::listen()?, hang_ups()?);
    tokio::spawn(log.clone().reopen_on_each(log_rotations()?));
    let warm_up = config.warm_up.clone();
    let (stop, stopping) = watch::channel(false);
    let source = Source { file: args.config.clone(), overrides };
    let running = Running::start(config, source, log.clone(), stopping)?;
    warnings.iter().chain(&variables).for_each(|warning| tracing::warn!("{warning}"));
    tokio::spawn(running.reload.clone().on_each(hang_ups));
    tokio::spawn(check_purges(running.service.engine().clone()));
    if let Some(disk) = &running.disk {
        disk::wait_for_index(disk).await;
    }
    match warm_up {
        Some(warm_up) => drop(tokio::spawn(before_ready::run(
            warm_up,
            running.service.clone(),
            running.reload.shared_tiers(),
        ))),
        None => running.service.enter(Phase::Ready),
    }
    print_line(format_args!("forebay ready: {}", running.addresses()));
    service_manager::ready();
    if let Some(interval) = service_manager::watchdog_interval() {
        tokio::spawn(service_manager::watchdog(interval, running.workers.pulses()));
    }
    if let Some(demo) = demo {
        // The sites and listeners of a file may refuse the URLs of the examples.
        if is_demo_alone {
            demo.explain(&running.listeners, running.admin);
        }
        // The origin runs until the process ends, because the drain needs its responses.
        tokio::spawn(demo.run());
    }
    running.serve_until_stopped(signals, stop).await;
    log.flush();
    Ok(0)
}

/// Parts of a running cache.
struct Running {
    listeners: Listeners,
    workers: Workers,
    admin: SocketAddr,
    /// URLs of the further admin listeners.
    further_admins: Vec<String>,
    probes: Vec<ListenAddress>,
    reload: Arc<Reload>,
    service: Arc<Service>,
    disk: Option<Arc<Disk>>,
    times: Arc<CurrentStopTimes>,
}

impl Running {
    fn start(
        config: ResolvedConfig,
        source: Source,
        log: Arc<Log>,
        stopping: watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let disk = config.disk.as_ref().map(disk::open).transpose()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let shared = shared::connect(&config, &clock)?;
        let service = Arc::new(service(&config, disk.clone(), &shared, &clock)?);
        service.log_access(log.access(&config));
        let spans = otlp::trace(config.trace.as_ref(), &service, &log);
        let front = Arc::new(GuardCounters::default());
        let limits = AddressLimits::new(config.connections_per_address_max);
        let tls = Tls::load(&config)?.map(Arc::new);
        let acme = tls.as_ref().and_then(|tls| tls.acme.clone());
        service.answer_challenges(acme.as_ref().map(|acme| acme.answers().clone()));
        let inherited = Arc::new(InheritedSockets::take());
        let (opener, changes) =
            Opener::open(&config, limits.clone(), tls.clone(), inherited.clone())?;
        let listeners = Listeners::new(&opener, changes);
        service.metrics().set_connections_max(listeners.connections_max());
        let token = Token::new(config.admin_token.clone());
        let operators = Operators { tls: tls.clone(), token: token.clone(), inherited };
        let bound = operators.bind(&config)?;
        let admin = bound.admin()?;
        let connections = Connections {
            service: service.clone(),
            timeouts: ClientTimeouts::default(),
            counters: front.clone(),
            stop: stopping,
        };
        let times = Arc::new(CurrentStopTimes::new(stop_times(&config)));
        let workers = Workers::start(config.threads, &connections, &times)?;
        let targets = ReloadTargets {
            service: service.clone(),
            opener,
            limits,
            certificates: tls.as_ref().map(|tls| tls.store.clone()),
            acme: acme.clone(),
            token,
            log: log.clone(),
            times: times.clone(),
            shared: shared.clone(),
        };
        let reload = Arc::new(Reload::new(source, targets, config));
        let state = Arc::new(AdminState {
            service: service.clone(),
            front,
            reload: reload.clone(),
            live: Live::new(service.clone(), log.clone()),
            log,
            disk: disk.clone(),
            certificates: tls.as_ref().map(|tls| tls.store.clone()),
            acme: acme.clone(),
            shared,
            bounds: TierBounds::of(reload.started_with()),
            monitor: Monitor::new(),
            spans,
            audit_limits: WarningLimits::default(),
            url: listeners.urls().next(),
            started: Instant::now(),
        });
        let (further_admins, probes) = (bound.further_admins(), bound.probes());
        if forebay_http::IS_RECORDED {
            state.start_monitor().context("the thread of the history cannot be started")?;
        }
        state.live.start();
        let running = bound.run(operators, state, service.clone());
        reload.replace_operators_by(Box::new(move |config| running.prepare(config)));
        tls.as_ref().map(|tls| tls.start()).transpose()?;
        disk.iter().for_each(|disk| drop(tokio::spawn(disk::log_widened_purges(disk.clone()))));
        Ok(Self { listeners, workers, admin, further_admins, probes, reload, service, disk, times })
    }

    /// Addresses of all listeners, as in the line that reports the readiness.
    fn addresses(&self) -> String {
        let urls = self.listeners.urls().collect::<Vec<_>>().join(" ");
        let probes = self.probes.iter().map(|address| format!("probe {}, ", url(address)));
        let admins = self.further_admins.iter().map(|url| format!(", admin {url}"));
        let (probes, admins): (String, String) = (probes.collect(), admins.collect());
        format!("{urls} ({probes}admin http://{}{admins})", self.admin)
    }
}

/// URL of a cleartext listener.
fn url(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => format!("http://{address}"),
        ListenAddress::Unix(_) | ListenAddress::Inherited(_) => address.to_string(),
    }
}

/// Runs the self-check of purges until the process ends.
async fn check_purges(engine: Arc<Engine>) {
    let mut ticks = tokio::time::interval(PURGE_CHECK_INTERVAL);
    loop {
        ticks.tick().await;
        engine.check_purges().await;
    }
}

/// Builds the HTTP service with its engine and tiers; the disk tier comes before shared tiers.
fn service(
    config: &ResolvedConfig,
    disk: Option<Arc<Disk>>,
    shared: &[SharedTier],
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Service> {
    let metrics = Arc::new(Metrics::of_commit(env!("SOURCE_COMMIT")));
    let memory = config.memory;
    let limits = Limits {
        memory: memory.size,
        object_max: memory.object_max,
        in_flight_max: memory.in_flight_max,
        ..Limits::of(memory.size)
    };
    let disk = disk.map(|disk| TierSetup::new(disk));
    let lower: Vec<_> = disk.into_iter().chain(shared.iter().map(SharedTier::setup)).collect();
    let observer = Arc::new(LoggingObserver::new(metrics.clone(), shared.to_vec()));
    let engine = match cluster::of(config, shared) {
        Some(cluster) => Engine::clustered(limits, clock.clone(), observer, lower, cluster),
        None => Engine::with_tiers(limits, clock.clone(), observer, lower),
    };
    let sites = config
        .sites
        .iter()
        .map(|site| settings::of_site(site, |id| shared::budgets_of(shared, id)).map(Site::new));
    let service = Service::new(Sites::new(sites.collect::<anyhow::Result<_>>()?), engine, metrics)
        .with_workers(config.threads);
    service.trust_proxies(&Arc::new(config.trust.clone()));
    Ok(service)
}

//! `forebay serve`: resolve the configuration, build, listen, report ready, serve, drain.

mod demo;
mod listen;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use forebay_disk::Disk;
use forebay_engine::{Clock, Engine, Limits, SystemClock, Tier};
use forebay_http::connection::Connections;
use forebay_http::edge::address_limits::AddressLimits;
use forebay_http::request_guard::{ClientTimeouts, GuardCounters};
use forebay_http::{Metrics, Service, Site, Sites};
use tokio::sync::watch;

use crate::admin::{Admin, AdminState, Token};
use crate::args::ServeArgs;
use crate::config::AccessLog;
use crate::config::resolved::ResolvedConfig;
use crate::log::Log;
use crate::output::{print_error, print_line};
use crate::reload::{Reload, ReloadTargets, Source};
use crate::shared::{LoggingObserver, SharedTier};
use crate::stop::{Signals, hang_ups, raise_open_files};
use crate::tls::Tls;
use crate::workers::Workers;
use crate::{FAILED, USAGE, cluster, disk, log, settings, shared, tls};
use demo::{Demo, TempFolder};
use listen::Listeners;

/// Maximum time for the disk tier to write accepted entries, after all connections have ended.
const DISK_CLOSE_MAX: Duration = Duration::from_secs(2);

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
    let _folder = is_demo_alone.then(|| TempFolder::make_for(&mut overrides)).flatten();
    let config = match ResolvedConfig::load(args.config.as_deref(), &overrides) {
        Ok(config) => config,
        Err(problems) => {
            print_error(format_args!("{problems}"));
            return Ok(if problems.are_of_flags() { USAGE } else { FAILED });
        }
    };
    let log = log::init(config.log, config.access_log);
    raise_open_files();
    let (mut signals, hang_ups) = (Signals::listen()?, hang_ups()?);
    let (stop, stopping) = watch::channel(false);
    let source = Source { file: args.config.clone(), overrides };
    let mut running = Running::start(config, source, log, stopping)?;
    tokio::spawn(running.reload.clone().on_each(hang_ups));
    let (urls, admin) = (running.urls(), running.admin);
    print_line(format_args!("forebay ready: {urls} (admin http://{admin})"));
    if let Some(demo) = demo {
        demo.explain(&running.listeners, running.admin);
        // The origin runs until the process ends, because the drain needs its responses.
        tokio::spawn(demo.run());
    }
    running.listeners.accept_until(signals.stop(), &mut running.workers).await;
    // An open listener would accept connections that are never served; a closed one refuses them.
    drop(running.listeners);
    stop.send_replace(true);
    tracing::info!(
        "stopping on a signal: no new client connections are accepted, requests in progress are \
         completed"
    );
    let workers = running.workers;
    let drained = tokio::task::spawn_blocking(move || workers.join());
    tokio::select! {
        _ = drained => {}
        () = signals.stop() => {
            tracing::warn!("second stop signal: exiting at once, requests in progress are aborted");
        }
    }
    let closing = async |disk: Arc<Disk>| {
        running.engine.settle().await;
        disk.close().await;
    };
    if let Some(disk) = running.disk
        && tokio::time::timeout(DISK_CLOSE_MAX, closing(disk)).await.is_err()
    {
        tracing::warn!(limit = ?DISK_CLOSE_MAX, "disk tier did not write all accepted entries \
                                                 before the exit: the others are lost");
    }
    Ok(0)
}

/// Parts of a running cache.
struct Running {
    listeners: Listeners,
    workers: Workers,
    admin: SocketAddr,
    reload: Arc<Reload>,
    engine: Arc<Engine>,
    disk: Option<Arc<Disk>>,
}

impl Running {
    fn start(
        config: ResolvedConfig,
        source: Source,
        log: Log,
        stopping: watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let disk = config.disk.as_ref().map(disk::open).transpose()?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let shared = shared::connect(&config, &clock)?;
        let service = Arc::new(service(&config, disk.clone(), &shared, &clock)?);
        let front = Arc::new(GuardCounters::default());
        let limits = AddressLimits::new(config.connections_per_address_max);
        let tls = Tls::load(&config)?;
        let listeners = Listeners::bind(&config.listeners, &limits, tls.as_ref())?;
        let token = Token::new(config.admin_token.clone());
        let admin = Admin::bind(config.admin, token.clone())?;
        let admin_address = admin.address();
        let connections = Connections {
            service: service.clone(),
            timeouts: ClientTimeouts::default(),
            counters: front.clone(),
            stop: stopping.clone(),
        };
        let workers = Workers::start(config.threads, &connections)?;
        let targets = ReloadTargets {
            service: service.clone(),
            limits,
            certificates: tls.as_ref().map(|tls| tls.store.clone()),
            token,
            log,
        };
        let reload = Arc::new(Reload::new(source, targets, config));
        let engine = service.engine().clone();
        let state = AdminState {
            service,
            front,
            reload: reload.clone(),
            disk: disk.clone(),
            certificates: tls.as_ref().map(|tls| tls.store.clone()),
            shared,
        };
        tokio::spawn(admin.run(state, stopping));
        if let Some((tls, interval)) =
            tls.as_ref().and_then(|tls| Some((tls, tls.watch_interval()?)))
        {
            tokio::spawn(tls::watch(tls.store.clone(), interval));
        }
        if let Some(disk) = &disk {
            tokio::spawn(disk::log_widened_purges(disk.clone()));
        }
        Ok(Self { listeners, workers, admin: admin_address, reload, engine, disk })
    }

    fn urls(&self) -> String {
        let urls = self.listeners.urls();
        urls.collect::<Vec<_>>().join(" ")
    }
}

/// Builds the HTTP service with its engine and tiers; the disk tier comes before shared tiers.
fn service(
    config: &ResolvedConfig,
    disk: Option<Arc<Disk>>,
    shared: &[SharedTier],
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Service> {
    let metrics = Arc::new(Metrics::new());
    let memory = config.memory;
    let limits = Limits {
        memory: memory.size,
        object_max: memory.object_max,
        in_flight_max: memory.in_flight_max,
        ..Limits::of(memory.size)
    };
    let disk = disk.map(|disk| disk as Arc<dyn Tier>);
    let shared_tiers = shared.iter().map(|tier| Arc::new(tier.clone()) as Arc<dyn Tier>);
    let lower = disk.into_iter().chain(shared_tiers).collect();
    let observer = Arc::new(LoggingObserver::new(metrics.clone(), shared.to_vec()));
    let engine = match cluster::of(config, shared) {
        Some(cluster) => Engine::clustered(limits, clock.clone(), observer, lower, cluster),
        None => Engine::with_tiers(limits, clock.clone(), observer, lower),
    };
    let sites = config.sites.iter().map(|site| settings::of_site(site).map(Site::new));
    let service = Service::new(Sites::new(sites.collect::<anyhow::Result<_>>()?), engine, metrics);
    service.log_access(config.access_log != AccessLog::Off);
    service.trust_proxies(&Arc::new(config.trust.clone()));
    Ok(service)
}

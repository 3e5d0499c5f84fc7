//! The story of a running cache: plan, build, listen, ready, serve, drain.

mod build;
mod demo;
mod listen;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use forebay_engine::{Engine, Limits, SystemClock};
use forebay_http::connection::Connections;
use forebay_http::front::{FrontCounters, Limits as FrontLimits};
use forebay_http::{Metrics, Service, Sites};
use tokio::sync::watch;

use crate::admin::Admin;
use crate::args::ServeArgs;
use crate::config::plan::Plan;
use crate::stop::{Signals, raise_open_files};
use crate::workers::Workers;
use crate::{FAILED, log};
use demo::Demo;
use listen::Listeners;

/// Wrong usage.
const USAGE: u8 = 2;

/// Runs the cache until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<u8> {
    let not_yet = args.not_yet();
    if !not_yet.is_empty() {
        not_yet.iter().for_each(|sentence| eprintln!("forebay: {sentence}"));
        return Ok(USAGE);
    }
    // Listeners, signals and the admin door live on this thread; connections on the workers.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("a runtime cannot be started")?;
    runtime.block_on(serve(args))
}

async fn serve(args: &ServeArgs) -> anyhow::Result<u8> {
    let mut overrides = args.overrides();
    let demo = if args.demo { Some(Demo::bind(&mut overrides).await?) } else { None };
    let plan = match Plan::load(args.config.as_deref(), &overrides) {
        Ok(plan) => plan,
        Err(problems) => {
            eprintln!("{problems}");
            // A wrong flag is wrong usage; a wrong file is a stated failure.
            return Ok(if args.config.is_some() { FAILED } else { USAGE });
        }
    };
    log::init(plan.log, plan.access_log);
    raise_open_files();
    let mut signals = Signals::listen()?;
    let (stop, stopping) = watch::channel(false);
    let mut running = Running::start(&plan, stopping).await?;
    println!("forebay ready: {} (admin http://{})", running.urls(), running.admin);
    if let Some(demo) = demo {
        demo.explain(&running.listeners, running.admin);
        tokio::spawn(demo.run(running.stopping.clone()));
    }
    running.listeners.accept_until(signals.stop(), &mut running.workers).await;
    tracing::info!("stopping: no new connections, what is under way is answered");
    stop.send_replace(true);
    let drained = tokio::task::spawn_blocking(move || running.workers.join());
    tokio::select! {
        _ = drained => {}
        () = signals.stop() => tracing::warn!("told to stop twice: not waiting any longer"),
    }
    Ok(0)
}

/// Everything that a running cache is made of.
struct Running {
    listeners: Listeners,
    workers: Workers,
    admin: SocketAddr,
    stopping: watch::Receiver<bool>,
}

impl Running {
    async fn start(plan: &Plan, stopping: watch::Receiver<bool>) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let memory = plan.memory;
        let limits = Limits {
            memory: memory.size,
            object_max: memory.object_max,
            in_flight_max: memory.in_flight_max,
        };
        let engine = Engine::new(limits, Arc::new(SystemClock), metrics.clone());
        let sites = plan.sites.iter().map(build::site).collect::<anyhow::Result<_>>()?;
        let service = Service::new(Sites::new(sites), engine, metrics);
        let service = service.with_access_log(plan.access_log != crate::config::AccessLog::Off);
        let service = Arc::new(service);
        let counters = Arc::new(FrontCounters::default());
        let listeners = Listeners::bind(&plan.listen)?;
        let admin = Admin::bind(plan.admin, plan.admin_token.clone()).await?;
        let admin_address = admin.address();
        let connections = Connections {
            service: service.clone(),
            limits: FrontLimits::default(),
            counters: counters.clone(),
            stop: stopping.clone(),
        };
        let workers = Workers::start(plan.threads, &connections)?;
        tokio::spawn(admin.run(service, counters, stopping.clone()));
        Ok(Self { listeners, workers, admin: admin_address, stopping })
    }

    fn urls(&self) -> String {
        let urls = self.listeners.addresses().map(|address| format!("http://{address}"));
        urls.collect::<Vec<_>>().join(" ")
    }
}

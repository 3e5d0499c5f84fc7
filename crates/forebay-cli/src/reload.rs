//! The configuration, read again while the cache runs: on SIGHUP, and by `POST /reload`.
//!
//! All of it is read and checked before any of it is outcome over; with one mistake in it, nothing
//! changes. What is bound to sockets, threads or the store cannot change in a running process: such
//! a difference is named, and the rest is outcome over.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_http::{Reloaded, Service};
use parking_lot::Mutex;
use tokio::signal::unix::Signal;

use crate::admin::Token;
use crate::config::AccessLog;
use crate::config::resolved::{Overrides, ResolvedConfig};
use crate::log::Log;
use crate::settings;

/// How long one reload waits for another, which takes some milliseconds unless the file is on a
/// disk that does not answer.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where a configuration comes from: the same at the start and at each reload.
pub(crate) struct Source {
    /// The file; without one there is nothing that could have changed.
    pub(crate) file: Option<PathBuf>,
    /// What the command line says over the file.
    pub(crate) overrides: Overrides,
}

/// The parts of a running cache that take over what has changed.
pub(crate) struct ReloadTargets {
    pub(crate) service: Arc<Service>,
    pub(crate) token: Arc<Token>,
    pub(crate) log: Log,
}

/// Reads the configuration again.
pub(crate) struct Reload {
    source: Source,
    targets: ReloadTargets,
    started: ResolvedConfig,
    lock: Mutex<()>,
}

/// What came of a reload.
pub(crate) struct ReloadOutcome {
    /// What became of the sites.
    pub(crate) sites: Reloaded,
    /// The options that differ from what the process was started with, and still hold as they did.
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Reload {
    /// For a cache that was started with a plan from `source`.
    pub(crate) fn new(source: Source, targets: ReloadTargets, started: ResolvedConfig) -> Self {
        Self { source, targets, started, lock: Mutex::new(()) }
    }

    /// Reloads at each signal, without end.
    pub(crate) async fn on_each(self: Arc<Self>, mut hang_ups: Signal) {
        while hang_ups.recv().await.is_some() {
            // What came of it is in the log, where whoever sends signals looks.
            let _ = self.now().await;
        }
    }

    /// Reloads, and says in the log what came of it.
    ///
    /// # Errors
    /// One sentence for each mistake. Then nothing has changed.
    pub(crate) async fn now(self: &Arc<Self>) -> Result<ReloadOutcome, Vec<String>> {
        let reload = self.clone();
        let reloading = tokio::task::spawn_blocking(move || reload.run());
        let result = reloading.await.unwrap_or_else(|error| Err(vec![error.to_string()]));
        self.targets.service.metrics().count_reload(result.is_ok());
        match &result {
            Ok(outcome) => outcome.log(),
            Err(sentences) => sentences
                .iter()
                .for_each(|sentence| tracing::error!("not reloaded, nothing changes: {sentence}")),
        }
        result
    }

    fn run(&self) -> Result<ReloadOutcome, Vec<String>> {
        let Some(file) = &self.source.file else {
            let sentence = "there is no file to read again, since forebay was started without \
                            --config; SIGHUP and POST /reload have no effect";
            return Err(vec![sentence.to_owned()]);
        };
        // A later reload may not be overtaken by an earlier one that read the file before it.
        let Some(_lock) = self.lock.try_lock_for(LOCK_WAIT_MAX) else {
            return Err(vec!["another reload has not come to its end yet".to_owned()]);
        };
        let config = ResolvedConfig::load(Some(file), &self.source.overrides);
        let config = config.map_err(|problems| problems.lines().collect::<Vec<_>>())?;
        self.apply(&config).map_err(|error| vec![format!("{error:#}")])
    }

    /// After the first line nothing can fail.
    fn apply(&self, config: &ResolvedConfig) -> anyhow::Result<ReloadOutcome> {
        let sites =
            config.sites.iter().map(settings::of_site).collect::<anyhow::Result<Vec<_>>>()?;
        let ReloadTargets { service, token, log } = &self.targets;
        let mut needs_restart = self.started.changed_fixed_options(config);
        if !token.replace(config.admin_token.as_deref()) {
            needs_restart.push("admin_token_file");
        }
        log.change(config.log, config.access_log);
        service.log_access(config.access_log != AccessLog::Off);
        Ok(ReloadOutcome { sites: service.reload(&sites), needs_restart })
    }
}

impl ReloadOutcome {
    fn log(&self) {
        let Reloaded { unchanged, changed, added, removed } = self.sites;
        tracing::info!(unchanged, changed, added, removed, "reloaded; in numbers of sites");
        if !self.needs_restart.is_empty() {
            let names = self.needs_restart.join(", ");
            tracing::warn!("these differ in the file and stay until a restart: {names}");
        }
    }
}

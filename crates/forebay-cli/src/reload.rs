//! Configuration reload, on SIGHUP and on `POST /reload`.
//!
//! The whole file is read and checked before any of it takes effect; one error leaves everything
//! unchanged. Threads and tiers cannot change in a running process: such options are reported, and the
//! rest takes effect.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_http::edge::address_limits::AddressLimits;
use forebay_http::{Reloaded, Service};
use forebay_tls::acme::Acme;
use forebay_tls::store::CertificateStore;
use parking_lot::Mutex;
use tokio::signal::unix::Signal;

use crate::admin_token::Token;
use crate::config::resolved::{Overrides, ResolvedConfig};
use crate::config::warnings;
use crate::listener::opener::{ListenerCounts, Opener};
use crate::log::{Destination, Log};
use crate::stop::{CurrentStopTimes, StopTimes};
use crate::tiers::shared::{SharedTier, budgets_of};
use crate::{output, service_manager, settings};

/// Maximum wait for another reload to end. A reload takes milliseconds unless the disk hangs.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Source of the configuration, equal at the start and at each reload.
pub(crate) struct Source {
    /// Path of the file; without one there is nothing to reload.
    pub(crate) file: Option<PathBuf>,
    /// Flags and environment variables, which override the file.
    pub(crate) overrides: Overrides,
}

/// Parts of a running cache that a reload changes.
pub(crate) struct ReloadTargets {
    pub(crate) service: Arc<Service>,
    pub(crate) opener: Opener,
    pub(crate) limits: Arc<AddressLimits>,
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    pub(crate) acme: Option<Arc<Acme>>,
    pub(crate) token: Arc<Token>,
    pub(crate) log: Arc<Log>,
    pub(crate) times: Arc<CurrentStopTimes>,
    /// Shared tiers, which a reload does not change; they hold the budgets of origins.
    pub(crate) shared: Vec<SharedTier>,
}

/// Step of a reload that cannot fail.
pub(crate) type Commit = Box<dyn FnOnce() + Send>;

/// Binds the listeners for operators of a configuration. The step replaces those in use by them; `None`
/// if that needs a restart.
pub(crate) type PrepareOperators =
    Box<dyn Fn(&ResolvedConfig) -> anyhow::Result<Option<Commit>> + Send + Sync>;

/// Reloads the configuration of a running cache.
pub(crate) struct Reload {
    source: Source,
    targets: ReloadTargets,
    started: ResolvedConfig,
    /// Absent until the listeners for operators run; they use this reloader.
    operators: OnceLock<PrepareOperators>,
    lock: Mutex<()>,
}

/// Result of a successful reload.
pub(crate) struct ReloadOutcome {
    /// Numbers of sites that were added, changed, removed and unchanged.
    pub(crate) sites: Reloaded,
    /// Numbers of listeners for clients.
    pub(crate) listeners: ListenerCounts,
    /// Options that differ from those the process was started with, and need a restart.
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Reload {
    /// Creates the reloader of a cache that was started with the configuration `started`.
    pub(crate) fn new(source: Source, targets: ReloadTargets, started: ResolvedConfig) -> Self {
        Self { source, targets, started, operators: OnceLock::new(), lock: Mutex::new(()) }
    }

    /// Sets the function that replaces the listeners for operators.
    pub(crate) fn replace_operators_by(&self, prepare: PrepareOperators) {
        // It is set once, by the start.
        let _ = self.operators.set(prepare);
    }

    /// Listeners for clients.
    pub(crate) fn opener(&self) -> &Opener {
        &self.targets.opener
    }

    /// Returns the configuration that the process was started with.
    pub(crate) const fn started_with(&self) -> &ResolvedConfig {
        &self.started
    }

    /// Returns the shared tiers.
    pub(crate) fn shared_tiers(&self) -> Vec<SharedTier> {
        self.targets.shared.clone()
    }

    /// Reloads at each signal; returns when the signal stream ends.
    pub(crate) async fn on_each(self: Arc<Self>, mut hang_ups: Signal) {
        while hang_ups.recv().await.is_some() {
            // `now` has logged the result; a signal has no other answer.
            let _ = self.now().await;
        }
    }

    /// Reloads the configuration and logs the result.
    ///
    /// # Errors
    /// One sentence for each error in the configuration. Nothing has changed then.
    pub(crate) async fn now(self: &Arc<Self>) -> Result<ReloadOutcome, Vec<String>> {
        service_manager::reloading();
        let reload = self.clone();
        let reloading = tokio::task::spawn_blocking(move || reload.run());
        let result = reloading.await.unwrap_or_else(|error| Err(vec![error.to_string()]));
        self.targets.service.metrics().count_reload(result.is_ok());
        service_manager::ready();
        match &result {
            Ok(outcome) => outcome.log(),
            Err(sentences) => sentences.iter().for_each(|sentence| {
                tracing::error!(
                    "configuration not reloaded, the previous one stays in effect: {sentence}"
                );
            }),
        }
        result
    }

    fn run(&self) -> Result<ReloadOutcome, Vec<String>> {
        let Some(file) = &self.source.file else {
            let sentence = "there is no configuration file to reload: forebay was started without \
                            --config, so SIGHUP and POST /reload have no effect";
            return Err(vec![sentence.to_owned()]);
        };
        // Without the lock, an older read of the file could take effect after a newer one.
        let Some(_lock) = self.lock.try_lock_for(LOCK_WAIT_MAX) else {
            return Err(vec![
                "another reload is still running after 10 s; try again later".to_owned(),
            ]);
        };
        let config = ResolvedConfig::load(Some(file), &self.source.overrides);
        let config = config.map_err(|problems| problems.lines().collect::<Vec<_>>())?;
        self.apply(&config).map_err(|error| vec![output::describe(&error)])
    }

    /// Applies a valid configuration. Nothing fails after the certificates, so changes are not
    /// partial.
    fn apply(&self, config: &ResolvedConfig) -> anyhow::Result<ReloadOutcome> {
        let ReloadTargets {
            service,
            opener,
            limits,
            certificates,
            acme,
            token,
            log,
            times,
            shared,
        } = &self.targets;
        let sites =
            config.sites.iter().map(|site| settings::of_site(site, |id| budgets_of(shared, id)));
        let sites = sites.collect::<anyhow::Result<Vec<_>>>()?;
        let access = Destination::open(config.access.file.as_deref(), config.access.rotation)?;
        let listeners = opener.prepare(config)?;
        let operators = self.operators.get().map_or(Ok(None), |prepare| prepare(config))?;
        if let (Some(store), Some(tls)) = (certificates, &config.tls) {
            store.replace(&tls.certificates)?;
        }
        if let (Some(acme), Some(settings)) =
            (acme, config.tls.as_ref().and_then(|tls| tls.acme.as_ref()))
        {
            acme.replace(settings);
        }
        let mut needs_restart = self.started.changed_fixed_options(config);
        if !token.replace(config.admin_token.as_deref()) {
            needs_restart.push("admin_token_file");
        }
        log.change(config.log);
        log.redirect(&config.access, access);
        warnings::of(config).iter().for_each(|warning| tracing::warn!("{warning}"));
        service.log_access(log.access(config));
        service.trust_proxies(&Arc::new(config.trust.clone()));
        limits.set_max(config.connections_per_address_max);
        let sites = service.reload(&sites);
        if listeners.is_none() {
            needs_restart.push("listen");
        }
        match operators {
            Some(commit) => commit(),
            None => needs_restart.push("admin"),
        }
        times.set(stop_times(config));
        // The sites of a new listener are served when it accepts connections.
        let listeners = listeners.map(|prepared| opener.replace(prepared)).unwrap_or_default();
        Ok(ReloadOutcome { sites, listeners, needs_restart })
    }
}

/// Durations of a stop in a configuration.
pub(crate) const fn stop_times(config: &ResolvedConfig) -> StopTimes {
    StopTimes { delay: config.shutdown_delay, drain_max: config.drain_max }
}

impl ReloadOutcome {
    fn log(&self) {
        let Reloaded { unchanged, changed, added, removed } = self.sites;
        tracing::info!(
            sites_unchanged = unchanged,
            sites_changed = changed,
            sites_added = added,
            sites_removed = removed,
            listeners_unchanged = self.listeners.unchanged,
            listeners_changed = self.listeners.changed,
            listeners_added = self.listeners.added,
            listeners_removed = self.listeners.removed,
            "configuration reloaded"
        );
        if !self.needs_restart.is_empty() {
            let options = self.needs_restart.join(", ");
            tracing::warn!(
                "configuration reloaded, but these changed options take effect only after a \
                 restart: {options}"
            );
        }
    }
}

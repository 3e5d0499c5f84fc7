//! Log output: messages to stderr, one line each with named fields; the access log to stdout or a
//! file.

pub(crate) mod access;
mod destination;
mod messages;
mod notices;
mod queue;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::signal::unix::Signal;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, reload};

use crate::config::resolved::{ResolvedAccess, ResolvedConfig, Rotation};
use crate::config::{AccessLog, LogFormat};
use crate::output::describe;
pub(crate) use access::rfc_3339;
use access::{AccessLines, Format, Redaction};
pub(crate) use destination::Destination;
use messages::MessageFormat;
pub(crate) use notices::{Notice, Notices};
use queue::LogQueue;

/// Name of the access log in metrics.
const ACCESS_LOG: &str = "access";

/// Handle to change the logs at run time.
pub(crate) struct Log {
    level: Box<dyn Fn(Level) + Send + Sync>,
    access: LogQueue,
    /// Last warnings, errors and purges.
    pub(crate) notices: Arc<Notices>,
    /// File of the access log.
    file: Mutex<AccessFile>,
    redaction: Mutex<Arc<Redaction>>,
}

/// Place of the access log.
struct AccessFile {
    /// `None` means standard output.
    path: Option<PathBuf>,
    rotation: Rotation,
}

impl AccessFile {
    fn of(access: &ResolvedAccess) -> Self {
        Self { path: access.file.clone(), rotation: access.rotation }
    }
}

impl Log {
    /// Sets the log level.
    pub(crate) fn change(&self, level: Level) {
        (self.level)(level);
    }

    /// Returns the access log of a configuration; `None` if no site has one.
    pub(crate) fn access(
        &self,
        config: &ResolvedConfig,
    ) -> Option<Box<dyn forebay_http::AccessLog>> {
        let own = |format: Option<AccessLog>| format.map(format_of);
        let sites = config.sites.iter();
        let sites = sites.filter_map(|site| Some((site.id.clone(), own(site.access_log)?)));
        let lines = AccessLines {
            queue: self.access.clone(),
            format: format_of(config.access.format),
            sites: sites.collect(),
            sample_hits: config.access.sample_hits,
            redaction: self.redaction(),
        };
        let is_on = lines.format.is_some() || lines.sites.values().any(Option::is_some);
        is_on.then(|| Box::new(lines) as Box<dyn forebay_http::AccessLog>)
    }

    /// Returns the rules for what logs and live views hide.
    pub(crate) fn redaction(&self) -> Arc<Redaction> {
        self.redaction.lock().clone()
    }

    /// Writes the access log from now on to a destination that has been opened for these settings.
    /// Lines that wait go to the previous destination.
    pub(crate) fn redirect(&self, access: &ResolvedAccess, opened: Destination) {
        *self.redaction.lock() = Arc::new(Redaction::of(&access.privacy));
        let mut current = self.file.lock();
        *current = AccessFile::of(access);
        self.access.redirect(opened);
    }

    /// Opens the file of the access log again, after it was renamed. Lines that wait go to the renamed
    /// file.
    ///
    /// # Errors
    /// If it cannot be opened. The old file stays in use then.
    fn reopen(&self) -> anyhow::Result<()> {
        // Held to the end: otherwise a reload could name another file in between.
        let file = self.file.lock();
        if file.path.is_some() {
            self.access.redirect(Destination::open(file.path.as_deref(), file.rotation)?);
        }
        Ok(())
    }

    /// Opens the log file again at each signal; returns when the signal stream ends.
    pub(crate) async fn reopen_on_each(self: Arc<Self>, mut signals: Signal) {
        while signals.recv().await.is_some() {
            let log = self.clone();
            let reopened = tokio::task::spawn_blocking(move || log.reopen()).await;
            match reopened.unwrap_or_else(|error| Err(error.into())) {
                Ok(()) => tracing::info!("log files opened again"),
                Err(error) => tracing::error!(
                    "log file not opened again, the previous one stays in use: {}",
                    describe(&error)
                ),
            }
        }
    }

    /// Logs that drop lines, with the number of these lines.
    pub(crate) fn dropped(&self) -> (&'static str, u64) {
        (ACCESS_LOG, self.access.dropped())
    }

    /// Waits until all lines so far are written, for a second at most.
    pub(crate) fn flush(&self) {
        self.access.flush();
    }
}

/// Format of the lines; `None` means no log.
const fn format_of(log: AccessLog) -> Option<Format> {
    match log {
        AccessLog::Off => None,
        AccessLog::Common => Some(Format::Common),
        AccessLog::Combined => Some(Format::Combined),
        AccessLog::Logfmt => Some(Format::Logfmt),
        AccessLog::Json => Some(Format::Json),
    }
}

/// Installs the logs of a configuration: this project's messages from its level on, those of libraries
/// from `warn` on.
///
/// # Errors
/// If the file of the access log cannot be opened.
pub(crate) fn init(config: &ResolvedConfig) -> anyhow::Result<Log> {
    let (level, access) = (config.log, &config.access);
    let queue = LogQueue::start(Destination::open(access.file.as_deref(), access.rotation)?)?;
    let is_terminal = std::io::stderr().is_terminal();
    let colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let (messages_of, messages_to) = reload::Layer::new(messages_from(level));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(colour).with_target(false);
    let messages = match config.log_format {
        LogFormat::Json => layer.event_format(MessageFormat::Json).boxed(),
        LogFormat::Logfmt => layer.event_format(MessageFormat::Logfmt).boxed(),
        LogFormat::Auto if !is_terminal => layer.event_format(MessageFormat::Logfmt).boxed(),
        LogFormat::Auto | LogFormat::Text => layer.boxed(),
    };
    let messages = messages.with_filter(messages_of);
    let notices = Arc::new(Notices::default());
    let noticed = notices::Layer::new(notices.clone()).with_filter(messages_from(Level::INFO));
    tracing_subscriber::registry().with(messages).with(noticed).init();
    // Reloading the layer fails only if the subscriber is gone; then there is nothing to change.
    let level = Box::new(move |level| _ = messages_to.reload(messages_from(level)));
    let file = Mutex::new(AccessFile::of(access));
    let redaction = Mutex::new(Arc::new(Redaction::of(&access.privacy)));
    Ok(Log { level, access: queue, notices, file, redaction })
}

fn messages_from(level: Level) -> Targets {
    let ours = ["forebay", "forebay_engine", "forebay_http"].map(|target| (target, level));
    Targets::new().with_default(LevelFilter::WARN).with_targets(ours)
}

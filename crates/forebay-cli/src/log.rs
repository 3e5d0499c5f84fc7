//! Log output: messages to stderr, one line each with named fields; the access log to stdout or a
//! file.

pub(crate) mod access;
mod notices;
mod queue;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::signal::unix::Signal;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, reload};

use crate::config::AccessLog;
use crate::output::describe;
pub(crate) use access::rfc_3339;
use access::{AccessLines, Format};
pub(crate) use notices::{Notice, Notices};
pub(crate) use queue::Destination;
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
    file: Mutex<Option<PathBuf>>,
}

impl Log {
    /// Sets the log level.
    pub(crate) fn change(&self, level: Level) {
        (self.level)(level);
    }

    /// Returns the access log in this format; `None` if it is off.
    pub(crate) fn access(&self, access: AccessLog) -> Option<Box<dyn forebay_http::AccessLog>> {
        let format = match access {
            AccessLog::Off => return None,
            AccessLog::Common => Format::Common,
            AccessLog::Combined => Format::Combined,
            AccessLog::Logfmt => Format::Logfmt,
            AccessLog::Json => Format::Json,
        };
        Some(Box::new(AccessLines { queue: self.access.clone(), format }))
    }

    /// Writes the access log to a destination that has been opened for `file` from now on. Lines that
    /// wait go to the previous destination.
    pub(crate) fn redirect(&self, file: Option<PathBuf>, opened: Destination) {
        let mut current = self.file.lock();
        *current = file;
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
        if file.is_some() {
            self.access.redirect(Destination::open(file.as_deref())?);
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

/// Installs the log: this project's messages from `level` on, those of libraries from `warn` on. The
/// access log goes to `file`, or to standard output.
///
/// # Errors
/// If the file cannot be opened.
pub(crate) fn init(level: Level, file: Option<&Path>) -> anyhow::Result<Log> {
    let access = LogQueue::start(Destination::open(file)?)?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (messages_of, messages_to) = reload::Layer::new(messages_from(level));
    let messages = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .with_filter(messages_of);
    let notices = Arc::new(Notices::default());
    let noticed = notices::Layer::new(notices.clone()).with_filter(messages_from(Level::INFO));
    tracing_subscriber::registry().with(messages).with(noticed).init();
    // Reloading the layer fails only if the subscriber is gone; then there is nothing to change.
    let level = Box::new(move |level| _ = messages_to.reload(messages_from(level)));
    Ok(Log { level, access, notices, file: Mutex::new(file.map(Path::to_owned)) })
}

fn messages_from(level: Level) -> Targets {
    let ours = ["forebay", "forebay_engine", "forebay_http"].map(|target| (target, level));
    Targets::new().with_default(LevelFilter::WARN).with_targets(ours)
}

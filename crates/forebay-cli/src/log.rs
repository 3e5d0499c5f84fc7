//! Log output: messages to stderr, one line each with named fields; the access log to stdout.

mod line;

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, reload};

use crate::config::AccessLog;
use line::AccessLine;

/// Handle to change the log level and the access log format at run time.
pub(crate) struct Log(Box<dyn Fn(Level, AccessLog) + Send + Sync>);

impl Log {
    /// Sets the log level and the access log format.
    pub(crate) fn change(&self, level: Level, access: AccessLog) {
        (self.0)(level, access);
    }
}

/// Installs the log: this project's messages from `level` on, those of libraries from `warn` on.
pub(crate) fn init(level: Level, access: AccessLog) -> Log {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (messages_of, messages_to) = reload::Layer::new(messages_from(level));
    let messages = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .with_filter(messages_of);
    let (common_of, common_to) = reload::Layer::new(requests_if(access == AccessLog::Common));
    let common = fmt::layer()
        .with_writer(std::io::stdout)
        .with_ansi(false)
        .event_format(AccessLine)
        .with_filter(common_of);
    let (json_of, json_to) = reload::Layer::new(requests_if(access == AccessLog::Json));
    let json = fmt::layer()
        .with_writer(std::io::stdout)
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_level(false)
        .with_filter(json_of);
    tracing_subscriber::registry().with(messages).with(common).with(json).init();
    Log(Box::new(move |level, access| {
        // Reloading a layer fails only if the subscriber is gone; then there is nothing to change.
        let _ = messages_to.reload(messages_from(level));
        let _ = common_to.reload(requests_if(access == AccessLog::Common));
        let _ = json_to.reload(requests_if(access == AccessLog::Json));
    }))
}

fn messages_from(level: Level) -> Targets {
    let ours = ["forebay", "forebay_engine", "forebay_http"].map(|target| (target, level));
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(ours)
        // Access log events have their own layer.
        .with_target(forebay_http::ACCESS, LevelFilter::OFF)
}

fn requests_if(wanted: bool) -> Targets {
    let level = if wanted { LevelFilter::INFO } else { LevelFilter::OFF };
    Targets::new().with_target(forebay_http::ACCESS, level)
}

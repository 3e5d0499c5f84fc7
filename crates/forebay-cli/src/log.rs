//! Where messages go: stderr, one line each, with named fields. Requests, where they are asked
//! for, go to stdout.

mod line;

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::config::AccessLog;
use line::AccessLine;

/// Messages of this project at `level`, of its libraries from `warn` on; requests as asked.
pub(crate) fn init(level: Level, access: AccessLog) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let ours = ["forebay", "forebay_engine", "forebay_http"].map(|target| (target, level));
    let messages_of = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(ours)
        // These have a stream of their own, or none.
        .with_target(forebay_http::ACCESS, LevelFilter::OFF);
    let messages = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .with_filter(messages_of);
    let requests = || Targets::new().with_target(forebay_http::ACCESS, Level::INFO);
    let common = (access == AccessLog::Common).then(|| {
        let lines = fmt::layer().with_writer(std::io::stdout).with_ansi(false);
        lines.event_format(AccessLine).with_filter(requests())
    });
    let json = (access == AccessLog::Json).then(|| {
        let lines = fmt::layer().with_writer(std::io::stdout).json().flatten_event(true);
        lines.with_target(false).with_level(false).with_filter(requests())
    });
    tracing_subscriber::registry().with(messages).with(common).with(json).init();
}

//! Signals, and the limit of open files.

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Begins to listen for them.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Resolves when the process shall end.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Begins to listen for SIGHUP, which reloads; until then it would end the process.
pub(crate) fn hang_ups() -> anyhow::Result<Signal> {
    listen(SignalKind::hangup())
}

fn listen(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("signals cannot be caught")
}

/// Raises the limit of open files as far as allowed: a stampede of a thousand clients needs more
/// than a thousand, and many systems begin at 1,024.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

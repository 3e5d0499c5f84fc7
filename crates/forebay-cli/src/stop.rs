//! Signals, the durations of a stop, and the limit on open files.

use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Durations of a stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopTimes {
    /// Time after SIGTERM during which connections are accepted.
    pub(crate) delay: Duration,
    /// Maximum time for requests in progress.
    pub(crate) drain_max: Duration,
}

/// Durations of a stop that has not begun yet, which a reload replaces.
#[derive(Debug)]
pub(crate) struct CurrentStopTimes(Mutex<StopTimes>);

impl CurrentStopTimes {
    pub(crate) const fn new(times: StopTimes) -> Self {
        Self(Mutex::new(times))
    }

    pub(crate) fn get(&self) -> StopTimes {
        *self.0.lock()
    }

    pub(crate) fn set(&self, times: StopTimes) {
        *self.0.lock() = times;
    }
}

/// Receiver of the signals that stop the process: SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// If the operating system refuses a handler.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
        })
    }

    /// Resolves at the next SIGTERM or SIGINT.
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}

/// Signal that stops the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGTERM, of a service manager.
    Terminate,
    /// SIGINT, of a terminal.
    Interrupt,
}

/// Installs the handler of SIGHUP, which reloads the configuration. Without it SIGHUP would end
/// the process.
///
/// # Errors
/// If the operating system refuses the handler.
pub(crate) fn hang_ups() -> anyhow::Result<Signal> {
    listen(SignalKind::hangup(), "SIGHUP")
}

/// Installs the handler of SIGUSR1, which opens log files again. Without it SIGUSR1 would end the
/// process.
///
/// # Errors
/// If the operating system refuses the handler.
pub(crate) fn log_rotations() -> anyhow::Result<Signal> {
    listen(SignalKind::user_defined1(), "SIGUSR1")
}

fn listen(kind: SignalKind, name: &str) -> anyhow::Result<Signal> {
    signal(kind).with_context(|| {
        format!("the handler of the signal {name} cannot be installed, so forebay does not start")
    })
}

/// Raises the limit on open files to the hard limit. A thousand clients need more than a thousand
/// files, and many systems start with a limit of 1,024.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::debug!(%error, "the soft limit on open files was not raised to the hard limit");
    }
}

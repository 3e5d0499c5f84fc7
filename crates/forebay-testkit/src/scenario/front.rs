//! What a scenario's `forebay` block starts.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::SteppedClock;

/// Starts the door under test: a service in this process, or the real binary.
pub trait Front: Sync {
    /// Starts a forebay in front of `origin`. The settings are the lines of the block; a front
    /// must refuse those that it does not know.
    fn start(
        &self,
        origin: SocketAddr,
        settings: &[Setting],
    ) -> impl Future<Output = anyhow::Result<Running>> + Send;
}

/// One `key = value` line of a `forebay` block, both sides as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The side left of the `=`.
    pub key: String,
    /// The side right of it, quotes included.
    pub value: String,
    /// The line it stands on, for messages.
    pub line: usize,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}

type MetricsText = Box<dyn Fn() -> String + Send + Sync>;

/// A forebay that serves until this is dropped.
pub struct Running {
    /// Where it serves.
    pub address: SocketAddr,
    /// Where its admin door is, whose `/metrics` is read for counters.
    pub admin: Option<SocketAddr>,
    /// The clock it runs by, if that can be stepped.
    pub clock: Option<Arc<SteppedClock>>,
    metrics: Option<MetricsText>,
    guard: Box<dyn Any + Send + Sync>,
}

impl Running {
    /// One that serves at `address` until `guard` is dropped.
    pub fn new(address: SocketAddr, guard: impl Any + Send + Sync) -> Self {
        Self { address, admin: None, clock: None, metrics: None, guard: Box::new(guard) }
    }

    /// Has an admin door.
    pub fn with_admin(mut self, admin: SocketAddr) -> Self {
        self.admin = Some(admin);
        self
    }

    /// Runs by a clock that scenarios may step.
    pub fn with_clock(mut self, clock: Arc<SteppedClock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Gives its metrics text directly, for a front in this process without an admin door.
    pub fn with_metrics(mut self, text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Box::new(text));
        self
    }

    pub(super) fn metrics_text(&self) -> Option<String> {
        self.metrics.as_ref().map(|text| text())
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("address", &self.address)
            .field("admin", &self.admin)
            .field("clock", &self.clock)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

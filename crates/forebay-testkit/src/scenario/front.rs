//! Front end that a scenario's `forebay` block starts.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::SteppedClock;

/// Front end under test: a service in this process, or the real binary.
pub trait Front: Sync {
    /// Starts a forebay in front of `origin`. `settings` are the lines of the scenario's `forebay`
    /// block; unknown ones must be refused.
    ///
    /// # Errors
    /// If the front end cannot be started, or a setting is unknown.
    fn start(
        &self,
        origin: SocketAddr,
        settings: &[Setting],
    ) -> impl Future<Output = anyhow::Result<Running>> + Send;

    /// Returns the scheme of the clients' connections.
    fn scheme(&self) -> Scheme {
        Scheme::Http
    }
}

/// Scheme of the connections between clients and a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS, also if something between the clients and the front end adds it.
    Https,
}

impl Scheme {
    /// Replaces `${scheme}`, `${other-scheme}` and `${port}` in the text of a scenario.
    pub(super) fn expand(self, text: &str) -> String {
        let (own, other, port) = match self {
            Self::Http => ("http", "https", "80"),
            Self::Https => ("https", "http", "443"),
        };
        let text = text.replace("${scheme}", own).replace("${other-scheme}", other);
        text.replace("${port}", port)
    }
}

/// One `key = value` line of a `forebay` block, both sides as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key.
    pub key: String,
    /// Value, with its quotes.
    pub value: String,
    /// Line number, for messages.
    pub line: usize,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}

type MetricsText = Box<dyn Fn() -> String + Send + Sync>;

/// Running forebay; dropping it stops it.
pub struct Running {
    /// Address on which the forebay serves clients.
    pub address: SocketAddr,
    /// Clock of the forebay; `None` if a scenario cannot step it.
    pub clock: Option<Arc<SteppedClock>>,
    metrics: Option<MetricsText>,
    guard: Box<dyn Any + Send + Sync>,
}

impl Running {
    /// Forebay that serves at `address` until `guard` is dropped.
    pub fn new(address: SocketAddr, guard: impl Any + Send + Sync) -> Self {
        Self { address, clock: None, metrics: None, guard: Box::new(guard) }
    }

    /// Sets a clock that scenarios may step.
    pub fn with_clock(mut self, clock: Arc<SteppedClock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the function that returns all metrics in the Prometheus text format. Without it, a
    /// scenario cannot check metrics.
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
            .field("clock", &self.clock)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

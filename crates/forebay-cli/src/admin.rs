//! Admin listener: health, metrics, explanations, purges, reloads, dashboard.
//!
//! It listens on its own address. It accepts only its own names as `Host`, because a web page could
//! otherwise reach it by DNS rebinding. GET never changes state. Off the loopback it requires a
//! token.

mod audit;
mod curve;
mod events;
mod explain;
mod format;
mod guard;
mod health;
mod history;
mod live;
mod monitor;
mod origins;
mod page;
mod purge;
mod reasons;
mod reload;
mod usage;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_disk::Disk;
use forebay_http::metrics::MetricsFormat;
use forebay_http::request_guard::GuardCounters;
use forebay_http::{Service, WarningLimits};
use forebay_tls::acme::Acme;
use forebay_tls::server::TlsServer;
use forebay_tls::store::CertificateStore;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use crate::admin_token::Token;
use crate::config::ListenAddress;
use crate::config::resolved::{ResolvedConfig, ResolvedListener};
use crate::listener::ListeningSocket;
use crate::listener::inherited::InheritedSockets;
use crate::listener::socket::listen;
use crate::listener::tls::Tls;
use crate::live::Live;
use crate::log::Log;
use crate::otlp::SpanCounts;
use crate::probe;
use crate::reload::Reload;
use crate::small_server::{self, Answer, ServerLimits, text};
use crate::tiers::shared::SharedTier;
use crate::tiers::{disk, shared};
use guard::{Guard, Refusal};
pub(crate) use monitor::Monitor;

/// Bounds of the admin listener: operators, dashboards and scrapers.
const LIMITS: ServerLimits =
    ServerLimits { connections_max: 256, head_timeout: Duration::from_secs(60) };

/// Paths that exist for one method; others get 405 there.
const PATHS: [&str; 13] = [
    "/", "/livez", "/readyz", "/healthz", "/metrics", "/history", "/events", "/notices",
    "/explain", "/tail", "/top", "/purge", "/reload",
];

/// Admin listener that is bound and not yet running.
pub(crate) struct Admin {
    socket: ListeningSocket,
    tls: Option<TlsServer>,
    guard: Guard,
}

/// Bounds of the tiers of this process, in bytes.
pub(crate) struct TierBounds {
    memory: u64,
    disk: Option<u64>,
}

impl TierBounds {
    /// Returns the bounds of a configuration.
    pub(crate) fn of(config: &ResolvedConfig) -> Self {
        let disk = config.disk.as_ref().map(|disk| disk.size);
        Self { memory: config.memory.size, disk }
    }
}

/// Parts of the running cache that the admin listener reads and changes.
pub(crate) struct AdminState {
    pub(crate) service: Arc<Service>,
    pub(crate) front: Arc<GuardCounters>,
    pub(crate) reload: Arc<Reload>,
    pub(crate) log: Arc<Log>,
    pub(crate) live: Arc<Live>,
    pub(crate) shared: Vec<SharedTier>,
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    pub(crate) acme: Option<Arc<Acme>>,
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) bounds: TierBounds,
    pub(crate) monitor: Monitor,
    pub(crate) spans: Arc<SpanCounts>,
    /// Limit on the log lines of refused requests.
    pub(crate) audit_limits: WarningLimits,
    /// URL of the first listener for clients.
    pub(crate) url: Option<String>,
    /// Time at which the process started.
    pub(crate) started: Instant,
}

impl AdminState {
    /// Starts to sample the state for the history and the live streams.
    ///
    /// # Errors
    /// If the thread for it cannot be started.
    pub(crate) fn start_monitor(self: &Arc<Self>) -> io::Result<()> {
        monitor::start(self)
    }

    /// Updates the metrics that other components count.
    fn refresh_metrics(&self) {
        let Self { service, shared, disk, certificates, acme, log, .. } = self;
        if let Some(acme) = acme {
            let (issued, failed) = acme.orders();
            service.metrics().set_acme_orders(issued, failed);
        }
        if let Some(certificates) = certificates {
            service.metrics().set_certificates(certificates);
        }
        for tier in shared {
            shared::count(tier, service.metrics());
        }
        if let Some(cluster) = shared::sharing(shared, self.started) {
            service.metrics().set_cluster_state(cluster.instances, cluster.lag);
        }
        if let Some(disk) = disk {
            disk::count(disk, service.metrics());
        }
        service.metrics().set_phase(service.phase());
        service.metrics().set_usage(usage::of_process());
        service.metrics().set_spans(self.spans.by_result());
        let (log, dropped) = log.dropped();
        service.metrics().set_log_dropped(log, dropped);
    }
}

struct AdminHandler {
    guard: Guard,
    state: Arc<AdminState>,
}

impl Admin {
    /// Binds the address.
    ///
    /// # Errors
    /// A message with the address, the cause and the flag to change if the address cannot be bound.
    pub(crate) fn bind(address: SocketAddr, token: Arc<Token>) -> anyhow::Result<Self> {
        let cannot_listen = |error: io::Error| {
            anyhow::anyhow!(
                "admin listener cannot listen on {address}: {error}; choose another address with \
                 --admin, or `admin` in the file"
            )
        };
        let listener = listen(address).map_err(cannot_listen)?;
        let guard = Guard::new(Some(listener.local_addr()?), token);
        Ok(Self { socket: ListeningSocket::Tcp(listener), tls: None, guard })
    }

    /// Opens the sockets of a `[[listener]]`.
    ///
    /// # Errors
    /// As [`Self::bind`], and if its TLS server cannot be built.
    pub(crate) fn bind_further(
        listener: &ResolvedListener,
        tls: Option<&Tls>,
        token: &Arc<Token>,
        inherited: &InheritedSockets,
    ) -> anyhow::Result<Vec<Self>> {
        let address = &listener.address;
        let sockets = ListeningSocket::open(address, inherited).map_err(|error| {
            anyhow::anyhow!(
                "admin listener cannot listen on {address}: {error}; choose another address in \
                 its [[listener]]"
            )
        })?;
        let tls = tls.filter(|_| listener.tls).map(|tls| tls.server(listener)).transpose()?;
        let admin = |socket: ListeningSocket| {
            let bound = socket.address().and_then(|address| address.tcp());
            Self { socket, tls: tls.clone(), guard: Guard::new(bound, token.clone()) }
        };
        Ok(sockets.into_iter().map(admin).collect())
    }

    /// Returns the URL of the listener.
    pub(crate) fn url(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Some(match self.socket.address()? {
            ListenAddress::Tcp(address) => format!("{scheme}://{address}"),
            other @ (ListenAddress::Unix(_) | ListenAddress::Inherited(_)) => other.to_string(),
        })
    }

    /// Returns the address that the listener is bound to, if it is one of TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.socket.address()?.tcp()
    }

    /// Answers until the process exits.
    pub(crate) async fn run(self, state: Arc<AdminState>) {
        let handler = Arc::new(AdminHandler { guard: self.guard, state });
        let answer = move |request| {
            let handler = handler.clone();
            async move { handler.answer_audited(request).await }
        };
        small_server::run(self.socket, self.tls, LIMITS, answer).await;
    }
}

impl AdminHandler {
    /// Answers a request, and logs it if it may change something.
    async fn answer_audited(&self, request: Request<Incoming>) -> Answer {
        let call = audit::Call::of(&request);
        let answer = self.answer(request).await;
        if let Some(call) = call {
            let now = self.state.service.engine().clock().now();
            call.log(answer.status(), &self.state.audit_limits, now);
        }
        answer
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.guard.admit(request.method(), request.headers()) {
            Err(Refusal::BadToken) if is_open(&request) => {}
            Err(refusal) => return problem(refusal.status(), refusal.sentence()),
            Ok(()) => {}
        }
        let (path, query) = (request.uri().path().to_owned(), request.uri().query());
        let query = query.unwrap_or_default().to_owned();
        match (request.method(), &*path) {
            (&Method::GET, "/") => page::page(request.headers()),
            (&Method::GET, "/livez") => json_answer(StatusCode::OK, &json!({ "live": true })),
            (&Method::GET, "/readyz") => {
                let (status, _) = probe::readiness(self.state.service.phase());
                json_answer(status, &health::readiness(&self.state))
            }
            (&Method::GET, "/healthz") => json_answer(StatusCode::OK, &health::health(&self.state)),
            (&Method::GET, "/metrics") => {
                let format = format::preferred(request.headers());
                format::answer(format, self.metrics(format))
            }
            (&Method::GET, "/explain") => {
                let redaction = self.state.log.redaction();
                explain::answer(&self.state.service, &redaction, &query).await
            }
            (&Method::GET, "/tail") => live::tail(&self.state.live, &query),
            (&Method::GET, "/top") => live::top(&self.state.live, &query),
            (&Method::POST, "/explain") => {
                let redaction = self.state.log.redaction();
                explain::answer_live(&self.state.service, &redaction, request).await
            }
            (&Method::GET, "/history") => events::history(&self.state, &query),
            (&Method::GET, "/events") => events::events(&self.state, &query),
            (&Method::GET, "/notices") => events::notices(&self.state),
            (&Method::POST, "/purge") => purge::answer(&self.state.service, request).await,
            (&Method::POST, "/reload") => reload::answer(&self.state.reload).await,
            (_, path) if PATHS.contains(&path) || page::is_file(path) => {
                match page::file(path, request.headers())
                    .filter(|_| request.method() == Method::GET)
                {
                    Some(file) => file,
                    None => problem(
                        StatusCode::METHOD_NOT_ALLOWED,
                        "The admin listener does not support this method for this path.",
                    ),
                }
            }
            _ => problem(
                StatusCode::NOT_FOUND,
                "The admin listener has no such path. GET / is the dashboard.",
            ),
        }
    }

    fn metrics(&self, format: MetricsFormat) -> String {
        self.state.refresh_metrics();
        self.state.service.render_metrics(&self.state.front, format)
    }
}

/// Returns `true` for a request that needs no token. The page contains no data: it asks the user for
/// the token, which a browser does not send when it opens an address. Load balancers and container
/// probes send none either.
fn is_open(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    let is_open = matches!(path, "/" | "/livez" | "/readyz") || page::is_file(path);
    request.method() == Method::GET && is_open
}

fn json_answer(status: StatusCode, value: &serde_json::Value) -> Answer {
    let mut response = text("application/json", format!("{value}\n"));
    *response.status_mut() = status;
    response
}

fn problem(status: StatusCode, sentence: &str) -> Answer {
    json_answer(status, &json!({ "error": sentence }))
}

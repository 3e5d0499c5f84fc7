//! Admin listener: health, metrics, purges, reloads, dashboard.
//!
//! It listens on its own address. It accepts only its own names as `Host`, because a web page could
//! otherwise reach it by DNS rebinding. GET never changes state. Off the loopback it requires a
//! token.

mod guard;
mod health;
mod purge;
mod reload;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_disk::Disk;
use forebay_http::Service;
use forebay_http::request_guard::GuardCounters;
use forebay_tls::store::CertificateStore;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::reload::Reload;
use crate::shared::SharedTier;
use crate::socket::listen;
use crate::{disk, shared};
pub(crate) use guard::Token;
use guard::{Guard, Refusal};

/// Maximum number of open connections to the admin listener: operators, dashboards and scrapers.
const CONNECTIONS_MAX: usize = 256;

/// Maximum time from the end of a request to the complete head of the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause after a failed accept; without it, a lack of file descriptors would make the loop spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// HTML of the dashboard.
const PAGE: &str = include_str!("admin/page.html");

/// Admin listener that is bound and not yet running.
pub(crate) struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
}

/// Parts of the running cache that the admin listener reads and changes.
pub(crate) struct AdminState {
    pub(crate) service: Arc<Service>,
    pub(crate) front: Arc<GuardCounters>,
    pub(crate) reload: Arc<Reload>,
    pub(crate) shared: Vec<SharedTier>,
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    pub(crate) disk: Option<Arc<Disk>>,
}

struct AdminHandler {
    guard: Guard,
    state: AdminState,
}

type Answer = Response<Full<Bytes>>;

impl Admin {
    /// Binds the address.
    ///
    /// # Errors
    /// A message with the address, the cause and the flag to change if the address cannot be bound.
    pub(crate) fn bind(address: SocketAddr, token: Arc<Token>) -> anyhow::Result<Self> {
        let listener = listen(address).map_err(|error| {
            anyhow::anyhow!(
                "admin listener cannot listen on {address}: {error}; choose another address with \
                 --admin, or `admin` in the file"
            )
        })?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, guard: Guard::new(address, token) })
    }

    /// Address that the listener is bound to.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `stopping` becomes true.
    pub(crate) async fn run(self, state: AdminState, mut stopping: watch::Receiver<bool>) {
        let handler = Arc::new(AdminHandler { guard: self.guard, state });
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Above the limit, the connection is closed at once.
            let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
            let handler = handler.clone();
            tokio::spawn(async move {
                let answer = service_fn(move |request| {
                    let handler = handler.clone();
                    async move { Ok::<_, Infallible>(handler.answer(request).await) }
                });
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
                if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
                    tracing::debug!(%peer, %error, "admin connection ended with an error");
                }
                drop(permit);
            });
        }
    }
}

impl AdminHandler {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.guard.admit(request.method(), request.headers()) {
            // The page itself contains no data. It asks the user for the token, which a browser
            // does not send when it opens an address.
            Err(Refusal::BadToken)
                if request.method() == Method::GET && request.uri().path() == "/" => {}
            Err(refusal) => return problem(refusal.status(), refusal.sentence()),
            Ok(()) => {}
        }
        let path = request.uri().path().to_owned();
        match (request.method(), &*path) {
            (&Method::GET, "/") => text("text/html; charset=utf-8", PAGE.into()),
            (&Method::GET, "/livez") => json_answer(StatusCode::OK, &json!({ "live": true })),
            (&Method::GET, "/readyz") => {
                json_answer(StatusCode::OK, &health::readiness(&self.state))
            }
            (&Method::GET, "/healthz") => json_answer(StatusCode::OK, &health::health(&self.state)),
            (&Method::GET, "/metrics") => {
                text("application/openmetrics-text; version=1.0.0; charset=utf-8", self.metrics())
            }
            (&Method::POST, "/purge") => purge::answer(&self.state.service, request).await,
            (&Method::POST, "/reload") => reload::answer(&self.state.reload).await,
            (_, "/" | "/livez" | "/readyz" | "/healthz" | "/metrics" | "/purge" | "/reload") => {
                problem(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "The admin listener does not support this method for this path.",
                )
            }
            _ => problem(
                StatusCode::NOT_FOUND,
                "The admin listener has no such path. GET / is the dashboard.",
            ),
        }
    }

    fn metrics(&self) -> String {
        let AdminState { service, front, shared, disk, certificates, .. } = &self.state;
        if let Some(certificates) = certificates {
            service.metrics().set_certificates(certificates);
        }
        for tier in shared {
            shared::count(tier, service.metrics());
        }
        if let Some((instances, lag)) = shared::sharing(shared) {
            service.metrics().set_cluster_state(instances, lag);
        }
        if let Some(disk) = disk {
            disk::count(disk, service.metrics());
        }
        service.metrics().render(service.engine(), front)
    }
}

fn text(kind: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json_answer(status: StatusCode, value: &serde_json::Value) -> Answer {
    let mut response = text("application/json", format!("{value}\n"));
    *response.status_mut() = status;
    response
}

fn problem(status: StatusCode, sentence: &str) -> Answer {
    json_answer(status, &json!({ "error": sentence }))
}

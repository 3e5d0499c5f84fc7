//! The second listener: health, metrics, purges, reloads, the first page.
//!
//! It is for operators, so it listens on another address, answers only to its own names (a page
//! that a browser was lured to could otherwise reach it by DNS rebinding), changes nothing by GET,
//! and asks for a token unless it is on a loopback address.

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
use forebay_http::front::FrontCounters;
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

/// Operators, dashboards and scrapers; not clients.
const CONNECTIONS_MAX: usize = 256;

/// How long a connection may take for the head of a request, idle time included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Without a pause, a lack of file descriptors would turn the accept loop into a busy one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The first page.
const PAGE: &str = include_str!("admin/page.html");

/// The admin listener, bound and not yet running.
pub(crate) struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
}

/// What the admin door opens on.
pub(crate) struct AdminState {
    pub(crate) service: Arc<Service>,
    pub(crate) front: Arc<FrontCounters>,
    pub(crate) reload: Arc<Reload>,
    pub(crate) shared: Vec<SharedTier>,
    pub(crate) disk: Option<Arc<Disk>>,
}

struct AdminHandler {
    guard: Guard,
    state: AdminState,
}

type Answer = Response<Full<Bytes>>;

impl Admin {
    /// Binds its address.
    pub(crate) fn bind(address: SocketAddr, token: Arc<Token>) -> anyhow::Result<Self> {
        let listener = listen(address).map_err(|error| {
            anyhow::anyhow!(
                "the admin listener cannot listen on {address}: {error}; choose another address \
                 with --admin, or `admin` in the file"
            )
        })?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, guard: Guard::new(address, token) })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process stops.
    pub(crate) async fn run(self, state: AdminState, mut stopping: watch::Receiver<bool>) {
        let handler = Arc::new(AdminHandler { guard: self.guard, state });
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // One who comes when all places are taken is turned away at once.
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
                    tracing::debug!(%error, "admin connection ended");
                }
                drop(permit);
            });
        }
    }
}

impl AdminHandler {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.guard.admit(request.method(), request.headers()) {
            // The page tells nothing by itself: it asks for the token, which a browser cannot send
            // with an address.
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
                problem(StatusCode::METHOD_NOT_ALLOWED, "This page does not know that method.")
            }
            _ => problem(StatusCode::NOT_FOUND, "There is no such page; GET / lists them."),
        }
    }

    fn metrics(&self) -> String {
        let AdminState { service, front, shared, disk, .. } = &self.state;
        for tier in shared {
            shared::count(tier, service.metrics());
        }
        if let Some((instances, lag)) = shared::sharing(shared) {
            service.metrics().take_over_sharing(instances, lag);
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

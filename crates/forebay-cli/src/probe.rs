//! Probe listener: `/livez` and `/readyz`, answered with one word and without a token.
//!
//! It gives nothing else away, so that it may be on an address that other hosts reach.

use std::sync::Arc;
use std::time::Duration;

use forebay_http::{Phase, Service};
use futures_util::future::join_all;
use http::{Method, StatusCode};

use crate::config::ListenAddress;
use crate::listener::ListeningSocket;
use crate::listener::inherited::InheritedSockets;
use crate::small_server::{self, Answer, ServerLimits, text};

/// Bounds of the probe listener: load balancers and a container runtime, which ask at once.
const LIMITS: ServerLimits =
    ServerLimits { connections_max: 256, head_timeout: Duration::from_secs(60) };

/// Probe listener that is bound and not yet running.
pub(crate) struct Probe {
    sockets: Vec<ListeningSocket>,
}

impl Probe {
    /// Binds the address.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change.
    pub(crate) fn bind(
        address: &ListenAddress,
        inherited: &InheritedSockets,
    ) -> anyhow::Result<Self> {
        let sockets = ListeningSocket::open(address, inherited).map_err(|error| {
            anyhow::anyhow!(
                "probe listener cannot listen on {address}: {error}; choose another address with \
                 `probe`, or in its [[listener]], in the file"
            )
        })?;
        Ok(Self { sockets })
    }

    /// Bound addresses, with the ports that the system chose.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = ListenAddress> {
        self.sockets.iter().filter_map(ListeningSocket::address)
    }

    /// Answers until the process exits.
    pub(crate) async fn run(self, service: Arc<Service>) {
        let answer = move |request: http::Request<hyper::body::Incoming>| {
            let answer = answer(request.method(), request.uri().path(), service.phase());
            std::future::ready(answer)
        };
        let running = self
            .sockets
            .into_iter()
            .map(|socket| small_server::run(socket, None, LIMITS, answer.clone()));
        join_all(running).await;
    }
}

/// Status and word of `/readyz`. A degraded cache is ready: it answers requests.
pub(crate) const fn readiness(phase: Phase) -> (StatusCode, &'static str) {
    match phase {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        Phase::Ready => (StatusCode::OK, "ready"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    }
}

fn answer(method: &Method, path: &str, phase: Phase) -> Answer {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let (status, word) = match path {
        "/livez" | "/readyz" if !is_read => (StatusCode::METHOD_NOT_ALLOWED, "method"),
        "/livez" => (StatusCode::OK, "live"),
        "/readyz" => readiness(phase),
        _ => (StatusCode::NOT_FOUND, "unknown"),
    };
    let mut response = text("text/plain", format!("{word}\n"));
    *response.status_mut() = status;
    response
}

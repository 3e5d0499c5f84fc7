//! Probe listener: `/livez` and `/readyz`, answered with one word and without a token.
//!
//! It gives nothing else away, so that it may be on an address that other hosts reach.

use std::sync::Arc;
use std::time::Duration;

use forebay_http::{Phase, Service};
use http::{Method, StatusCode};

use crate::config::ListenAddress;
use crate::listener::ListeningSocket;
use crate::small_server::{self, Answer, ServerLimits, text};

/// Bounds of the probe listener: load balancers and a container runtime, which ask at once.
const LIMITS: ServerLimits =
    ServerLimits { connections_max: 256, head_timeout: Duration::from_secs(60) };

/// Probe listener that is bound and not yet running.
pub(crate) struct Probe {
    socket: ListeningSocket,
}

impl Probe {
    /// Binds the address.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change.
    pub(crate) fn bind(address: &ListenAddress) -> anyhow::Result<Self> {
        let socket = ListeningSocket::bind(address).map_err(|error| {
            anyhow::anyhow!(
                "probe listener cannot listen on {address}: {error}; choose another address with \
                 `probe` in the file"
            )
        })?;
        Ok(Self { socket })
    }

    /// Bound address, with the port that the system chose.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        self.socket.address()
    }

    /// Answers until the process exits.
    pub(crate) async fn run(self, service: Arc<Service>) {
        let answer = move |request: http::Request<hyper::body::Incoming>| {
            let answer = answer(request.method(), request.uri().path(), service.phase());
            std::future::ready(answer)
        };
        small_server::run(self.socket, None, LIMITS, answer).await;
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

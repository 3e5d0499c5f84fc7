//! One client connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::front::{FrontCounters, Guarded, Limits, http1_builder};
use crate::service::Service;

/// What all connections of a listener share.
#[derive(Clone)]
pub struct Connections {
    /// What answers.
    pub service: Arc<Service>,
    /// How patient we are with clients.
    pub limits: Limits,
    /// What was refused, and who was too slow.
    pub counters: Arc<FrontCounters>,
    /// Turns true when the connections shall end.
    pub stop: watch::Receiver<bool>,
}

impl Connections {
    /// Serves one connection until the client leaves, is refused, or `stop` turns true and the
    /// request under way is answered.
    pub async fn serve<S>(mut self, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let guarded = Guarded::new(stream, self.limits, self.counters);
        let exchanges = guarded.exchanges();
        let service = self.service;
        let answer = service_fn(move |request| {
            let exchange = exchanges.open();
            let service = service.clone();
            async move {
                let response = service.handle(request, peer.ip()).await;
                Ok::<_, Infallible>(response.map(|body| body.during(exchange)))
            }
        });
        let mut connection = pin!(http1_builder().serve_connection(TokioIo::new(guarded), answer));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut self.stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            // A client that goes away is none of our errors.
            tracing::debug!(%peer, %error, "connection ended");
        }
    }
}

/// Resolves when the flag turns true, or nobody is left who could turn it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

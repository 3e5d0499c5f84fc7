//! One client connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::front::{Exchange, FrontCounters, Guarded, Limits, http1_builder};
use crate::outgoing::Outgoing;
use crate::service::Service;
use crate::tunnel::Tunnel;

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
    /// request under way is answered. A tunnel that it became goes on after that, until it ends or
    /// this future is dropped.
    pub async fn serve<S>(mut self, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ending = Ending::default();
        if let Err(error) = self.serve_http(stream, peer, &ending).await {
            // A client that goes away is none of our errors.
            tracing::debug!(%peer, %error, "connection ended");
        }
        ending.finish::<S>().await;
    }

    async fn serve_http<S>(
        &mut self,
        stream: S,
        peer: SocketAddr,
        ending: &Ending,
    ) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let guarded = Guarded::new(stream, self.limits, self.counters.clone());
        let exchanges = guarded.exchanges();
        let service = self.service.clone();
        let answer = service_fn(move |mut request: Request<_>| {
            let exchange = exchanges.open();
            let service = service.clone();
            let upgrade = request.extensions_mut().remove::<OnUpgrade>();
            let asked = upgrade.map(|upgrade| (upgrade, ending.clone()));
            async move {
                let response = service.handle(request, peer.ip()).await;
                Ok::<_, Infallible>(match asked {
                    None => response.map(|body| body.during(exchange)),
                    Some((upgrade, ending)) => ending.note(upgrade, response, exchange),
                })
            }
        });
        let connection = http1_builder().serve_connection(TokioIo::new(guarded), answer);
        let mut connection = pin!(connection.with_upgrades());
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut self.stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    }
}

/// What becomes of a connection on which another protocol was asked for: hyper gives it back at its
/// end, whatever the answer was.
#[derive(Clone, Default)]
struct Ending(Arc<Mutex<Option<Asked>>>);

struct Asked {
    upgrade: OnUpgrade,
    agreed: Option<Agreed>,
}

/// The other protocol, and the exchange that has not ended in HTTP: the guard holds back what came
/// behind the request for as long as it is open.
struct Agreed {
    tunnel: Box<Tunnel>,
    exchange: Exchange,
}

impl Ending {
    fn note(
        &self,
        upgrade: OnUpgrade,
        mut response: Response<Outgoing>,
        exchange: Exchange,
    ) -> Response<Outgoing> {
        let (agreed, response) = match response.body_mut().take_tunnel() {
            Some(tunnel) => (Some(Agreed { tunnel, exchange }), response),
            None => (None, response.map(|body| body.during(exchange))),
        };
        *self.0.lock() = Some(Asked { upgrade, agreed });
        response
    }

    async fn finish<S>(self)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(Asked { upgrade, agreed }) = self.0.lock().take() else { return };
        // hyper is done with the connection, so it is here by now, or never will be.
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<Guarded<S>>>() else { return };
        let mut guarded = parts.io.into_inner();
        match agreed {
            // The guard gave hyper nothing that came behind the request.
            Some(Agreed { tunnel, exchange }) if parts.read_buf.is_empty() => {
                guarded.set_tunnel();
                tunnel.join(guarded).await;
                drop(exchange);
            }
            _ => {
                let _ = guarded.shutdown().await;
            }
        }
    }
}

/// Resolves when the flag turns true, or nobody is left who could turn it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

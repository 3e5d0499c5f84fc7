//! Where clients are answered.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::socket::listen;
use crate::workers::Workers;

/// Without a pause, a lack of file descriptors would turn the accept loop into a busy one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listening sockets.
pub(crate) struct Listeners(Vec<tokio::net::TcpListener>);

impl Listeners {
    /// Binds all addresses, or none.
    pub(crate) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Self> {
        let bound = addresses.iter().map(|address| {
            listen(*address).map_err(|error| {
                anyhow::anyhow!(
                    "cannot listen on {address}: {error}; choose another address with --listen, \
                     or `listen` in the file"
                )
            })
        });
        bound.collect::<anyhow::Result<_>>().map(Self)
    }

    /// The addresses, with the ports that the system chose.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Deals out connections to the workers until `stop` resolves.
    pub(crate) async fn accept_until(&self, stop: impl Future<Output = ()>, workers: &mut Workers) {
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = &mut stop => return,
            };
            match accepted {
                Ok((stream, peer)) => workers.take(stream, peer).await,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(std::net::TcpStream, SocketAddr)> {
        let (stream, peer) = std::future::poll_fn(|cx| {
            let ready = self.0.iter().find_map(|listener| match listener.poll_accept(cx) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await?;
        stream.set_nodelay(true)?;
        Ok((stream.into_std()?, peer))
    }
}

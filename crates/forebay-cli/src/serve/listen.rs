//! Where clients are answered.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context;
use socket2::{Domain, Socket, Type};

use crate::workers::Workers;

/// Connections that the system keeps for us while we are busy: a stampede comes at once.
const BACKLOG: i32 = 4_096;

/// Without a pause, a lack of file descriptors would turn the accept loop into a busy one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listening sockets.
pub(crate) struct Listeners(Vec<tokio::net::TcpListener>);

impl Listeners {
    /// Binds all addresses, or none.
    pub(crate) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Self> {
        let bound = addresses.iter().map(|address| {
            listen(*address).and_then(tokio::net::TcpListener::from_std).with_context(|| {
                format!(
                    "cannot listen on {address}; is another process using it? \
                     Choose another address with --listen"
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

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // An address is what was written, so that 0.0.0.0 and [::] can stand side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

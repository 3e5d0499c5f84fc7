//! Listeners for clients, and the limit on client connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::socket::listen;
use crate::workers::{Accepted, Workers};

/// Pause after a failed accept; without it, a lack of file descriptors would make the loop spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Minimum number of open files reserved for listeners, runtimes and origin connections.
const FILES_RESERVED_MIN: u64 = 64;

/// Divisor of the share of open files that is reserved for other uses than client connections.
const FILES_RESERVED_SHARE: u64 = 4;

/// Maximum number of client connections where the system sets no limit on open files.
const CLIENTS_MAX: u64 = 1 << 20;

/// Maximum number of connections that are being answered with 503 at once. It is below the number
/// of reserved files. At the limit, new connections wait in the listen queue of the system.
const REJECTIONS_MAX: usize = 32;

/// Minimum interval between warnings that the connection limit is reached.
const FULL_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Listening sockets and the slots for client connections.
pub(crate) struct Listeners {
    sockets: Vec<tokio::net::TcpListener>,
    permits: Arc<Semaphore>,
    rejections: Arc<Semaphore>,
    clients_max: usize,
}

/// Accepted connection: with a slot, or to be rejected with 503.
enum Incoming {
    Admitted(Accepted),
    Rejected(TcpStream, SocketAddr, OwnedSemaphorePermit),
}

impl Listeners {
    /// Binds all addresses, or none.
    ///
    /// # Errors
    /// A message with the address, the cause and the flag to change if an address cannot be bound.
    pub(crate) fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Self> {
        let bound = addresses.iter().map(|address| {
            listen(*address).map_err(|error| {
                anyhow::anyhow!(
                    "cannot listen on {address}: {error}; choose another address with --listen, \
                     or `listen` in the file"
                )
            })
        });
        let sockets = bound.collect::<anyhow::Result<_>>()?;
        let clients_max = clients_max(getrlimit(Resource::Nofile).current);
        tracing::debug!(clients_max, "client connection limit set from the limit on open files");
        let permits = Arc::new(Semaphore::new(clients_max));
        let rejections = Arc::new(Semaphore::new(REJECTIONS_MAX));
        Ok(Self { sockets, permits, rejections, clients_max })
    }

    /// Bound addresses, with the ports that the system chose.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Accepts connections and hands them to the workers until `stop` resolves. Above the limit,
    /// connections are answered with 503.
    pub(crate) async fn accept_until(&self, stop: impl Future<Output = ()>, workers: &mut Workers) {
        let mut stop = pin!(stop);
        let mut warned = None;
        loop {
            self.warn_if_full(&mut warned);
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = &mut stop => return,
            };
            match accepted {
                Ok(Incoming::Admitted(accepted)) => workers.dispatch(accepted).await,
                Ok(Incoming::Rejected(stream, peer, rejection)) => {
                    let rejecting = workers.connections().reject(stream, peer);
                    tokio::spawn(async move {
                        rejecting.await;
                        drop(rejection);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "client connection not accepted; the next attempt \
                                            follows after 50 ms");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn warn_if_full(&self, warned: &mut Option<Instant>) {
        let is_due = warned.is_none_or(|warned| warned.elapsed() >= FULL_WARNING_INTERVAL);
        if is_due && self.permits.available_permits() == 0 {
            *warned = Some(Instant::now());
            let clients_max = self.clients_max;
            tracing::warn!(
                clients_max,
                "client connection limit reached: further connections get 503; raise the limit on \
                 open files to allow more"
            );
        }
    }

    async fn accept(&self) -> io::Result<Incoming> {
        let rejection = self.rejections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = std::future::poll_fn(|cx| {
            let ready = self.sockets.iter().find_map(|listener| match listener.poll_accept(cx) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await?;
        stream.set_nodelay(true)?;
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => {
                Ok(Incoming::Admitted(Accepted { stream: stream.into_std()?, peer, permit }))
            }
            Err(_) => Ok(Incoming::Rejected(stream, peer, rejection)),
        }
    }
}

/// Maximum number of client connections for a limit of `files` open files.
fn clients_max(files: Option<u64>) -> usize {
    let Some(files) = files else { return to_usize(CLIENTS_MAX) };
    let reserved = FILES_RESERVED_MIN.max(files / FILES_RESERVED_SHARE);
    to_usize(files.saturating_sub(reserved).clamp(1, CLIENTS_MAX))
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_us_a_share_of_the_open_files() {
        let rows = [
            (Some(0), 1),
            (Some(64), 1),
            (Some(128), 64),
            (Some(1_024), 768),
            (Some(20_000), 15_000),
            (Some(u64::MAX), 1 << 20),
            (None, 1 << 20),
        ];
        for (files, clients) in rows {
            assert_eq!(clients_max(files), clients, "{files:?}");
        }
    }
}

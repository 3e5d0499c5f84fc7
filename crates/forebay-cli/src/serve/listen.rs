//! Where clients are answered.

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

/// Without a pause, a lack of file descriptors would turn the accept loop into a busy one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Files that clients leave to us at least: for listeners, runtimes and connections to origins.
const FILES_RESERVED_MIN: u64 = 64;

/// Of the open files that the system allows, one in this many is kept from clients too.
const FILES_RESERVED_SHARE: u64 = 4;

/// Connections of clients where the system sets no limit: a million costs tens of gigabytes.
const CLIENTS_MAX: u64 = 1 << 20;

/// Clients beyond those who are let in that are told so at once: fewer than the files kept from
/// clients, and each takes no longer than it may take to read a short answer. With as many, those
/// who come wait with the system.
const REJECTIONS_MAX: usize = 32;

/// How often it is told that clients are turned away: they are no reason to fill a disk.
const FULL_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The listening sockets, and the permits of those who come.
pub(crate) struct Listeners {
    sockets: Vec<tokio::net::TcpListener>,
    permits: Arc<Semaphore>,
    rejections: Arc<Semaphore>,
    clients_max: usize,
}

/// Who has come, and whether there is room.
enum Incoming {
    Admitted(Accepted),
    Rejected(TcpStream, SocketAddr, OwnedSemaphorePermit),
}

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
        let sockets = bound.collect::<anyhow::Result<_>>()?;
        let clients_max = clients_max(getrlimit(Resource::Nofile).current);
        tracing::debug!(clients_max, "so many connections of clients at once");
        let permits = Arc::new(Semaphore::new(clients_max));
        let rejections = Arc::new(Semaphore::new(REJECTIONS_MAX));
        Ok(Self { sockets, permits, rejections, clients_max })
    }

    /// The addresses, with the ports that the system chose.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Deals out connections to the workers until `stop` resolves. With as many as there may be,
    /// those who come are told to come again.
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
                    let rejecting = workers.connections().turn_away(stream, peer);
                    tokio::spawn(async move {
                        rejecting.await;
                        drop(rejection);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
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
            tracing::warn!(clients_max, "as many connections as there may be: others get 503");
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

/// How many connections of clients there may be with so many open files allowed.
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

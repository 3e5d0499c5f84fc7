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
const FILES_KEPT_MIN: u64 = 64;

/// Of the open files that the system allows, one in this many is kept from clients too.
const FILES_KEPT_SHARE: u64 = 4;

/// Connections of clients where the system sets no limit: a million costs tens of gigabytes.
const CLIENTS_CEILING: u64 = 1 << 20;

/// Clients beyond those who are let in that are told so at once: fewer than the files kept from
/// clients, and each takes no longer than it may take to read a short answer. With as many, those
/// who come wait with the system.
const TURNED_AWAY_MAX: usize = 32;

/// How often it is told that clients are turned away: they are no reason to fill a disk.
const PAUSE_TOLD_EVERY: Duration = Duration::from_secs(60);

/// The listening sockets, and the places of those who come.
pub(crate) struct Listeners {
    sockets: Vec<tokio::net::TcpListener>,
    places: Arc<Semaphore>,
    doorsteps: Arc<Semaphore>,
    clients_max: usize,
}

/// Who has come, and whether there is room.
enum Came {
    In(Accepted),
    TurnedAway(TcpStream, SocketAddr, OwnedSemaphorePermit),
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
        let places = Arc::new(Semaphore::new(clients_max));
        let doorsteps = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Ok(Self { sockets, places, doorsteps, clients_max })
    }

    /// The addresses, with the ports that the system chose.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// Deals out connections to the workers until `stop` resolves. With as many as there may be,
    /// those who come are told to come again.
    pub(crate) async fn accept_until(&self, stop: impl Future<Output = ()>, workers: &mut Workers) {
        let mut stop = pin!(stop);
        let mut told = None;
        loop {
            self.tell_of_crowd(&mut told);
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = &mut stop => return,
            };
            match accepted {
                Ok(Came::In(accepted)) => workers.take(accepted).await,
                Ok(Came::TurnedAway(stream, peer, doorstep)) => {
                    let turned_away = workers.connections().turn_away(stream, peer);
                    tokio::spawn(async move {
                        turned_away.await;
                        drop(doorstep);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn tell_of_crowd(&self, told: &mut Option<Instant>) {
        let is_due = told.is_none_or(|told| told.elapsed() >= PAUSE_TOLD_EVERY);
        if is_due && self.places.available_permits() == 0 {
            *told = Some(Instant::now());
            let clients_max = self.clients_max;
            tracing::warn!(clients_max, "as many connections as there may be: others get 503");
        }
    }

    async fn accept(&self) -> io::Result<Came> {
        let doorstep = self.doorsteps.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = std::future::poll_fn(|cx| {
            let ready = self.sockets.iter().find_map(|listener| match listener.poll_accept(cx) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await?;
        stream.set_nodelay(true)?;
        match self.places.clone().try_acquire_owned() {
            Ok(place) => Ok(Came::In(Accepted { stream: stream.into_std()?, peer, place })),
            Err(_) => Ok(Came::TurnedAway(stream, peer, doorstep)),
        }
    }
}

/// How many connections of clients there may be with so many open files allowed.
fn clients_max(files: Option<u64>) -> usize {
    let Some(files) = files else { return to_usize(CLIENTS_CEILING) };
    let kept = FILES_KEPT_MIN.max(files / FILES_KEPT_SHARE);
    to_usize(files.saturating_sub(kept).clamp(1, CLIENTS_CEILING))
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

//! Listeners for clients, and the limit on client connections.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use forebay_http::ConnectionInfo;
use forebay_http::edge::connection::Connections;
use forebay_semantics::PeerAddress;
use futures_util::FutureExt;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::unconstrained;

use crate::config::ListenAddress;
use crate::listener::opener::{Change, Opener};
use crate::listener::socket::BACKLOG_MAX;
use crate::listener::workers::{Accepted, Workers};
use crate::listener::{AcceptedStream, Listener};

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
    listeners: Vec<Listener>,
    /// Listeners that reloads open; there are none after the stop.
    changes: mpsc::Receiver<Change>,
    slots: Slots,
}

/// Limits on connections that are accepted, and on those that are rejected.
struct Slots {
    permits: Arc<Semaphore>,
    rejections: Arc<Semaphore>,
    clients_max: usize,
}

/// Accepted connection: with a slot, or to be rejected with 503.
enum Incoming {
    Admitted(Accepted),
    Rejected(AcceptedStream, PeerAddress, OwnedSemaphorePermit),
    /// Closed without an answer.
    Closed,
}

/// Event of the accept loop.
enum Next {
    Accepted(io::Result<Incoming>),
    Changed(Change),
}

impl Listeners {
    /// Accepts connections of the listeners of `opener`, and of those that `changes` brings.
    pub(crate) fn new(opener: &Opener, changes: mpsc::Receiver<Change>) -> Self {
        let clients_max = clients_max(getrlimit(Resource::Nofile).current);
        tracing::debug!(clients_max, "client connection limit set from the limit on open files");
        Self {
            listeners: opener.listeners(),
            changes,
            slots: Slots {
                permits: Arc::new(Semaphore::new(clients_max)),
                rejections: Arc::new(Semaphore::new(REJECTIONS_MAX)),
                clients_max,
            },
        }
    }

    /// Returns the maximum number of client connections.
    pub(crate) const fn connections_max(&self) -> usize {
        self.slots.clients_max
    }

    /// Bound addresses, with the ports that the system chose.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = ListenAddress> {
        self.listeners.iter().filter_map(|listener| listener.socket.address())
    }

    /// URLs of all listeners.
    pub(crate) fn urls(&self) -> impl Iterator<Item = String> {
        self.listeners.iter().filter_map(|listener| {
            let scheme = if listener.rules.tls.is_some() { "https" } else { "http" };
            Some(match listener.socket.address()? {
                ListenAddress::Tcp(address) => format!("{scheme}://{address}"),
                other => other.to_string(),
            })
        })
    }

    /// Accepts connections and hands them to the workers until `stop` resolves. Above the limit,
    /// connections are answered with 503.
    pub(crate) async fn accept_until<T>(
        &mut self,
        stop: impl Future<Output = T>,
        workers: &mut Workers,
    ) -> T {
        let mut stop = pin!(stop);
        let mut warned = None;
        loop {
            self.warn_if_full(&mut warned);
            let next = tokio::select! {
                accepted = self.slots.accept(&self.listeners) => Next::Accepted(accepted),
                Some(change) = self.changes.recv() => Next::Changed(change),
                stopped = &mut stop => return stopped,
            };
            match next {
                Next::Accepted(accepted) => self.hand_over(accepted, workers).await,
                Next::Changed(change) => self.change(change, workers).await,
            }
        }
    }

    /// Replaces the listeners, and closes those that are not among the new ones.
    async fn change(&mut self, change: Change, workers: &mut Workers) {
        let mut removed = std::mem::replace(&mut self.listeners, change.listeners);
        let stays = |one: &Listener| {
            self.listeners.iter().any(|listener| Arc::ptr_eq(&listener.socket, &one.socket))
        };
        removed.retain(|listener| !stays(listener));
        // The receiver has gone only while the process stops.
        let _ = change.done.send(());
        self.empty(&removed, workers).await;
    }

    /// Hands over the connections that wait in the listen queues, and closes the sockets.
    pub(crate) async fn close(self, workers: &mut Workers) {
        self.empty(&self.listeners, workers).await;
    }

    /// Hands over the connections that wait in the listen queues of some listeners.
    async fn empty(&self, listeners: &[Listener], workers: &mut Workers) {
        // The runtime learns of connections that have just arrived.
        tokio::task::yield_now().await;
        for _ in 0..listeners.len().saturating_mul(BACKLOG_MAX) {
            // Only an empty queue makes the first poll wait.
            let accepted = unconstrained(self.slots.accept(listeners)).now_or_never();
            let Some(accepted) = accepted else { return };
            self.hand_over(accepted, workers).await;
        }
    }

    async fn hand_over(&self, accepted: io::Result<Incoming>, workers: &mut Workers) {
        match accepted {
            Ok(Incoming::Admitted(accepted)) => workers.dispatch(accepted).await,
            // An answer would need a handshake, or the header of a proxy.
            Ok(Incoming::Closed) => {}
            Ok(Incoming::Rejected(stream, peer, rejection)) => {
                let connections = workers.connections();
                tokio::spawn(async move {
                    reject(stream, peer, connections).await;
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

    fn warn_if_full(&self, warned: &mut Option<Instant>) {
        let is_due = warned.is_none_or(|warned| warned.elapsed() >= FULL_WARNING_INTERVAL);
        if is_due && self.slots.permits.available_permits() == 0 {
            *warned = Some(Instant::now());
            let clients_max = self.slots.clients_max;
            tracing::warn!(
                clients_max,
                "client connection limit reached: further connections get 503; raise the limit on \
                 open files to allow more"
            );
        }
    }
}

impl Slots {
    /// Accepts a connection of one of the listeners.
    async fn accept(&self, listeners: &[Listener]) -> io::Result<Incoming> {
        let rejection = self.rejections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer, rules) = std::future::poll_fn(|cx| {
            let ready =
                listeners.iter().find_map(|listener| match listener.socket.poll_accept(cx) {
                    Poll::Ready(accepted) => {
                        Some(accepted.map(|(stream, peer)| (stream, peer, listener.rules.clone())))
                    }
                    Poll::Pending => None,
                });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await?;
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok(Incoming::Admitted(Accepted { stream, peer, rules, permit })),
            Err(_) if rules.tls.is_some() || rules.proxy_protocol => Ok(Incoming::Closed),
            Err(_) => Ok(Incoming::Rejected(stream, peer, rejection)),
        }
    }
}

/// Answers a connection above the limit with 503.
async fn reject(stream: AcceptedStream, peer: PeerAddress, connections: Connections) {
    let info = ConnectionInfo::cleartext(peer);
    match stream {
        AcceptedStream::Tcp(stream) => {
            if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
                connections.reject(stream, info).await;
            }
        }
        AcceptedStream::Unix(stream) => {
            if let Ok(stream) = tokio::net::UnixStream::from_std(stream) {
                connections.reject(stream, info).await;
            }
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

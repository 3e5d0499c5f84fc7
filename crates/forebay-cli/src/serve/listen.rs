//! Listeners for clients, and the limit on client connections.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use forebay_http::ConnectionInfo;
use forebay_http::Role;
use forebay_http::edge::accept::AcceptRules;
use forebay_http::edge::address_limits::AddressLimits;
use forebay_http::edge::connection::Connections;
use forebay_semantics::PeerAddress;
use futures_util::FutureExt;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;

use crate::config::resolved::ResolvedListener;
use crate::config::{ListenAddress, ListenerRole, Protocol};
use crate::listener::inherited::InheritedSockets;
use crate::listener::socket::BACKLOG_MAX;
use crate::listener::tls::Tls;
use crate::listener::workers::{Accepted, Workers};
use crate::listener::{AcceptedStream, Listener, ListeningSocket};

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

/// Port of https in redirects, if no listener with TLS has another one.
const HTTPS_PORT: u16 = 443;

/// Minimum interval between warnings that the connection limit is reached.
const FULL_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Listening sockets and the slots for client connections.
pub(crate) struct Listeners {
    listeners: Vec<Listener>,
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

impl Listeners {
    /// Binds all addresses, or none.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change if an address cannot be bound.
    pub(crate) fn bind(
        listeners: &[ResolvedListener],
        limits: &Arc<AddressLimits>,
        tls: Option<&Tls>,
        inherited: &InheritedSockets,
    ) -> anyhow::Result<Self> {
        let mut sockets = Vec::new();
        for listener in listeners {
            let opened = open(&listener.address, inherited)?;
            sockets.extend(opened.into_iter().map(|socket| (listener, socket)));
        }
        let mut ports = sockets.iter().filter(|(listener, _)| listener.tls);
        let https_port = ports.find_map(|(_, socket)| Some(socket.address()?.tcp()?.port()));
        let https_port = https_port.unwrap_or(HTTPS_PORT);
        let bound = sockets.into_iter().map(|(listener, socket)| {
            let tls = match tls.filter(|_| listener.tls) {
                Some(tls) => Some(tls.server(listener)?),
                None => None,
            };
            let ids = listener.sites.iter().map(|id| id.as_str().into());
            let rules = AcceptRules {
                proxy_protocol: listener.proxy_protocol,
                tls,
                is_h2c: listener.protocols.contains(&Protocol::H2c),
                role: match listener.role {
                    ListenerRole::Redirect => Role::Redirect(https_port),
                    // Listeners of the other roles are not for clients.
                    ListenerRole::Serve | ListenerRole::Admin | ListenerRole::Probe => Role::Serve,
                },
                sites: (!listener.sites.is_empty()).then(|| ids.collect()),
                ..AcceptRules::cleartext(listener.address.to_string(), limits.clone())
            };
            anyhow::Ok(Listener { socket, rules: Arc::new(rules) })
        });
        let listeners = bound.collect::<anyhow::Result<_>>()?;
        let clients_max = clients_max(getrlimit(Resource::Nofile).current);
        tracing::debug!(clients_max, "client connection limit set from the limit on open files");
        let permits = Arc::new(Semaphore::new(clients_max));
        let rejections = Arc::new(Semaphore::new(REJECTIONS_MAX));
        Ok(Self { listeners, permits, rejections, clients_max })
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
        &self,
        stop: impl Future<Output = T>,
        workers: &mut Workers,
    ) -> T {
        let mut stop = pin!(stop);
        let mut warned = None;
        loop {
            self.warn_if_full(&mut warned);
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                stopped = &mut stop => return stopped,
            };
            self.hand_over(accepted, workers).await;
        }
    }

    /// Hands over the connections that wait in the listen queues, and closes the sockets.
    pub(crate) async fn close(self, workers: &mut Workers) {
        // The runtime learns of connections that have just arrived.
        tokio::task::yield_now().await;
        for _ in 0..self.listeners.len().saturating_mul(BACKLOG_MAX) {
            // Only an empty queue makes the first poll wait.
            let Some(accepted) = unconstrained(self.accept()).now_or_never() else { return };
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
        let (stream, peer, rules) = std::future::poll_fn(|cx| {
            let ready =
                self.listeners.iter().find_map(|listener| match listener.socket.poll_accept(cx) {
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

/// Warns of inherited sockets that no listener has: connections to them would wait for ever.
pub(super) fn warn_of_unused<'a>(
    used: impl Iterator<Item = &'a ListenAddress>,
    inherited: &InheritedSockets,
) {
    let used = used.filter_map(|address| match address {
        ListenAddress::Inherited(name) => Some(name.as_str()),
        _ => None,
    });
    let used: Vec<&str> = used.collect();
    for name in inherited.unused(&used) {
        tracing::warn!(
            "inherited socket \"{name}\" is not used: add [[listener]] with address = \"fd:{name}\""
        );
    }
}

fn open(
    address: &ListenAddress,
    inherited: &InheritedSockets,
) -> anyhow::Result<Vec<ListeningSocket>> {
    ListeningSocket::open(address, inherited).map_err(|error| {
        anyhow::anyhow!(
            "cannot listen on {address}: {error}; choose another address with --listen, or \
             `listen` or [[listener]] in the file"
        )
    })
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

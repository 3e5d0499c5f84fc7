//! One server of an origin: its addresses, and the connections to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_tls::client::TlsFailure;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::accept::HeadLimits;
use super::connection::Connection;
use super::fault::ConnectError;
use super::names::{Change, Names};
use super::pool::{Pool, PooledConnection};
use super::stream::{OriginStream, Transport};
use crate::settings::{EndpointAddress, EndpointSettings, EndpointTls, OriginSettings};

/// Server of an origin.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Host and port, or path of the socket, for metrics and logs.
    pub(super) label: Box<str>,
    target: Target,
    tls: Option<EndpointTls>,
    pool: Arc<Pool>,
    limits: HeadLimits,
    connect_timeout: Duration,
    /// Number of the address with which the next connection begins.
    next_address: AtomicUsize,
}

#[derive(Debug)]
enum Target {
    Tcp(Names),
    Unix(Box<Path>),
}

/// Kind of a request: it decides about the connections that may carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeatable {
    /// The request may be sent again (RFC 9110 section 9.2.1).
    Yes,
    /// The request may have taken effect when its connection closes (RFC 9112 section 9.3.1).
    No,
}

/// Maximum idle time of a connection for a request that must not be repeated. An origin may close
/// an idle connection at any moment, and a request sent at that moment is lost; most origins keep
/// idle connections for 2 to 75 seconds.
const UNREPEATABLE_KEEP_ALIVE_MAX: Duration = Duration::from_secs(1);

impl Endpoint {
    pub(super) fn new(settings: &EndpointSettings, origin: &OriginSettings) -> Self {
        let EndpointSettings { address, tls } = settings;
        let port = if tls.is_some() { 443 } else { 80 };
        let target = match address {
            EndpointAddress::Tcp(authority) => {
                Target::Tcp(Names::new(authority, port, origin.resolve_every))
            }
            EndpointAddress::Unix(path) => Target::Unix(path.as_path().into()),
        };
        Self {
            label: address.label().into(),
            target,
            tls: tls.clone(),
            pool: Pool::new(origin.keep_alive, origin.connections_max),
            limits: HeadLimits::of(origin),
            connect_timeout: origin.timeouts.connect,
            next_address: AtomicUsize::new(0),
        }
    }

    /// Returns an idle connection, or a new one.
    pub(super) async fn connection(
        self: &Arc<Self>,
        repeatable: Repeatable,
    ) -> Result<PooledConnection, ConnectError> {
        self.refresh_names();
        let idle_max = match repeatable {
            Repeatable::Yes => Duration::MAX,
            Repeatable::No => UNREPEATABLE_KEEP_ALIVE_MAX,
        };
        match self.pool.take(idle_max) {
            Some(connection) => Ok(connection),
            None => self.connect().await,
        }
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<PooledConnection, ConnectError> {
        let generation = self.pool.generation();
        let open = self.pool.make_room();
        let stream = OriginStream::new(self.open_transport().await?);
        let connection = Connection::begin(stream, self.limits, open).await;
        let connection = connection.map_err(|error| {
            ConnectError::Io(self.label.to_string(), std::io::Error::other(error))
        })?;
        Ok(self.pool.wrap(connection, generation))
    }

    async fn open_transport(&self) -> Result<Transport, ConnectError> {
        let late = || ConnectError::Timeout(self.label.to_string(), self.connect_timeout);
        let refused = |error| ConnectError::Io(self.label.to_string(), error);
        let names = match &self.target {
            Target::Unix(path) => {
                let due = Instant::now() + self.connect_timeout;
                let stream = timeout_at(due, UnixStream::connect(path)).await;
                return stream.map_err(|_| late())?.map(Transport::Unix).map_err(refused);
            }
            Target::Tcp(names) => names,
        };
        let addresses = names.addresses().await?;
        let due = Instant::now() + self.connect_timeout;
        let stream = self.connect_to_any(&addresses, due).await?;
        let Some(tls) = &self.tls else { return Ok(Transport::Tcp(stream)) };
        let handshake = timeout_at(due, tls.client.connect(tls.name.clone(), stream)).await;
        match handshake.map_err(|_| late())? {
            Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
            Err(error) => Err(match TlsFailure::of(&error) {
                Some(failure) => ConnectError::Tls(self.label.to_string(), failure, error),
                None => refused(error),
            }),
        }
    }

    /// Tries the addresses in turn. Each has an equal part of the time that is left.
    async fn connect_to_any(
        &self,
        addresses: &[SocketAddr],
        due: Instant,
    ) -> Result<TcpStream, ConnectError> {
        let first = self.next_address.fetch_add(1, Ordering::Relaxed);
        let mut last = None;
        for tried in 0..addresses.len() {
            let address = addresses[first.wrapping_add(tried) % addresses.len()];
            let left = due.saturating_duration_since(Instant::now());
            let rest = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + left / rest, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Without it, a small request may wait for an acknowledgement.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = Some(error),
                Err(_) => {}
            }
        }
        Err(match last {
            Some(error) => ConnectError::Io(self.label.to_string(), error),
            None => ConnectError::Timeout(self.label.to_string(), self.connect_timeout),
        })
    }

    /// Starts a lookup of the name if the known addresses are old. If they change, older
    /// connections are not used again.
    fn refresh_names(self: &Arc<Self>) {
        let Target::Tcp(names) = &self.target else { return };
        if !names.is_due() {
            return;
        }
        let endpoint = self.clone();
        tokio::spawn(async move {
            let Target::Tcp(names) = &endpoint.target else { return };
            if names.refresh().await == Change::Changed {
                endpoint.pool.retire_all();
            }
        });
    }
}

//! One server of an origin: its addresses, and the connections to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::EndpointState;
use forebay_tls::client::TlsFailure;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::accept::HeadLimits;
use super::connection::Connection;
use super::fault::ConnectError;
use super::names::{Change, Names};
use super::pool::{Pool, PooledConnection};
use super::stream::{OriginStream, Transport};
use crate::endpoint_status::EndpointStatus;
use crate::settings::{EndpointAddress, EndpointSettings, EndpointTls, OriginSettings};

/// Options of connections that the endpoints of an origin share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectOptions {
    keep_alive: Duration,
    connections_max: usize,
    limits: HeadLimits,
    connect_timeout: Duration,
    resolve_every: Duration,
}

impl ConnectOptions {
    pub(super) const fn of(origin: &OriginSettings) -> Self {
        Self {
            keep_alive: origin.keep_alive,
            connections_max: origin.connections_max,
            limits: HeadLimits::of(origin),
            connect_timeout: origin.timeouts.connect,
            resolve_every: origin.resolve_every,
        }
    }
}

/// Server of an origin.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Host and port, or path of the socket, for metrics and logs.
    pub(super) label: Box<str>,
    pub(super) address: EndpointAddress,
    target: Target,
    tls: Option<EndpointTls>,
    pool: Arc<Pool>,
    options: ConnectOptions,
    /// Number of requests whose response has not been received completely.
    in_flight: AtomicUsize,
    pub(super) counts: EndpointCounts,
    /// Number of the address with which the next connection begins.
    next_address: AtomicUsize,
}

/// Numbers of events of an endpoint since it was configured.
#[derive(Debug, Default)]
pub(super) struct EndpointCounts {
    /// Requests that worked.
    pub(super) worked: AtomicU64,
    /// Requests that failed.
    pub(super) failed: AtomicU64,
    /// Ejections after failed requests.
    pub(super) ejected: AtomicU64,
    /// Changes to unhealthy after failed checks.
    pub(super) unhealthy: AtomicU64,
    pub(super) checks_passed: AtomicU64,
    pub(super) checks_failed: AtomicU64,
}

/// Count of a request to an endpoint, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Endpoint>);

impl InFlight {
    pub(super) fn count(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(endpoint.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
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
    pub(super) fn new(settings: &EndpointSettings, options: ConnectOptions) -> Self {
        let EndpointSettings { address, tls, weight: _ } = settings;
        let port = if tls.is_some() { 443 } else { 80 };
        let target = match address {
            EndpointAddress::Tcp(authority) => {
                Target::Tcp(Names::new(authority, port, options.resolve_every))
            }
            EndpointAddress::Unix(path) => Target::Unix(path.as_path().into()),
        };
        Self {
            label: address.label().into(),
            address: address.clone(),
            target,
            tls: tls.clone(),
            pool: Pool::new(options.keep_alive, options.connections_max),
            options,
            in_flight: AtomicUsize::new(0),
            counts: EndpointCounts::default(),
            next_address: AtomicUsize::new(0),
        }
    }

    /// Returns `true` if the endpoint has these settings, apart from its weight.
    pub(super) fn has(&self, settings: &EndpointSettings, options: ConnectOptions) -> bool {
        self.address == settings.address && self.tls == settings.tls && self.options == options
    }

    /// Returns the status of the endpoint.
    pub(super) fn status(&self, state: Option<EndpointState>) -> EndpointStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        EndpointStatus {
            endpoint: self.label.clone(),
            state,
            requests: [("ok", load(&counts.worked)), ("failed", load(&counts.failed))],
            ejections: [("requests", load(&counts.ejected)), ("checks", load(&counts.unhealthy))],
            checks: [
                ("passed", load(&counts.checks_passed)),
                ("failed", load(&counts.checks_failed)),
            ],
        }
    }

    /// Returns the number of requests that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
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
        let connection = Connection::begin(stream, self.options.limits, open).await;
        let connection = connection.map_err(|error| {
            ConnectError::Io(self.label.to_string(), std::io::Error::other(error))
        })?;
        Ok(self.pool.wrap(connection, generation))
    }

    async fn open_transport(&self) -> Result<Transport, ConnectError> {
        let late = || ConnectError::Timeout(self.label.to_string(), self.options.connect_timeout);
        let refused = |error| ConnectError::Io(self.label.to_string(), error);
        let names = match &self.target {
            Target::Unix(path) => {
                let due = Instant::now() + self.options.connect_timeout;
                let stream = timeout_at(due, UnixStream::connect(path)).await;
                return stream.map_err(|_| late())?.map(Transport::Unix).map_err(refused);
            }
            Target::Tcp(names) => names,
        };
        let addresses = names.addresses().await?;
        let due = Instant::now() + self.options.connect_timeout;
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
            None => ConnectError::Timeout(self.label.to_string(), self.options.connect_timeout),
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

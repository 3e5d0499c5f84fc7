//! One server of an origin: its addresses, and the connections to it.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::EndpointState;
use forebay_semantics::Scheme;
use forebay_tls::client::TlsFailure;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::accept::HeadLimits;
use super::connection::Connection;
use super::fault::{ConnectError, ConnectResult};
use super::http2::{Found, Http2List, Http2Pool, Opened, SharedConnection, StreamLease};
use super::link::Link;
use super::names::{Change, Names};
use super::offer::Offer;
use super::pool::{Pool, PooledConnection};
use super::stream::{OriginStream, Transport};
use crate::endpoint_status::{CONNECT_RESULTS, EndpointStatus};
use crate::settings::{
    EndpointAddress, EndpointSettings, EndpointTls, OriginProtocols, OriginSettings,
};

/// Error text for a server without HTTP/2, where nothing else is allowed.
const NO_HTTP2: &str = "the server does not agree on HTTP/2 by ALPN, and `protocols` of the site \
                        has no \"http/1.1\"";

/// Error text for a request that needs HTTP/1.1, where only HTTP/2 is allowed.
const NO_HTTP1: &str = "the request asks for another protocol (Upgrade), which needs HTTP/1.1, and \
                        `protocols` of the site has no \"http/1.1\"";

/// Options of connections that the endpoints of an origin share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectOptions {
    keep_alive: Duration,
    connections_max: usize,
    limits: HeadLimits,
    connect_timeout: Duration,
    resolve_every: Duration,
    protocols: OriginProtocols,
}

impl ConnectOptions {
    pub(super) const fn of(origin: &OriginSettings) -> Self {
        Self {
            keep_alive: origin.keep_alive,
            connections_max: origin.connections_max,
            limits: HeadLimits::of(origin),
            connect_timeout: origin.timeouts.connect,
            resolve_every: origin.resolve_every,
            protocols: origin.protocols,
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
    http2: Http2Pool,
    /// Set if the last connection that was opened speaks HTTP/1.1.
    speaks_http1: AtomicBool,
    options: ConnectOptions,
    /// Number of requests whose response has not been received completely.
    in_flight: AtomicUsize,
    pub(super) counts: EndpointCounts,
    /// Number of the address with which the next connection begins.
    next_address: AtomicUsize,
}

/// Future of a new connection; absent if it speaks HTTP/1.1 and is not of the pool.
type Opening<'a> = Pin<
    Box<dyn Future<Output = Result<Opened<Option<PooledConnection>>, ConnectError>> + Send + 'a>,
>;

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
    /// Attempts to connect, by [`ConnectResult`].
    connects: [AtomicU64; CONNECT_RESULTS],
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
pub(super) enum RequestKind {
    /// The request may be sent again (RFC 9110 section 9.2.1).
    Repeatable,
    /// The request may have taken effect when its connection closes (RFC 9112 section 9.3.1).
    Unrepeatable,
    /// The request asks for another protocol, which only HTTP/1.1 can switch to. It must not be
    /// repeated.
    Switch,
}

impl RequestKind {
    /// Returns the maximum idle time of its connection.
    const fn idle_max(self) -> Duration {
        match self {
            Self::Repeatable => Duration::MAX,
            Self::Unrepeatable | Self::Switch => UNREPEATABLE_KEEP_ALIVE_MAX,
        }
    }
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
            http2: Http2Pool::new(),
            speaks_http1: AtomicBool::new(false),
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
        let connect = |index: usize| (ConnectResult::NAMES[index], load(&counts.connects[index]));
        let resolves = match &self.target {
            Target::Tcp(names) => {
                [("ok", &names.counts.resolved), ("failed", &names.counts.failed)]
                    .map(|(result, counter)| (result, load(counter)))
            }
            Target::Unix(_) => [("ok", 0), ("failed", 0)],
        };
        EndpointStatus {
            endpoint: self.label.clone(),
            state,
            requests: [("ok", load(&counts.worked)), ("failed", load(&counts.failed))],
            ejections: [("requests", load(&counts.ejected)), ("checks", load(&counts.unhealthy))],
            checks: [
                ("passed", load(&counts.checks_passed)),
                ("failed", load(&counts.checks_failed)),
            ],
            connects: std::array::from_fn(connect),
            connections: self.pool.usage(),
            resolves,
        }
    }

    /// Returns the number of requests that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns a connection for a request at `now`: a place on a shared one, an idle one, or a new one.
    pub(super) async fn link(
        self: &Arc<Self>,
        kind: RequestKind,
        now: Instant,
    ) -> Result<Link, ConnectError> {
        self.refresh_names();
        let idle_max = kind.idle_max().min(self.options.keep_alive);
        let offer = self.offer(kind);
        if !offer.has_http2() {
            return match self.pool.take(idle_max, now) {
                Some(connection) => Ok(Link::Alone(connection)),
                None => self.connect(offer).await,
            };
        }
        let list = self.http2.list();
        loop {
            // Requests to a server that prefers HTTP/1.1 do not wait for each other.
            if self.speaks_http1.load(Ordering::Relaxed) {
                return match self.pool.take(idle_max, now) {
                    Some(connection) => Ok(Link::Alone(connection)),
                    None => self.connect(offer).await,
                };
            }
            let open = || async {
                match self.speaks_http1.load(Ordering::Relaxed) {
                    true => Ok(Opened::Other(None)),
                    false => self.open(offer, Some(list)).await,
                }
            };
            match list.find(idle_max, self.pool.generation(), open).await? {
                Found::Stream(stream) => return Ok(Link::Stream(stream)),
                Found::Other(Some(connection)) => return Ok(Link::Alone(connection)),
                Found::Other(None) => {}
            }
        }
    }

    /// Closes the idle connections. Those in use are not used again.
    pub(super) fn retire_idle(&self) {
        self.pool.retire_all();
    }

    /// Opens a connection that no other request uses.
    pub(super) async fn connect_alone(&self) -> Result<Link, ConnectError> {
        Ok(match self.open(self.offer(RequestKind::Repeatable), None).await? {
            Opened::Http2(connection) => Link::Stream(StreamLease::new(connection, None)),
            Opened::Other(connection) => Link::Alone(self.expect_http1(connection)?),
        })
    }

    /// Opens a connection for a request.
    async fn connect(&self, offer: Offer) -> Result<Link, ConnectError> {
        let list = self.http2.list();
        Ok(match self.open(offer, Some(list)).await? {
            Opened::Http2(connection) => Link::Stream(list.add(connection)),
            Opened::Other(connection) => Link::Alone(self.expect_http1(connection)?),
        })
    }

    fn expect_http1(
        &self,
        connection: Option<PooledConnection>,
    ) -> Result<PooledConnection, ConnectError> {
        connection.ok_or_else(|| ConnectError::Protocol(self.label.to_string(), NO_HTTP1))
    }

    /// Returns the versions of HTTP that a connection for a request may have.
    fn offer(&self, kind: RequestKind) -> Offer {
        let offer = Offer::of(self.options.protocols, self.tls.is_some());
        if kind == RequestKind::Switch { offer.without_http2() } else { offer }
    }

    /// Opens a connection, with the version of HTTP that the server chooses. `list` is where an
    /// HTTP/2 connection will be.
    ///
    /// The future is boxed, because otherwise each request would reserve space for a handshake.
    fn open<'a>(&'a self, offer: Offer, list: Option<&'a Arc<Http2List>>) -> Opening<'a> {
        Box::pin(async move {
            let opened = self.open_connection(offer, list).await;
            let result = ConnectResult::of(opened.as_ref().err());
            self.counts.connects[result as usize].fetch_add(1, Ordering::Relaxed);
            opened
        })
    }

    async fn open_connection(
        &self,
        offer: Offer,
        list: Option<&Arc<Http2List>>,
    ) -> Result<Opened<Option<PooledConnection>>, ConnectError> {
        if offer == Offer::Nothing {
            return Err(ConnectError::Protocol(self.label.to_string(), NO_HTTP1));
        }
        let generation = self.pool.generation();
        let open = self.pool.make_room();
        let transport = self.open_transport(offer).await?;
        let speaks_http2 = offer == Offer::PriorKnowledge || transport.has_agreed_on_http2();
        if offer == Offer::Http2 && !speaks_http2 {
            return Err(ConnectError::Protocol(self.label.to_string(), NO_HTTP2));
        }
        let (stream, limits) = (OriginStream::new(transport), self.options.limits);
        if !speaks_http2 {
            if offer.has_http2() {
                self.speaks_http1.store(true, Ordering::Relaxed);
            }
            let connection = Connection::new(stream, limits, open);
            return Ok(Opened::Other(Some(self.pool.wrap(connection, generation))));
        }
        self.speaks_http1.store(false, Ordering::Relaxed);
        let scheme = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let failed = |error| ConnectError::Io(self.label.to_string(), std::io::Error::other(error));
        let begun = SharedConnection::begin(stream, scheme, limits, generation, open).await;
        let (connection, driver) = begun.map_err(failed)?;
        driver.run(&connection, list, self.options.keep_alive);
        Ok(Opened::Http2(connection))
    }

    async fn open_transport(&self, offer: Offer) -> Result<Transport, ConnectError> {
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
        let handshake =
            timeout_at(due, tls.client.connect(tls.name.clone(), stream, offer.alpn())).await;
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
                endpoint.http2.retire_all();
            }
        });
    }
}

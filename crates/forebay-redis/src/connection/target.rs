//! Validated connection settings of an endpoint.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, RedisResult, TlsMode,
};
use tokio::time::timeout;

use crate::connection::CONNECT_MAX;
use crate::connection::link::{Link, SingleLink};
use crate::connection::read_connection::{self, ReadConnections, Stream};
use crate::connection::wakeups::Wakeups;
use crate::counts::Counters;
use crate::error::unexpected;
use crate::settings::{self, EndpointSettings, Servers, SettingsError, TlsSettings};

/// Timeout of a reply on the bus reader's connection: longer than its blocking reads.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of queued commands per connection. Beyond it callers wait, each within its
/// timeout.
const QUEUE_MAX: usize = 512;

/// Connection settings of an endpoint.
pub(crate) struct Target {
    /// Address for messages, without user and password.
    pub(crate) address: String,
    mode: ConnectMode,
    /// Timeout of reads.
    wait_max: Duration,
    counters: Arc<Counters>,
}

enum ConnectMode {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
    Sentinel(Box<Sentinels>),
}

/// Settings for asking Sentinels. They are asked for each connection, since the master may have
/// changed.
struct Sentinels {
    master: String,
    nodes: Vec<ConnectionInfo>,
    server: ConnectionInfo,
    tls: TlsSettings,
}

impl Target {
    pub(crate) fn new(
        endpoint: &EndpointSettings,
        counters: &Arc<Counters>,
    ) -> Result<Self, SettingsError> {
        if endpoint.read_timeout.is_zero() || endpoint.write_timeout.is_zero() {
            return Err(SettingsError::ZeroTimeout);
        }
        // Selects the crypto provider, as rustls requires if several are compiled in. An error
        // means that one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (address, mode) = match &endpoint.servers {
            Servers::Single(url) => ConnectMode::single(url, endpoint)?,
            Servers::Cluster(urls) => ConnectMode::cluster(urls, endpoint)?,
            Servers::Sentinel { master, nodes } => ConnectMode::sentinel(master, nodes, endpoint)?,
        };
        Ok(Self { address, mode, wait_max: endpoint.read_timeout, counters: counters.clone() })
    }

    /// Opens a connection, which is driven on the current runtime. Push messages go to `wakeups`.
    pub(crate) async fn open(&self, wakeups: Option<&Arc<Wakeups>>) -> RedisResult<Link> {
        let config = match wakeups.cloned() {
            None => connection(),
            Some(wakeups) => with_push_handler(move |info| wakeups.receive(&info)),
        };
        match &self.mode {
            ConnectMode::Cluster(client) => cluster(client, wakeups).await.map(Link::Cluster),
            _ => self.open_one(config).await,
        }
    }

    /// Opens a connection to a single server; push messages go to `handle`.
    pub(crate) async fn open_pushed(
        &self,
        handle: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<Link> {
        self.open_one(with_push_handler(handle)).await
    }

    async fn open_one(&self, config: AsyncConnectionConfig) -> RedisResult<Link> {
        match &self.mode {
            ConnectMode::Single(client) => self.connect(client, config).await,
            ConnectMode::Sentinel(sentinels) => {
                let client = sentinels.client()?.async_get_client().await?;
                self.connect(&client, config).await
            }
            ConnectMode::Cluster(_) => Err(unexpected()),
        }
    }

    /// Without TLS the socket is opened here, so that further connections can use the same address.
    async fn connect(&self, client: &Client, config: AsyncConnectionConfig) -> RedisResult<Link> {
        let info = client.get_connection_info();
        let connecting = timeout(CONNECT_MAX, Stream::connect(info.addr())).await;
        let Some(connected) = connecting.map_err(io::Error::from)? else {
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            return Ok(Link::Single(SingleLink { connection, read_connections: None }));
        };
        let (stream, peer) = connected?;
        let login = info.redis_settings().clone();
        let greeting = MultiplexedConnection::new_with_config(&login, stream, config);
        let greeted = timeout(CONNECT_MAX, greeting).await;
        let (connection, driver) = greeted.map_err(io::Error::from)??;
        let driver = tokio::spawn(driver).abort_handle();
        let (wait_max, counters) = (self.wait_max, self.counters.clone());
        let read_connections = ReadConnections::new(
            read_connection::ServerAddress { peer, login, wait_max, counters },
            driver,
        );
        Ok(Link::Single(SingleLink {
            connection,
            read_connections: Some(Arc::new(read_connections)),
        }))
    }

    /// Opens a connection for blocking reads, on which replies may take long.
    pub(crate) async fn open_reader(&self) -> RedisResult<Link> {
        let ConnectMode::Cluster(client) = &self.mode else { return self.open(None).await };
        let config = ClusterConfig::new().set_response_timeout(READER_TIMEOUT);
        client.get_async_connection_with_config(config).await.map(Link::Cluster)
    }

    /// Returns whether the endpoint is a Redis Cluster.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.mode, ConnectMode::Cluster(_))
    }

    /// Returns whether a reconnect may lead to another server.
    pub(crate) const fn may_find_another_server(&self) -> bool {
        matches!(self.mode, ConnectMode::Sentinel(_))
    }
}

/// Address for messages, and the connection mode.
type Resolved = (String, ConnectMode);

impl ConnectMode {
    fn single(url: &str, endpoint: &EndpointSettings) -> Result<Resolved, SettingsError> {
        let server = settings::servers(&[url.to_owned()], endpoint.login.as_ref())?.remove(0);
        let server = server.set_tcp_settings(tcp());
        let address = settings::address(&server);
        let client = match endpoint.tls.certificates() {
            None => Client::open(server),
            Some(certificates) => Client::build_with_tls(server, certificates),
        };
        let client = client.map_err(|error| tls_error(&address, &error))?;
        Ok((address, Self::Single(Box::new(client))))
    }

    fn cluster(urls: &[String], endpoint: &EndpointSettings) -> Result<Resolved, SettingsError> {
        let nodes = settings::servers(urls, endpoint.login.as_ref())?;
        let address = format!("the cluster of {}", addresses(&nodes));
        let mut client = ClusterClient::builder(nodes)
            .use_protocol(redis::ProtocolVersion::RESP3)
            .connection_timeout(CONNECT_MAX)
            // Timeouts are applied around each operation.
            .response_timeout(endpoint.read_timeout.max(endpoint.write_timeout) * 2)
            .overall_response_timeout(None)
            .tcp_settings(tcp())
            // A redirect is followed at most twice, since callers have little time.
            .retries(2)
            .min_retry_wait(5)
            .max_retry_wait(20);
        if let Some(certificates) = endpoint.tls.certificates() {
            client = client.certs(certificates);
        }
        let client = client.build().map_err(|error| tls_error(&address, &error))?;
        Ok((address, Self::Cluster(Box::new(client))))
    }

    fn sentinel(
        master: &str,
        urls: &[String],
        endpoint: &EndpointSettings,
    ) -> Result<Resolved, SettingsError> {
        let nodes = settings::servers(urls, None)?;
        let address = format!("the master `{master}` of {}", addresses(&nodes));
        let server = settings::servers(&urls[..1], endpoint.login.as_ref())?.remove(0);
        let (master, tls) = (master.to_owned(), endpoint.tls.clone());
        let sentinels = Sentinels { master, nodes, server, tls };
        sentinels.client().map_err(|error| tls_error(&address, &error))?;
        Ok((address, Self::Sentinel(Box::new(sentinels))))
    }
}

impl Sentinels {
    fn client(&self) -> RedisResult<SentinelClient> {
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.addr().clone()).collect();
        let is_tls = matches!(self.server.addr(), ConnectionAddr::TcpTls { .. });
        let kind = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(addresses, &self.master, kind)?
            .set_client_to_redis_protocol(redis::ProtocolVersion::RESP3)
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_redis_db(self.server.redis_settings().db());
        if let Some(user) = self.server.redis_settings().username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = self.server.redis_settings().password() {
            builder = builder.set_client_to_redis_password(password);
        }
        // The login is for the servers. Sentinels use the login of their own URLs.
        let own = self.nodes[0].redis_settings();
        if let Some(user) = own.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = own.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(certificates) = self.tls.certificates() {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates);
            }
        }
        builder.build()
    }
}

async fn cluster(
    client: &ClusterClient,
    wakeups: Option<&Arc<Wakeups>>,
) -> RedisResult<ClusterConnection> {
    let Some(wakeups) = wakeups.cloned() else { return client.get_async_connection().await };
    let config = ClusterConfig::new().set_push_sender(move |info: PushInfo| {
        wakeups.receive(&info);
        Ok::<(), ()>(())
    });
    client.get_async_connection_with_config(config).await
}

fn with_push_handler(handle: impl Fn(PushInfo) + Send + Sync + 'static) -> AsyncConnectionConfig {
    connection().set_push_sender(move |info: PushInfo| {
        handle(info);
        Ok::<(), ()>(())
    })
}

fn connection() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        // Timeouts are applied around each operation.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE_MAX)
}

fn tcp() -> TcpSettings {
    // Sends small commands without delay.
    TcpSettings::default().set_nodelay(true)
}

fn addresses(nodes: &[ConnectionInfo]) -> String {
    nodes.iter().map(settings::address).collect::<Vec<_>>().join(", ")
}

fn tls_error(address: &str, error: &redis::RedisError) -> SettingsError {
    SettingsError::Tls { address: address.to_owned(), why: error.to_string() }
}

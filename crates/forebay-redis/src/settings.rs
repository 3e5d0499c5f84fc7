//! Settings of a Redis tier: addresses of its servers, logins, TLS and timeouts; sharing of leases and
//! purges with other instances.

pub(crate) mod sharing;

use std::fmt;
use std::time::Duration;

use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::entry::envelope::Sealing;
use crate::entry::pack::Packing;
use crate::settings::sharing::SharingSettings;

/// Default timeout of a read: below what a person notices, above the response time of a healthy
/// server in the same building.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// Default timeout of a write. No request waits for a write.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

/// Default maximum of a body, in bytes. Reading a larger one would delay every read behind it on
/// the same connection.
const OBJECT_MAX: u64 = 1 << 20;

/// Settings of a Redis tier.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Preferred endpoint for reads and writes.
    pub nearest: EndpointSettings,
    /// Endpoints that are used, in this order, while the nearest one does not answer: another
    /// region, a replica.
    pub fallback: Vec<EndpointSettings>,
    /// Prefix of all names in Redis: 1 to 64 ASCII letters, digits, `-`, `_`, `.` or `:`. Tiers
    /// with the same namespace on one server share their entries; with `sharing`, also leases and
    /// purges.
    pub namespace: String,
    /// Size limit, compression and signature of stored values.
    pub sealing: Sealing,
    /// Settings for sharing leases and purges with other instances; `None` shares entries only.
    pub sharing: Option<SharingSettings>,
}

impl Settings {
    /// Returns settings with one endpoint, the namespace `forebay`, bodies of up to 1 MiB, zstd, no
    /// signatures and no shared leases or purges.
    #[must_use]
    pub fn new(nearest: EndpointSettings) -> Self {
        let sealing = Sealing { object_max: OBJECT_MAX, packing: Packing::default(), key: None };
        let namespace = "forebay".to_owned();
        Self { nearest, fallback: Vec::new(), namespace, sealing, sharing: None }
    }
}

/// Connection settings of one Redis endpoint: a server, a Cluster, or the master that Sentinels
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Addresses of the servers.
    pub servers: Servers,
    /// Login of this cache on the servers; overrides the login in the URL. Sentinels get the login
    /// of their first URL instead.
    pub login: Option<Login>,
    /// Certificates for `rediss://` URLs.
    pub tls: TlsSettings,
    /// Timeout of a read or a lease request, above zero. An endpoint that answers its health check
    /// later than this is not used.
    pub read_timeout: Duration,
    /// Timeout of a write, a removal or a purge, above zero.
    pub write_timeout: Duration,
}

impl EndpointSettings {
    /// Returns settings with the default timeouts, a read timeout of 50 ms and a write timeout of
    /// 100 ms; user, password and database are those of the URL.
    #[must_use]
    pub fn new(servers: Servers) -> Self {
        Self {
            servers,
            login: None,
            tls: TlsSettings::default(),
            read_timeout: READ_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
        }
    }

    /// Returns settings for the single server at this URL.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self::new(Servers::Single(url.into()))
    }
}

/// Redis servers of an endpoint, by URL: `redis://[user:password@]host[:port][/database]`,
/// `rediss://` for TLS, or `unix:///path/of/socket`.
#[derive(Clone, PartialEq, Eq)]
pub enum Servers {
    /// One server at this URL.
    Single(String),
    /// A Redis Cluster with nodes at these URLs; other nodes are discovered.
    Cluster(Vec<String>),
    /// The server that Sentinels name as the master.
    Sentinel {
        /// Name of the master in the Sentinels' configuration.
        master: String,
        /// URLs of the Sentinels. Database, TLS, user and password of the first URL apply to the
        /// master (unless `login` overrides user and password), and its login to all Sentinels.
        nodes: Vec<String>,
    },
}

/// Prints the kind only, since a URL can contain a password.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single(_) => "Single",
            Self::Cluster(_) => "Cluster",
            Self::Sentinel { .. } => "Sentinel",
        })
    }
}

/// User name and password for Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// User name; `None` keeps the user in the URL, or else is the default user.
    pub user: Option<String>,
    /// Password of the Redis user.
    pub password: String,
}

/// Prints the user name only, never the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// TLS certificates for connections to Redis, in PEM format.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Root certificates in PEM format, one of which has signed the server's certificate. `None`
    /// uses the public web authorities that are built in (webpki-roots), not those of the system.
    pub authority: Option<Vec<u8>>,
    /// Client certificate chain and its private key, in this order and in PEM format; `None` sends
    /// no certificate.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Prints which certificates are set, never the key.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { authority, client } = self;
        f.debug_struct("TlsSettings")
            .field("authority", &authority.is_some())
            .field("client", &client.is_some())
            .finish()
    }
}

impl TlsSettings {
    pub(crate) fn certificates(&self) -> Option<TlsCertificates> {
        if self.authority.is_none() && self.client.is_none() {
            return None;
        }
        let client = self.client.clone();
        let client_tls =
            client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        Some(TlsCertificates { client_tls, root_cert: self.authority.clone() })
    }
}

/// Reason why the settings of a Redis tier were rejected. Messages contain no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// An endpoint has no server URL.
    #[error("no URL of a Redis server is given")]
    NoServer,
    /// A server URL is invalid. The URL is not shown, since it may contain a password.
    #[error("URL number {number} of the Redis servers is invalid: {why}")]
    Url {
        /// Number of the URL in the list, from 1.
        number: usize,
        /// Cause of the failure.
        why: String,
    },
    /// This namespace is empty, too long, or contains a forbidden character.
    #[error(
        "Redis namespace `{0}` is invalid: expected 1 to 64 letters, digits, `-`, `_`, `.` or \
         `:`"
    )]
    Namespace(String),
    /// A certificate cannot be used, or TLS is not available for this address.
    #[error("TLS to the Redis server {address} cannot be set up: {why}")]
    Tls {
        /// Address of the server, without user and password.
        address: String,
        /// Cause of the failure.
        why: String,
    },
    /// The read timeout or the write timeout is zero.
    #[error("the read timeout and the write timeout of a Redis server must be greater than zero")]
    ZeroTimeout,
    /// `tracking` was requested for a Redis Cluster, which does not send invalidation messages for
    /// all nodes.
    #[error("tracking is not supported with a Redis Cluster: use a single server or Sentinels")]
    TrackedCluster,
    /// The connection thread could not be started.
    #[error("the Redis connection thread could not be started: {0}")]
    Thread(String),
}

/// Maximum length of a namespace, in bytes.
const NAMESPACE_MAX: usize = 64;

/// Checks that a Redis namespace has 1 to 64 ASCII letters, digits, `-`, `_`, `.` or `:`.
///
/// # Errors
/// [`SettingsError::Namespace`] if the namespace is invalid.
pub fn check_namespace(namespace: &str) -> Result<(), SettingsError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_sound = (1..=NAMESPACE_MAX).contains(&namespace.len());
    if is_sound && namespace.bytes().all(is_plain) {
        return Ok(());
    }
    Err(SettingsError::Namespace(namespace.escape_debug().to_string()))
}

/// Returns the address of the server at this URL for messages, without user and password.
///
/// # Errors
/// [`SettingsError::Url`] if the URL is invalid.
pub fn address_of(url: &str) -> Result<String, SettingsError> {
    server(url, 1, None).map(|info| address(&info))
}

/// Parses server URLs and applies the login to each.
pub(crate) fn servers(
    urls: &[String],
    login: Option<&Login>,
) -> Result<Vec<ConnectionInfo>, SettingsError> {
    if urls.is_empty() {
        return Err(SettingsError::NoServer);
    }
    let numbered = urls.iter().zip(1..);
    numbered.map(|(url, number)| server(url, number, login)).collect()
}

fn server(
    url: &str,
    number: usize,
    login: Option<&Login>,
) -> Result<ConnectionInfo, SettingsError> {
    let wrong = |error: redis::RedisError| {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        SettingsError::Url { number, why: format!("{}{detail}", error.category()) }
    };
    // The parser's error would quote parts of the URL, which may contain a password.
    let info = url.into_connection_info().map_err(|error| {
        if redis::parse_redis_url(url).is_none() {
            let why = "expected a URL that begins with redis://, rediss:// or unix://".to_owned();
            return SettingsError::Url { number, why };
        }
        wrong(error)
    })?;
    let redis = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    let redis = redis.set_lib_name("forebay", env!("CARGO_PKG_VERSION"));
    let Some(Login { user, password }) = login else { return Ok(info.set_redis_settings(redis)) };
    let redis = redis.set_password(password);
    let redis = match user {
        Some(user) => redis.set_username(user),
        None => redis,
    };
    Ok(info.set_redis_settings(redis))
}

/// Returns the server's address for messages, without user and password.
pub(crate) fn address(info: &ConnectionInfo) -> String {
    match info.addr() {
        ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
        tls @ ConnectionAddr::TcpTls { .. } => format!("rediss://{tls}"),
        plain => format!("redis://{plain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_shows_no_secret() {
        let urls = [
            "redis://me:hidden@host:7/3",
            "rediss://:hidden@host",
            "unix:///run/r.sock?pass=hidden",
        ];
        let urls = urls.map(str::to_owned);
        let shown: Vec<_> = servers(&urls, None).unwrap().iter().map(address).collect();
        assert_eq!(shown, ["redis://host:7", "rediss://host:6379", "unix:///run/r.sock"]);
        let endpoint = EndpointSettings {
            login: Some(Login { user: None, password: "hidden".into() }),
            tls: TlsSettings { authority: None, client: Some((vec![], b"hidden".to_vec())) },
            ..EndpointSettings::at(&*urls[0])
        };
        assert!(!format!("{endpoint:?}").contains("hidden"));
    }

    #[test]
    fn invalid_url_error_does_not_contain_the_url() {
        for url in ["http://hidden@host", "", "redis://", "redis://:hidden@host/x", "hidden"] {
            let error = servers(&["redis://ok".to_owned(), url.to_owned()], None).unwrap_err();
            let said = error.to_string();
            assert!(said.starts_with("URL number 2"), "{said}");
            assert!(!said.contains("hidden"), "{said}");
        }
        assert_eq!(servers(&[], None).unwrap_err(), SettingsError::NoServer);
    }

    #[test]
    fn login_overrides_the_url() {
        let login = Login { user: Some("cache".into()), password: "new".into() };
        let info = &servers(&["redis://me:old@host".to_owned()], Some(&login)).unwrap()[0];
        assert_eq!(info.redis_settings().username(), Some("cache"));
        assert_eq!(info.redis_settings().password(), Some("new"));
    }

    #[test]
    fn a_namespace_cannot_break_names_apart() {
        for sound in ["forebay", "eu:shop-1", "a.b_c"] {
            assert_eq!(check_namespace(sound), Ok(()));
        }
        for wrong in ["", "a{b", "a b", "é", &"x".repeat(65)] {
            assert!(check_namespace(wrong).is_err(), "{wrong}");
        }
    }
}

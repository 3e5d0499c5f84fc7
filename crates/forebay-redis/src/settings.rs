//! What a tier is told: where its servers are, and how to speak to them.

use std::fmt;
use std::time::Duration;

use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::envelope::Sealing;
use crate::pack::Packing;
use crate::sharing::SharingSettings;

/// What a reading may take by default: below what a person notices, above what a healthy server
/// in the same building needs.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// What a writing may take by default. Nobody waits for it.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

/// Bodies above this are not sent by default: reading one would hold up all that is read behind it
/// on the same connection.
const OBJECT_MAX: u64 = 1 << 20;

/// What a tier is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where entries are read and written.
    pub nearest: EndpointSettings,
    /// Where they are while the nearest does not answer, in this order: another region, a replica.
    pub fallback: Vec<EndpointSettings>,
    /// What all names begin with. Whoever shares a server shares nothing else.
    pub namespace: String,
    /// What is stored, and how.
    pub sealing: Sealing,
    /// How loads and purges are shared with other instances, if they are.
    pub sharing: Option<SharingSettings>,
}

impl Settings {
    /// One endpoint, the namespace `forebay`, bodies of up to 1 MiB, zstd, no signatures; nothing
    /// but entries is shared.
    #[must_use]
    pub fn new(nearest: EndpointSettings) -> Self {
        let sealing = Sealing { object_max: OBJECT_MAX, packing: Packing::default(), key: None };
        let namespace = "forebay".to_owned();
        Self { nearest, fallback: Vec::new(), namespace, sealing, sharing: None }
    }
}

/// One server, or several that act as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Where it is.
    pub servers: Servers,
    /// Who we are; takes the place of what the URL says.
    pub login: Option<Login>,
    /// What is behind `rediss://`.
    pub tls: TlsSettings,
    /// What a reading may take. Also how fast the server has to answer to be used at all.
    pub read_timeout: Duration,
    /// What a writing or a removal may take.
    pub write_timeout: Duration,
}

impl EndpointSettings {
    /// Servers with the usual times, and what the URL says of users and databases.
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

    /// One server by its URL.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self::new(Servers::Single(url.into()))
    }
}

/// How servers are found. URLs are `redis://[user:password@]host[:port][/database]`, `rediss://`
/// for TLS, or `unix:///path/of/socket`.
#[derive(Clone, PartialEq, Eq)]
pub enum Servers {
    /// One server.
    Single(String),
    /// A Cluster, by some of its nodes.
    Cluster(Vec<String>),
    /// Whichever server the Sentinels call the master.
    Sentinel {
        /// What they call it.
        master: String,
        /// The Sentinels.
        nodes: Vec<String>,
    },
}

/// URLs can hold passwords.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single(_) => "Single",
            Self::Cluster(_) => "Cluster",
            Self::Sentinel { .. } => "Sentinel",
        })
    }
}

/// A user of Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Its name; none for the default user.
    pub user: Option<String>,
    /// Its password.
    pub password: String,
}

/// Never shows the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Certificates, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Who may vouch for the server, in the place of the authorities that browsers bus_silence_max.
    pub authority: Option<Vec<u8>>,
    /// Our own certificate with its chain, and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Never shows the key.
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

/// What is wrong with settings, in one sentence without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no server.
    #[error("no server is named")]
    NoServer,
    /// A URL that is none. It is not shown, since it may hold a password.
    #[error("the URL of server {number} cannot be used: {why}")]
    Url {
        /// Which of the URLs, from 1.
        number: usize,
        /// What is wrong.
        why: String,
    },
    /// A namespace that would break names apart.
    #[error("a namespace is 1 to 64 letters, digits, `-`, `_`, `.` or `:`, and `{0}` is not")]
    Namespace(String),
    /// Certificates that cannot be used, or TLS where there is none.
    #[error("TLS of {address}: {why}")]
    Tls {
        /// The server.
        address: String,
        /// What is wrong.
        why: String,
    },
    /// A time that is none.
    #[error("a timeout of zero would fail every operation")]
    ZeroTimeout,
    /// Of a Cluster, what other programs write cannot be heard.
    #[error("tracking needs a single server, or Sentinels: a Cluster does not tell what changes")]
    TrackedCluster,
    /// The thread for connections could not be started.
    #[error("the thread for connections to Redis could not be started: {0}")]
    Thread(String),
}

/// Longer ones would be all there is to see of a name.
const NAMESPACE_MAX: usize = 64;

/// Whether this can be what all names begin with.
///
/// # Errors
/// [`SettingsError::Namespace`] if it cannot.
pub fn check_namespace(namespace: &str) -> Result<(), SettingsError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_sound = (1..=NAMESPACE_MAX).contains(&namespace.len());
    if is_sound && namespace.bytes().all(is_plain) {
        return Ok(());
    }
    Err(SettingsError::Namespace(namespace.escape_debug().to_string()))
}

/// What the server behind a URL is called in messages: never with a user or a password.
///
/// # Errors
/// [`SettingsError::Url`] if that is no URL of a server.
pub fn address_of(url: &str) -> Result<String, SettingsError> {
    server(url, 1, None).map(|info| address(&info))
}

/// The servers behind URLs, with this login.
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
    // The parser would quote the URL's parts, and so a password that stands at the wrong place.
    let info = url.into_connection_info().map_err(|error| {
        if redis::parse_redis_url(url).is_none() {
            let why = "it begins with none of redis://, rediss:// and unix://".to_owned();
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

/// What a server is called in messages: never with a user or a password.
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
    fn what_is_wrong_is_said_without_the_url() {
        for url in ["http://hidden@host", "", "redis://", "redis://:hidden@host/x", "hidden"] {
            let error = servers(&["redis://ok".to_owned(), url.to_owned()], None).unwrap_err();
            let said = error.to_string();
            assert!(said.starts_with("the URL of server 2"), "{said}");
            assert!(!said.contains("hidden"), "{said}");
        }
        assert_eq!(servers(&[], None).unwrap_err(), SettingsError::NoServer);
    }

    #[test]
    fn a_login_takes_the_place_of_the_urls() {
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

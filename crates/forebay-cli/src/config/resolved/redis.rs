//! Resolved configuration of a shared Redis tier: servers, credentials, timeouts.

use super::default_from;
use crate::config::bounded_file::read_bounded;
use crate::config::file::{File, RedisFile, Section};
use crate::config::options::{self, Field};
use crate::config::provenance::Provenance;
use crate::config::redis_url::RedisUrl;
use crate::config::table::Table;
use crate::config::typed::Typed;
use forebay_core::WhenBlind;
use forebay_redis::{EndpointSettings, Login, Packing, Servers, TlsSettings};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size in bytes of a file with a password, certificate or key.
const SECRET_BYTES_MAX: u64 = 256 << 10;
/// Minimum length of the HMAC key in bytes; a shorter one could be guessed.
const HMAC_KEY_MIN: usize = 16;
/// Maximum number of fallback servers; each has a connection that is monitored all the time.
const FALLBACKS_MAX: usize = 8;

/// Shared tier. Its settings are valid; its servers may be unreachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedRedis {
    /// Servers that entries are read from and written to.
    pub(crate) nearest: EndpointSettings,
    /// Servers that are used while those before them do not answer, in this order.
    pub(crate) fallback: Vec<EndpointSettings>,
    /// Prefix of all keys.
    pub(crate) namespace: String,
    /// Maximum size of a body that is written, in bytes.
    pub(crate) object_max: u64,
    /// Compression of values.
    pub(crate) packing: Packing,
    /// Secret that values are signed with.
    pub(crate) hmac_key: Option<Secret>,
    /// Policy while the invalidation bus is disconnected.
    pub(crate) when_blind: WhenBlind,
    /// True if changes of keys by other programs are tracked.
    pub(crate) tracking: bool,
    /// Addresses of all servers without credentials, the nearest first.
    pub(crate) shown: Vec<String>,
}

/// Secret whose `Debug` output hides the value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Replaces the servers of the file by the flag's.
pub(super) fn override_url(file: &mut File, url: Typed) {
    let redis = file.redis.get_or_insert_with(|| RedisFile::empty(Table::Redis.path(), url.place));
    redis.redis.remove(options::REDIS_CLUSTER.spec.name);
    redis.sentinel = None;
    redis.redis.put(options::REDIS_URL.spec.name, url);
}

/// Shared tier of all sites; `None` if there is none or it has errors, which are reported.
pub(super) fn redis(
    file: &File,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedRedis> {
    let Some(typed) = &file.redis else {
        provenance.derived("redis".to_owned(), "none");
        return None;
    };
    of_table(typed, folder, provenance)
}

/// Shared tier of one site; options that its table does not set are inherited from `[redis]`.
pub(super) fn of_site(
    own: Option<&RedisFile>,
    base: Option<&RedisFile>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedRedis> {
    let own = own?.clone();
    let name = options::REDIS_WHEN_BLIND.spec.name;
    if base.is_some() && own.redis.value(name).is_some() {
        let message = "applies to all sites, because they share the memory tier; set it in [redis]";
        provenance.refuse(&own.redis, name, message);
    }
    let typed = base.map_or_else(|| own.clone(), |base| own.clone().over(base));
    of_table(&typed, folder, provenance)
}

fn of_table(
    typed: &RedisFile,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedRedis> {
    let section = &typed.redis;
    let servers = servers(typed, provenance);
    let namespace = provenance.read(section, &options::REDIS_NAMESPACE);
    let read_timeout = provenance.read(section, &options::REDIS_READ_TIMEOUT);
    let write_timeout = provenance.read(section, &options::REDIS_WRITE_TIMEOUT);
    let object_max = provenance.read(section, &options::REDIS_OBJECT_MAX);
    let packing = packing(section, provenance);
    let when_blind = provenance.read(section, &options::REDIS_WHEN_BLIND);
    let tracking = provenance.read(section, &options::REDIS_TRACKING);
    let credentials = CredentialOptions::of_nearest(section);
    let hmac_key = hmac_key(&credentials, folder, provenance);
    let credentials = credentials.read(folder, provenance);
    if typed.fallback.len() > FALLBACKS_MAX {
        let message = format!("has more than {FALLBACKS_MAX} servers, the maximum");
        provenance.refuse(section, "fallback", message);
    }
    let fallback: Vec<_> = typed
        .fallback
        .iter()
        .map(|one| fallback(one, folder, read_timeout, write_timeout, provenance))
        .collect();
    let (servers, nearest_shown) = servers?;
    if tracking == Some(true) && matches!(servers, Servers::Cluster(_)) {
        let message = "is not supported with `cluster`; remove one of the two";
        provenance.refuse(section, options::REDIS_TRACKING.spec.name, message);
        return None;
    }
    let nearest = endpoint(servers, credentials, read_timeout?, write_timeout?);
    let (fallback, mut shown): (Vec<_>, Vec<_>) =
        fallback.into_iter().collect::<Option<Vec<_>>>()?.into_iter().unzip();
    shown.insert(0, nearest_shown);
    Some(ResolvedRedis {
        nearest,
        fallback,
        namespace: namespace?,
        object_max: object_max?,
        packing: packing?,
        hmac_key,
        when_blind: when_blind?,
        tracking: tracking?,
        shown,
    })
}

fn packing(section: &Section, provenance: &mut Provenance<'_>) -> Option<Packing> {
    let codec = provenance.read(section, &options::REDIS_COMPRESSION);
    let threshold = provenance.read(section, &options::REDIS_COMPRESSION_THRESHOLD);
    Some(Packing { codec: codec?, threshold: usize::try_from(threshold?).ok()? })
}

fn hmac_key(
    credentials: &CredentialOptions<'_>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Secret> {
    let field = &options::REDIS_HMAC_KEY_FILE;
    let secret = credentials.content(field, "none", folder, provenance)?;
    if secret.len() < HMAC_KEY_MIN {
        let message =
            format!("names a file of {} bytes; the minimum is {HMAC_KEY_MIN}", secret.len());
        provenance.refuse(credentials.section, field.spec.name, message);
        return None;
    }
    Some(Secret(secret))
}

/// Servers, of which exactly one kind must be typed: a URL, a cluster or Sentinels; and their
/// addresses as text.
fn servers(typed: &RedisFile, provenance: &mut Provenance<'_>) -> Option<(Servers, String)> {
    let section = &typed.redis;
    let url = optional(section, &options::REDIS_URL, "none", provenance);
    let cluster = optional(section, &options::REDIS_CLUSTER, "none", provenance);
    let sentinel = typed.sentinel.as_ref().map(|section| {
        let master = provenance.read(section, &options::SENTINEL_MASTER);
        (master, provenance.read(section, &options::SENTINEL_NODES))
    });
    let is_typed = |name| section.value(name).is_some();
    let (has_url, has_cluster) = (is_typed("url"), is_typed("cluster"));
    if has_cluster && has_url {
        provenance.refuse(
            section,
            "cluster",
            "cannot be used together with `url`; remove one of them",
        );
    }
    if let Some(sentinel) = typed.sentinel.as_ref().filter(|_| has_url || has_cluster) {
        let message = "cannot be used together with `url` or `cluster`; keep one of them";
        provenance.problems.report(sentinel.place, &sentinel.path, message);
    }
    if !has_url && !has_cluster && sentinel.is_none() {
        let message = "names no server; set `url`, `cluster` or `sentinel`";
        provenance.absent(section, &section.path, message);
    }
    if let Some((master, nodes)) = sentinel {
        let (master, nodes) = (master?, nodes?);
        let shown = format!("the master \"{master}\" of {}", joined(&nodes));
        return Some((Servers::Sentinel { master, nodes: urls(nodes) }, shown));
    }
    if let Some(nodes) = cluster {
        let shown = format!("the cluster of {}", joined(&nodes));
        return Some((Servers::Cluster(urls(nodes)), shown));
    }
    let url = url?;
    let shown = url.to_string();
    Some((Servers::Single(url.into_url()), shown))
}

fn fallback(
    section: &Section,
    folder: &Path,
    read: Option<Duration>,
    write: Option<Duration>,
    provenance: &mut Provenance<'_>,
) -> Option<(EndpointSettings, String)> {
    let url = provenance.read(section, &options::FALLBACK_URL);
    let read = default_from(read, section, &options::FALLBACK_READ_TIMEOUT, provenance);
    let write = default_from(write, section, &options::FALLBACK_WRITE_TIMEOUT, provenance);
    let credentials = CredentialOptions::of_fallback(section).read(folder, provenance);
    let url = url?;
    let shown = url.to_string();
    Some((endpoint(Servers::Single(url.into_url()), credentials, read?, write?), shown))
}

fn endpoint(
    servers: Servers,
    credentials: Credentials,
    read_timeout: Duration,
    write_timeout: Duration,
) -> EndpointSettings {
    let Credentials { login, tls } = credentials;
    EndpointSettings { login, tls, read_timeout, write_timeout, ..EndpointSettings::new(servers) }
}

/// Login and TLS settings of a server.
struct Credentials {
    login: Option<Login>,
    tls: TlsSettings,
}

/// Options that authenticate to a server: those of `[redis]`, or those of one fallback.
struct CredentialOptions<'a> {
    section: &'a Section,
    user: &'static Field<String>,
    password_file: &'static Field<PathBuf>,
    ca: &'static Field<PathBuf>,
    client_certificate: &'static Field<PathBuf>,
    client_key: &'static Field<PathBuf>,
}

impl<'a> CredentialOptions<'a> {
    fn of_nearest(section: &'a Section) -> Self {
        Self {
            section,
            user: &options::REDIS_USER,
            password_file: &options::REDIS_PASSWORD_FILE,
            ca: &options::REDIS_CA,
            client_certificate: &options::REDIS_CLIENT_CERTIFICATE,
            client_key: &options::REDIS_CLIENT_KEY,
        }
    }

    fn of_fallback(section: &'a Section) -> Self {
        Self {
            section,
            user: &options::FALLBACK_USER,
            password_file: &options::FALLBACK_PASSWORD_FILE,
            ca: &options::FALLBACK_CA,
            client_certificate: &options::FALLBACK_CLIENT_CERTIFICATE,
            client_key: &options::FALLBACK_CLIENT_KEY,
        }
    }

    fn read(&self, folder: &Path, provenance: &mut Provenance<'_>) -> Credentials {
        let login = self.login(folder, provenance);
        let public = "the public authorities";
        let authority = self.pem(self.ca, public, folder, "CERTIFICATE-----", provenance);
        let certificate =
            self.pem(self.client_certificate, "none", folder, "CERTIFICATE-----", provenance);
        let key = self.pem(self.client_key, "none", folder, "PRIVATE KEY-----", provenance);
        self.requires(self.client_certificate, self.client_key, provenance);
        self.requires(self.client_key, self.client_certificate, provenance);
        Credentials { login, tls: TlsSettings { authority, client: certificate.zip(key) } }
    }

    fn login(&self, folder: &Path, provenance: &mut Provenance<'_>) -> Option<Login> {
        let user = optional(self.section, self.user, "the URL's, or the default user", provenance);
        let content = self.content(self.password_file, "the URL's, if any", folder, provenance);
        // A user without a password has no effect.
        self.requires(self.user, self.password_file, provenance);
        let name = self.password_file.spec.name;
        let password = content.map(|bytes| String::from_utf8(bytes.trim_ascii().to_vec()))?;
        match password {
            Ok(password) if !password.is_empty() => Some(Login { user, password }),
            Ok(_) => {
                provenance.refuse(self.section, name, "names a file that is empty");
                None
            }
            Err(_) => {
                provenance.refuse(self.section, name, "names a file that is not UTF-8 text");
                None
            }
        }
    }

    /// Content of a PEM file that must contain a section of the kind `part`. Without this check, a
    /// wrong file would silently mean an empty list of authorities.
    fn pem(
        &self,
        field: &Field<PathBuf>,
        otherwise: &str,
        folder: &Path,
        part: &str,
        provenance: &mut Provenance<'_>,
    ) -> Option<Vec<u8>> {
        let content = self.content(field, otherwise, folder, provenance)?;
        if content.windows(part.len()).any(|here| here == part.as_bytes()) {
            return Some(content);
        }
        let message = format!("names a file without a section \"-----BEGIN {part}\"");
        provenance.refuse(self.section, field.spec.name, message);
        None
    }

    /// Content of the file that an option names.
    fn content(
        &self,
        field: &Field<PathBuf>,
        otherwise: &str,
        folder: &Path,
        provenance: &mut Provenance<'_>,
    ) -> Option<Vec<u8>> {
        let path = folder.join(optional(self.section, field, otherwise, provenance)?);
        let content = read_bounded(&path, SECRET_BYTES_MAX);
        let message = |error| format!("{} cannot be read: {error}", path.display());
        content
            .map_err(|error| provenance.refuse(self.section, field.spec.name, message(error)))
            .ok()
    }

    /// Reports an option that was typed without another one that it needs.
    fn requires<T, U>(&self, one: &Field<T>, other: &Field<U>, provenance: &mut Provenance<'_>) {
        let is_typed = |name| self.section.value(name).is_some();
        if is_typed(one.spec.name) && !is_typed(other.spec.name) {
            let message = format!("requires `{}` as well", other.spec.name);
            provenance.refuse(self.section, one.spec.name, message);
        }
    }
}

/// Value typed for an option without a default.
fn optional<T>(
    section: &Section,
    field: &Field<T>,
    otherwise: &str,
    provenance: &mut Provenance<'_>,
) -> Option<T> {
    if section.value(field.spec.name).is_none() {
        provenance.derived(section.path_of(field.spec.name), otherwise);
    }
    provenance.read(section, field)
}

fn urls(servers: Vec<RedisUrl>) -> Vec<String> {
    servers.into_iter().map(RedisUrl::into_url).collect()
}

fn joined(servers: &[RedisUrl]) -> String {
    servers.iter().map(RedisUrl::to_string).collect::<Vec<_>>().join(", ")
}

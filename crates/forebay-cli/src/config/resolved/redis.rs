//! The shared tier of a plan: which servers, and what it takes to be let in.

use super::{default_from, read_bounded};
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

/// Passwords, certificates and keys are far smaller; more is some other file.
const SECRET_BYTES_MAX: u64 = 256 << 10;
/// What is shorter can be found by trying.
const HMAC_KEY_MIN: usize = 16;
/// Each is a connection that is kept and watched all the time.
const FALLBACKS_MAX: usize = 8;

/// The shared tier. Its servers may be unreachable; its settings are sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedRedis {
    /// Where entries are read and written.
    pub(crate) nearest: EndpointSettings,
    /// Where they are while the nearest does not answer, in this order.
    pub(crate) fallback: Vec<EndpointSettings>,
    /// What all names begin with.
    pub(crate) namespace: String,
    /// Bodies up to this size are sent there, in bytes.
    pub(crate) object_max: u64,
    /// How what is sent is compressed.
    pub(crate) packing: Packing,
    /// What it is signed with.
    pub(crate) hmac_key: Option<Secret>,
    /// What is served while other caches are not heard.
    pub(crate) when_blind: WhenBlind,
    /// Whether what other programs write there is heard.
    pub(crate) tracking: bool,
    /// All servers, the nearest first, as they may be shown.
    pub(crate) shown: Vec<String>,
}

/// A secret that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Puts the flag's server in the place of the file's.
pub(super) fn override_url(file: &mut File, url: Typed) {
    let redis = file.redis.get_or_insert_with(|| RedisFile::empty(Table::Redis.path(), url.place));
    redis.redis.remove(options::REDIS_CLUSTER.spec.name);
    redis.sentinel = None;
    redis.redis.put(options::REDIS_URL.spec.name, url);
}

/// Nothing if no Redis is used; what is wrong has been reported then.
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

/// A site's own, if it has one; what its table leaves open is as in `[redis]`.
pub(super) fn of_site(
    own: Option<&RedisFile>,
    (base, folder): (Option<&RedisFile>, &Path),
    provenance: &mut Provenance<'_>,
) -> Option<ResolvedRedis> {
    let own = own?.clone();
    let name = options::REDIS_WHEN_BLIND.spec.name;
    if base.is_some() && own.redis.value(name).is_some() {
        let message = "holds for all sites, since they share memory; write it in [redis]";
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
    let entrance = Entrance::of_nearest(section);
    let hmac_key = hmac_key(&entrance, folder, provenance);
    let entrance = entrance.read(folder, provenance);
    if typed.fallback.len() > FALLBACKS_MAX {
        let message = format!("there are more than {FALLBACKS_MAX} fallbacks");
        provenance.refuse(section, "fallback", message);
    }
    let times = (read_timeout, write_timeout);
    let fallback: Vec<_> =
        typed.fallback.iter().map(|one| fallback(one, (folder, times), provenance)).collect();
    let (servers, nearest_shown) = servers?;
    if tracking == Some(true) && matches!(servers, Servers::Cluster(_)) {
        let message = "a Cluster does not tell what changes; leave one of the two out";
        provenance.refuse(section, options::REDIS_TRACKING.spec.name, message);
        return None;
    }
    let nearest = endpoint(servers, entrance, (read_timeout?, write_timeout?));
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
    entrance: &Entrance<'_>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<Secret> {
    let field = &options::REDIS_HMAC_KEY_FILE;
    let secret = entrance.content((field, "none"), folder, provenance)?;
    if secret.len() < HMAC_KEY_MIN {
        let message = format!("names a file of fewer than {HMAC_KEY_MIN} bytes");
        provenance.refuse(entrance.section, field.spec.name, message);
        return None;
    }
    Some(Secret(secret))
}

/// Exactly one of a server, a cluster and Sentinels; and how that is shown.
fn servers(typed: &RedisFile, provenance: &mut Provenance<'_>) -> Option<(Servers, String)> {
    let section = &typed.redis;
    let url = optional(section, (&options::REDIS_URL, "none"), provenance);
    let cluster = optional(section, (&options::REDIS_CLUSTER, "none"), provenance);
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
            "stands beside `url`; only one of the two can be used",
        );
    }
    if let Some(sentinel) = typed.sentinel.as_ref().filter(|_| has_url || has_cluster) {
        let message = "stands beside `url` or `cluster`; only one of them can be used";
        provenance.problems.report(sentinel.place, &sentinel.path, message);
    }
    if !has_url && !has_cluster && sentinel.is_none() {
        let message = "names no server; say `url`, `cluster` or `sentinel`";
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
    (folder, (read, write)): (&Path, (Option<Duration>, Option<Duration>)),
    provenance: &mut Provenance<'_>,
) -> Option<(EndpointSettings, String)> {
    let url = provenance.read(section, &options::FALLBACK_URL);
    let read = default_from(read, (section, &options::FALLBACK_READ_TIMEOUT), provenance);
    let write = default_from(write, (section, &options::FALLBACK_WRITE_TIMEOUT), provenance);
    let entrance = Entrance::of_fallback(section).read(folder, provenance);
    let url = url?;
    let shown = url.to_string();
    Some((endpoint(Servers::Single(url.into_url()), entrance, (read?, write?)), shown))
}

fn endpoint(
    servers: Servers,
    (login, tls): (Option<Login>, TlsSettings),
    (read_timeout, write_timeout): (Duration, Duration),
) -> EndpointSettings {
    EndpointSettings { login, tls, read_timeout, write_timeout, ..EndpointSettings::new(servers) }
}

/// The options by which a server lets us in; they are the same for each.
struct Entrance<'a> {
    section: &'a Section,
    user: &'static Field<String>,
    password_file: &'static Field<PathBuf>,
    ca: &'static Field<PathBuf>,
    client_certificate: &'static Field<PathBuf>,
    client_key: &'static Field<PathBuf>,
}

impl<'a> Entrance<'a> {
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

    fn read(&self, folder: &Path, provenance: &mut Provenance<'_>) -> (Option<Login>, TlsSettings) {
        let login = self.login(folder, provenance);
        let ca = (self.ca, "those that browsers trust");
        let authority = self.pem(ca, (folder, "CERTIFICATE-----"), provenance);
        let certificate = (self.client_certificate, "none");
        let certificate = self.pem(certificate, (folder, "CERTIFICATE-----"), provenance);
        let key = (self.client_key, "none");
        let key = self.pem(key, (folder, "PRIVATE KEY-----"), provenance);
        self.belong_together((self.client_certificate, self.client_key), provenance);
        self.belong_together((self.client_key, self.client_certificate), provenance);
        (login, TlsSettings { authority, client: certificate.zip(key) })
    }

    fn login(&self, folder: &Path, provenance: &mut Provenance<'_>) -> Option<Login> {
        let user =
            optional(self.section, (self.user, "the URL's, or the default user"), provenance);
        let content = self.content((self.password_file, "the URL's, if any"), folder, provenance);
        // Without a password a name would change nothing.
        self.belong_together((self.user, self.password_file), provenance);
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

    /// What is in a file that should hold such a part. Without one, nobody would be trusted, and
    /// nothing would say why.
    fn pem(
        &self,
        option: (&Field<PathBuf>, &str),
        (folder, part): (&Path, &str),
        provenance: &mut Provenance<'_>,
    ) -> Option<Vec<u8>> {
        let content = self.content(option, folder, provenance)?;
        if content.windows(part.len()).any(|here| here == part.as_bytes()) {
            return Some(content);
        }
        let message = format!("names a file without a part \"-----BEGIN {part}\"");
        provenance.refuse(self.section, option.0.spec.name, message);
        None
    }

    /// What is in the file that an option names.
    fn content(
        &self,
        (field, otherwise): (&Field<PathBuf>, &str),
        folder: &Path,
        provenance: &mut Provenance<'_>,
    ) -> Option<Vec<u8>> {
        let path = folder.join(optional(self.section, (field, otherwise), provenance)?);
        let content = read_bounded(&path, SECRET_BYTES_MAX);
        let message = |error| format!("{} cannot be read: {error}", path.display());
        content
            .map_err(|error| provenance.refuse(self.section, field.spec.name, message(error)))
            .ok()
    }

    /// Reports an option that was typed without the other one that it needs.
    fn belong_together<T, U>(
        &self,
        (one, other): (&Field<T>, &Field<U>),
        provenance: &mut Provenance<'_>,
    ) {
        let is_typed = |name| self.section.value(name).is_some();
        if is_typed(one.spec.name) && !is_typed(other.spec.name) {
            let message = format!("needs `{}` beside it", other.spec.name);
            provenance.refuse(self.section, one.spec.name, message);
        }
    }
}

/// What was typed for an option that has no value by itself.
fn optional<T>(
    section: &Section,
    (field, otherwise): (&Field<T>, &str),
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

//! Every option, declared once: table, name, type, default, bounds, description and reason.
//!
//! The file check, the resolved configuration and `docs/config.md` all use this table, so none of
//! them can know an option that the others do not.

use super::host::HostPattern;
use super::listen_address::ListenAddress;
use super::origin_url::OriginUrl;
use super::reader::{self, AccessLog, ByAddress, ListenerRole, Protocol, Reader, RequestRate};
use super::redis_url::RedisUrl;
use super::table::Table;
use forebay_core::WhenBlind;
use forebay_engine::TierErrors;
use forebay_redis::Codec;
use forebay_semantics::Networks;
use forebay_semantics::client_address::AddressField;
use forebay_tls::acme::ChallengeKind;
use forebay_tls::server::{ClientCertificates, MinVersion};
use forebay_tls::store::UnknownName;
use http::{HeaderValue, Method};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

/// Default of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    /// Fixed value, as it would be typed.
    Value(&'static str),
    /// Value derived from others; the sentence describes it.
    Derived(&'static str),
    /// No default: the option is required.
    Required,
}

/// Part of an option's declaration that does not depend on its type.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "kind, doc and reason are used only to render docs/config.md")
)]
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) table: Table,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) preset: Preset,
    /// Minimum and maximum, as they would be typed.
    pub(crate) bounds: Option<(&'static str, &'static str)>,
    pub(crate) doc: &'static str,
    pub(crate) reason: &'static str,
}

impl Spec {
    /// Path without indexes, such as `site.fetch_timeout`.
    pub(crate) fn path(&self) -> String {
        match self.table.path() {
            "" => self.name.to_owned(),
            table => format!("{table}.{}", self.name),
        }
    }
}

/// Option with its type.
#[derive(Debug)]
pub(crate) struct Field<T: 'static> {
    pub(crate) spec: Spec,
    pub(crate) reader: Reader<T>,
}

/// Declares options: `NAME: Type = Table "name", reader, preset, (bounds)?; "doc", "reason"`.
macro_rules! options {
    ($(
        $name:ident: $type:ty = $table:ident $key:literal, $reader:expr, $preset:expr
        $(, $low:literal to $high:literal)?;
        $doc:literal, $reason:literal;
    )*) => {
        $(pub(crate) static $name: Field<$type> = Field {
            spec: Spec {
                table: Table::$table,
                name: $key,
                kind: $reader.kind,
                preset: $preset,
                bounds: options!(@bounds $($low $high)?),
                doc: $doc,
                reason: $reason,
            },
            reader: $reader,
        };)*

        /// Every option, in the order of `docs/config.md`.
        pub(crate) static ALL: &[&Spec] = &[$(&$name.spec),*];

        /// Calls `$visit` with every option, each with its own type.
        #[cfg(test)]
        macro_rules! for_each_option {
            ($visit:ident) => { $($visit(&super::$name);)* };
        }
    };
    (@bounds) => { None };
    (@bounds $low:literal $high:literal) => { Some(($low, $high)) };
}

use Preset::{Derived, Required, Value};

options! {
    LISTEN: Vec<SocketAddr> = Top "listen", reader::ADDRESSES, Value(r#"["127.0.0.1:8080"]"#);
        "Addresses that serve clients: one, or a list of up to 64. Port 0 takes a free port.",
        "A loopback address: no other host can connect until the operator allows it.";
    TRUSTED_PROXIES: Networks = Top "trusted_proxies", reader::NETWORKS, Value("[]");
        "Proxies that may name the client and its scheme: networks such as `10.0.0.0/8`, addresses, \
         `loopback`, `private` (RFC 1918 and RFC 4193) and `unix`.",
        "A client that is trusted by mistake could choose its address and scheme.";
    CLIENT_ADDRESS_FROM: AddressField =
        Top "client_address_from", reader::ADDRESS_FIELD, Value(r#""x-forwarded-for""#);
        "Field in which trusted proxies name the client: `x-forwarded-for`, `forwarded` (RFC 7239), or \
         a field with one address, such as `cf-connecting-ip`. Other such fields are ignored.",
        "The field that most proxies set.";
    CONNECTIONS_PER_ADDRESS_MAX: u64 =
        Top "connections_per_address_max", reader::COUNT, Value("0"), "0" to "1048576";
        "Maximum number of open connections from one address (IPv6: one /64): that of the peer, \
         or the source in its PROXY header; 0 means no limit. Further connections are closed. \
         Addresses in `trusted_proxies` are not limited.",
        "Many clients may share one address behind a NAT.";
    ADMIN: SocketAddr = Top "admin", reader::ADDRESS, Value(r#""127.0.0.1:8081""#);
        "Address of the admin listener: health, metrics, purges, dashboard.",
        "A loopback address, because any client of this listener may purge the cache.";
    ADMIN_TOKEN_FILE: PathBuf = Top "admin_token_file", reader::PATH, Derived("no token");
        "File with the bearer token of the admin listener; a relative path starts at the \
         configuration file. Required unless `admin` is a loopback address.",
        "On a loopback address only local users can connect. A separate file keeps the token out \
         of the configuration.";
    PROBE: Option<SocketAddr> = Top "probe", reader::OPTIONAL_ADDRESS, Value(r#""""#);
        "Address of the probe listener, which answers `/livez` and `/readyz` with one word and without \
         a token; empty means none.",
        "The admin listener answers both as well; a probe from another host needs a listener of its own.";
    SHUTDOWN_DELAY: Duration = Top "shutdown_delay", reader::DURATION, Value(r#""0s""#),
        r#""0s""# to r#""10m""#;
        "Time after SIGTERM during which `/readyz` answers 503 and connections are still accepted.",
        "Without a load balancer there is nothing to wait for. Behind one, set it above the time that \
         the load balancer needs to notice.";
    DRAIN_MAX: Duration = Top "drain_max", reader::DURATION, Value(r#""10s""#), r#""0s""# to r#""1h""#;
        "Maximum time for requests in progress and tunnels to end when the process stops; then \
         they are cut.",
        "Most responses end sooner, and service managers wait for at least 30 seconds.";
    THREADS: u64 = Top "threads", reader::COUNT, Value("0"), "0" to "1024";
        "Number of threads that serve requests; 0 means one per core.",
        "Requests never block a thread, so more threads than cores only add context switches.";
    LOG: Level = Top "log", reader::LEVEL, Value(r#""info""#);
        "Minimum severity of logged messages.",
        "Shows events that need an operator, without a line per request.";
    ACCESS_LOG: AccessLog = Top "access_log", reader::ACCESS_LOG, Value(r#""off""#);
        "Access log, on stdout unless `access.file` is set: one line per request in the common log format or as JSON, or off.",
        "A line per request costs more than a hit; the metrics count every request in any case.";

    LISTENER_ADDRESS: ListenAddress = Listener "address", reader::LISTEN_ADDRESS, Required;
        "IP address and port, or `unix:` and the path of a Unix socket (mode 0660; a socket file \
         without a listener is replaced), or `fd:` and the name of a socket that the service manager \
         passes.",
        "A listener without an address has no use.";
    LISTENER_PROXY_PROTOCOL: bool =
        Listener "proxy_protocol", reader::PROXY_PROTOCOL, Value(r#""off""#);
        "`required`: each connection begins with a PROXY protocol header (version 1 or 2) of one of \
         `trusted_proxies`; others are closed. `off`: none is read.",
        "A header from an untrusted peer would let it choose its address.";

    LISTENER_ROLE: ListenerRole = Listener "role", reader::LISTENER_ROLE, Value(r#""serve""#);
        "`serve` answers requests. `redirect` answers 308 to the https URL for hosts of a site, and 404 \
         for others. `admin` is a further admin listener, also with TLS or on a Unix socket. `probe` \
         is a further probe listener.",
        "Most listeners serve.";
    LISTENER_TLS: bool = Listener "tls", reader::TRUTH, Value("false");
        "Requires TLS, with the certificates of `[tls]`.",
        "Certificates have to be configured first.";
    LISTENER_PROTOCOLS: Vec<Protocol> = Listener "protocols", reader::PROTOCOLS,
        Derived("`[\"h2\", \"http/1.1\"]` with TLS, else `[\"http/1.1\", \"h2c\"]`");
        "Protocols: with TLS `h2` and `http/1.1`, in the order of preference; without TLS `http/1.1` and \
         `h2c`, which is HTTP/2 for connections that begin with its preface.",
        "Each client uses the newest protocol that it knows.";
    LISTENER_CLIENT_CERTIFICATES: ClientCertificates = Listener "client_certificates",
        reader::CLIENT_CERTIFICATES, Value(r#""off""#);
        "Client certificates, verified by `tls.client_ca`: `optional` or `required`. The origin gets a \
         verified one as `Client-Cert` (RFC 9440).",
        "Few clients have a certificate.";
    LISTENER_SITES: Vec<String> = Listener "sites", reader::SITE_IDS, Value("[]");
        "Ids of the sites that the listener serves; empty means all. Requests for other sites get 421.",
        "Every site is reachable everywhere.";

    TLS_LISTEN: Vec<SocketAddr> = Tls "listen", reader::ADDRESSES, Value("[]");
        "Addresses that serve clients with TLS: one, or a list. Short for `[[listener]]` with `tls = true`.",
        "The operator decides which addresses other hosts reach.";
    TLS_CERTIFICATE: PathBuf = Tls "certificate", reader::PATH, Derived("none");
        "PEM file with a certificate and its intermediate certificates; its DNS names select it, and it \
         is the first one. A relative path starts at the configuration file.",
        "`certificates` can name others.";
    TLS_KEY: PathBuf = Tls "key", reader::PATH, Derived("none");
        "PEM file with the private key of `certificate`, without a password.",
        "It belongs to `certificate`.";
    TLS_MIN_VERSION: MinVersion = Tls "min_version", reader::MIN_VERSION, Value(r#""1.2""#);
        "Lowest version of TLS: `1.2` or `1.3`.",
        "Older clients that still occur have 1.2, which is safe with the suites that are offered.";
    TLS_UNKNOWN_NAME: UnknownName = Tls "unknown_name", reader::UNKNOWN_NAME, Value(r#""first""#);
        "Answer to a client that asks for a name of no certificate, or for none: `first` gives the first \
         certificate, `refuse` ends the handshake.",
        "A client without server name, such as a health check, still gets an answer.";
    TLS_CLIENT_CA: PathBuf = Tls "client_ca", reader::PATH, Derived("none");
        "PEM file with the authorities of client certificates.",
        "Client certificates are off.";
    TLS_CLIENT_CRL: PathBuf = Tls "client_crl", reader::PATH, Derived("none");
        "PEM file with revocation lists of the authorities in `client_ca`.",
        "Many private authorities publish none.";
    TLS_WATCH: Duration = Tls "watch", reader::DURATION, Value(r#""10s""#), r#""0s""# to r#""1d""#;
        "Interval at which certificate files are checked for changes; `0s` means at a reload only.",
        "A renewed certificate is used soon, and the check costs two system calls per certificate.";
    TLS_HANDSHAKE_TIMEOUT: Duration = Tls "handshake_timeout", reader::DURATION, Value(r#""10s""#),
        r#""100ms""# to r#""1m""#;
        "Maximum time of a TLS handshake; after it the connection is closed.",
        "Above several round trips of a slow network, and short for a client that only holds a slot.";

    TLS_CERTIFICATES_CERTIFICATE: PathBuf = TlsCertificate "certificate", reader::PATH, Required;
        "PEM file with a certificate and its intermediate certificates.",
        "A table without a certificate has no use.";
    TLS_CERTIFICATES_KEY: PathBuf = TlsCertificate "key", reader::PATH, Required;
        "PEM file with the private key of `certificate`, without a password.",
        "A certificate cannot be served without its key.";

    ACCESS_FILE: PathBuf = Access "file", reader::PATH, Derived("standard output");
        "File of the access log; a relative path starts at the configuration file. SIGUSR1 and a reload \
         open it again.",
        "Service managers and container runtimes collect standard output.";

    ACME_AGREE_TO_TERMS: bool = TlsAcme "agree_to_terms", reader::TRUTH, Value("false");
        "Agrees to the terms of service of the certificate authority. It must be `true`.",
        "Only the operator can agree to a contract.";
    ACME_NAMES: Vec<String> = TlsAcme "names", reader::DNS_NAMES,
        Derived("every name in `hosts` of the sites, without patterns");
        "DNS names, each of which gets a certificate. Wildcards are not possible.",
        "Every host of a site needs a certificate.";
    ACME_CONTACT: Vec<String> = TlsAcme "contact", reader::CONTACTS, Value("[]");
        "URLs at which the authority may reach the operator, such as `mailto:ops@shop.example`; used \
         when the account is created.",
        "Let's Encrypt needs none.";
    ACME_DIRECTORY: String = TlsAcme "directory", reader::HTTPS_URL,
        Value(r#""https://acme-v02.api.letsencrypt.org/directory""#);
        "URL of the directory of the authority (RFC 8555).",
        "Let's Encrypt is free, and all browsers trust it.";
    ACME_CA: PathBuf = TlsAcme "ca", reader::PATH, Derived("the public authorities (webpki-roots)");
        "PEM file with the authorities that may sign the certificate of the directory itself.",
        "A public directory has a certificate of a public authority.";
    ACME_STORAGE: PathBuf = TlsAcme "storage", reader::PATH,
        Derived("`$STATE_DIRECTORY/acme`, else `~/.local/state/forebay/acme`");
        "Directory for accounts, keys, certificates and challenge answers, created if it is missing. \
         Instances that share it share them. A relative path starts at the configuration file.",
        "systemd names the directory for the state of a service.";
    ACME_CHALLENGES: Vec<ChallengeKind> = TlsAcme "challenges", reader::CHALLENGES,
        Value(r#"["tls-alpn-01", "http-01"]"#);
        "Proofs of control over a name, in the order in which they are tried: `tls-alpn-01` needs a \
         listener with TLS that is reached at port 443, `http-01` one without TLS at port 80.",
        "The first one needs no other port than the cache itself.";
    ACME_PROFILE: String = TlsAcme "profile", reader::WORD, Derived("the default of the authority");
        "Profile of the certificates, such as `shortlived`.",
        "The default of the authority suits most clients.";

    ACCOUNT_ID: String = TlsAcmeAccount "id", reader::WORD, Required;
        "Identifier of the key, from the operator of the authority.",
        "A key has an identifier.";
    ACCOUNT_HMAC_KEY_FILE: PathBuf = TlsAcmeAccount "hmac_key_file", reader::PATH, Required;
        "File with the key in base64url. A relative path starts at the configuration file.",
        "A separate file keeps the key out of the configuration.";

    MEMORY_SIZE: u64 = Memory "size", reader::MEMORY_SIZE, Value(r#""256MiB""#),
        r#""16KiB""# to r#""16TiB""#;
        "Maximum size of the memory tier in bytes: bodies, header fields, keys and bookkeeping, \
         stored or in flight. A percentage such as `60%` is a share of the memory limit of the \
         control group, or of the memory of the machine if that is smaller. Above 75 % a warning \
         is logged, above 95 % the start fails.",
        "Fits into small machines and holds about ten thousand pages.";
    MEMORY_OBJECT_MAX: u64 = Memory "object_max", reader::SIZE,
        Derived("`16MiB`, or `memory.size` if that is smaller"), r#""1B""# to r#""16TiB""#;
        "Largest body that is stored in memory, in bytes; at most `memory.size`.",
        "A larger body displaces hundreds of pages and gains little from memory.";
    MEMORY_IN_FLIGHT_MAX: u64 = Memory "in_flight_max", reader::SIZE,
        Derived("a quarter of `memory.size`"), r#""4KiB""# to r#""16TiB""#;
        "Part of `memory.size` for bodies in flight, in bytes. Above it, fetches wait until \
         other bodies have been sent, at most 5 seconds; then their clients get a stale response \
         where allowed, else 503.",
        "Grows with the memory tier and prevents slow clients from exhausting it.";

    REDIS_URL: RedisUrl = Redis "url", reader::REDIS_URL, Derived("none: no Redis is used");
        "URL of the server: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss://` for TLS, \
         or `unix:///PATH`. An alternative to `cluster` and `sentinel`.",
        "The cache works without a server.";
    REDIS_CLUSTER: Vec<RedisUrl> = Redis "cluster", reader::REDIS_URLS, Derived("none");
        "URLs of up to 64 nodes of a Redis Cluster; the other nodes are discovered.",
        "Most Redis servers are not clusters.";
    REDIS_NAMESPACE: String = Redis "namespace", reader::NAMESPACE, Value(r#""forebay""#);
        "Prefix of all keys in Redis. Caches with equal namespaces share entries.",
        "Caches that use one server usually share their entries.";
    REDIS_READ_TIMEOUT: Duration = Redis "read_timeout", reader::DURATION, Value(r#""50ms""#),
        r#""1ms""# to r#""10s""#;
        "Timeout of a read in Redis, after which the request goes to the origin. Also the maximum \
         response time for the server to count as healthy.",
        "Too short for a person to notice, and above the response time of a healthy server in the \
         same data centre.";
    REDIS_WRITE_TIMEOUT: Duration = Redis "write_timeout", reader::DURATION, Value(r#""100ms""#),
        r#""1ms""# to r#""10s""#;
        "Timeout of a write or removal in Redis. Clients do not wait for writes.",
        "Twice the read timeout, because a write takes two round trips.";
    REDIS_OBJECT_MAX: u64 = Redis "object_max", reader::SIZE, Value(r#""1MiB""#),
        r#""1B""# to r#""256MiB""#;
        "Largest body that is written to Redis, in bytes.",
        "A larger body delays other reads on the same connection.";
    REDIS_COMPRESSION: Codec = Redis "compression", reader::COMPRESSION, Value(r#""zstd""#);
        "Compression of values in Redis: `zstd` gives the smallest values, `lz4` is the fastest. \
         Values that do not shrink are stored uncompressed. Every instance can read all formats.",
        "Pages shrink to about a quarter, which saves more memory and network than the CPU costs.";
    REDIS_COMPRESSION_THRESHOLD: u64 =
        Redis "compression_threshold", reader::SIZE, Value(r#""1KiB""#), r#""1B""# to r#""256MiB""#;
        "Minimum size of a value to be compressed, in bytes.",
        "Small values hardly shrink.";
    REDIS_HMAC_KEY_FILE: PathBuf =
        Redis "hmac_key_file", reader::PATH, Derived("none: values are not signed");
        "File with a secret of at least 16 bytes, equal on all instances. Values are signed with \
         it; values with another signature or none are misses. A relative path starts at the \
         configuration file.",
        "Every client that can write to Redis is trusted unless the operator decides otherwise.";
    REDIS_WHEN_BLIND: WhenBlind =
        Redis "when_blind", reader::WHEN_BLIND, Value(r#""available""#);
        "Policy while purges by other instances cannot be received, or may have been missed: \
         `available` serves entries from memory and disk for another 30 seconds, `strict` serves \
         only entries that Redis confirms. One `strict` in `[redis]` or `[site.redis]` applies \
         to all sites.",
        "An outage of Redis should not become an outage of the site, and most pages may be 30 \
         seconds out of date.";
    REDIS_TRACKING: bool = Redis "tracking", reader::TRUTH, Value("false");
        "Whether keys that other programs remove or overwrite in Redis are removed from memory and \
         disk as well. Not supported with `cluster`.",
        "It costs one message per stored response and instance, and other programs rarely write to \
         these keys.";
    REDIS_USER: String = Redis "user", reader::WORD, Derived("the URL's, or the default user");
        "Redis user (ACL) of the password.",
        "Most servers have only the default user.";
    REDIS_PASSWORD_FILE: PathBuf =
        Redis "password_file", reader::PATH, Derived("the URL's, if any");
        "File with the Redis password; it overrides the password in the URL. A relative path starts \
         at the configuration file.",
        "A separate file keeps the password out of the configuration.";
    REDIS_CA: PathBuf = Redis "ca", reader::PATH, Derived("the public authorities (webpki-roots)");
        "PEM file with the certificate authorities that may sign a `rediss://` server's \
         certificate.",
        "A server with a public name has a certificate from a public authority.";
    REDIS_CLIENT_CERTIFICATE: PathBuf = Redis "client_certificate", reader::PATH, Derived("none");
        "PEM file with the client certificate and its chain.",
        "Most servers require a password, not a certificate.";
    REDIS_CLIENT_KEY: PathBuf = Redis "client_key", reader::PATH, Derived("none");
        "PEM file with the private key of `client_certificate`.",
        "Used only together with `client_certificate`.";

    SENTINEL_MASTER: String = RedisSentinel "master", reader::WORD, Required;
        "Name of the master in the Sentinels' configuration.",
        "Sentinels can monitor several masters.";
    SENTINEL_NODES: Vec<RedisUrl> = RedisSentinel "nodes", reader::REDIS_URLS, Required;
        "URLs of up to 64 Sentinels. TLS, database and login of the first URL apply to the master \
         as well.",
        "The master is found only through Sentinels.";

    FALLBACK_URL: RedisUrl = RedisFallback "url", reader::REDIS_URL, Required;
        "URL of a server that is used while those before it do not answer; the forms are those \
         of `redis.url`.",
        "A fallback entry names a server.";
    FALLBACK_READ_TIMEOUT: Duration = RedisFallback "read_timeout", reader::DURATION,
        Derived("`redis.read_timeout`"), r#""1ms""# to r#""10s""#;
        "Timeout of a read from this server.",
        "A server in another region may need a longer timeout.";
    FALLBACK_WRITE_TIMEOUT: Duration = RedisFallback "write_timeout", reader::DURATION,
        Derived("`redis.write_timeout`"), r#""1ms""# to r#""10s""#;
        "Timeout of a write or removal on this server.",
        "A server in another region may need a longer timeout.";
    FALLBACK_USER: String =
        RedisFallback "user", reader::WORD, Derived("the URL's, or the default user");
        "Redis user (ACL) of the password for this server.",
        "Credentials of the nearest server are not sent to other servers.";
    FALLBACK_PASSWORD_FILE: PathBuf =
        RedisFallback "password_file", reader::PATH, Derived("the URL's, if any");
        "File with the password for this server; it overrides the password in `url`. A relative \
         path starts at the configuration file.",
        "Credentials of the nearest server are not sent to other servers.";
    FALLBACK_CA: PathBuf =
        RedisFallback "ca", reader::PATH, Derived("the public authorities (webpki-roots)");
        "PEM file with the certificate authorities that may sign the certificate of this server \
         (`rediss://`).",
        "A server with a public name has a certificate from a public authority.";
    FALLBACK_CLIENT_CERTIFICATE: PathBuf =
        RedisFallback "client_certificate", reader::PATH, Derived("none");
        "PEM file with the client certificate and its chain for this server.",
        "Most servers require a password, not a certificate.";
    FALLBACK_CLIENT_KEY: PathBuf = RedisFallback "client_key", reader::PATH, Derived("none");
        "PEM file with the private key of `client_certificate`.",
        "Used only together with `client_certificate`.";
    DISK_PATH: PathBuf = Disk "path", reader::PATH, Derived("no disk tier");
        "Directory of the disk tier, created if it is missing. A relative path starts at the \
         configuration file; for the flag, at the working directory.",
        "Nothing is written to a disk unless the operator names a directory.";
    DISK_SIZE: u64 = Disk "size", reader::SIZE, Value(r#""10GiB""#), r#""16MiB""# to r#""16TiB""#;
        "Maximum size of all files in the directory, in bytes; the files exceed it by one \
         segment at most (1/64 of the size, from 4 MiB to 64 MiB; above 64 GiB 1/1024).",
        "Holds several hundred thousand pages.";
    DISK_OBJECT_MAX: u64 = Disk "object_max", reader::SIZE,
        Derived("`1GiB`, or a quarter of `disk.size` if that is smaller"),
        r#""1B""# to r#""16TiB""#;
        "Largest body that is stored on disk, in bytes; at most half of `disk.size`.",
        "Films fit, and one film does not displace all other entries.";

    SITE_ID: String = Site "id", reader::SITE_ID, Required;
        "Name of the site in metrics, logs, purges and keys.",
        "Required, so that stored entries keep their site when sites are reordered.";
    SITE_HOSTS: Vec<HostPattern> = Site "hosts", reader::HOSTS, Value("[]");
        "Host names that the site answers for, without ports: exact names, or `*.name` for every \
         subdomain. An empty list means every host that no other site names.",
        "Most configurations have one site for all hosts.";
    SITE_PREFIX: String = Site "prefix", reader::PREFIX, Derived("every path");
        "Path prefix that the site answers for; it is removed before a request is forwarded.",
        "Most sites have their own host.";
    SITE_ORIGIN: OriginUrl = Site "origin", reader::ORIGIN, Required;
        "URL of the origin server: `http://HOST[:PORT]`, `https://HOST[:PORT]` or `unix:/PATH`, or a \
         table with the options below.",
        "There is no default origin server.";
    SITE_FETCH_TIMEOUT: Duration = Site "fetch_timeout", reader::DURATION, Value(r#""30s""#),
        r#""1ms""# to r#""1h""#;
        "Timeout from the start of a fetch to the head of the origin's response, with the wait \
         for a connection; after it the client gets a stale response if that is allowed, else \
         504. Also the default of `body_timeout` in `[site.origin]`.",
        "Above the time of slow pages, below the timeout of common load balancers.";
    SITE_ORIGIN_FIELDS_MAX: u64 = Site "origin_fields_max", reader::COUNT, Value("256"),
        "16" to "4096";
        "Maximum number of fields in the head of a response of the origin; a response with more is \
         replaced by 502.",
        "Normal responses have some dozens; more than this is an error of the origin.";
    SITE_ORIGIN_HEAD_MAX: u64 = Site "origin_head_max", reader::SIZE, Value(r#""256KiB""#),
        r#""8KiB""# to r#""16MiB""#;
        "Maximum size of the head of a response of the origin, in bytes; a response with more is \
         replaced by 502.",
        "Many times the limit of browsers; the head of each response is held in memory.";
    SITE_SOFT_TIMEOUT: Duration = Site "soft_timeout", reader::DURATION, Value(r#""1s""#),
        r#""1ms""# to r#""1h""#;
        "Time of a fetch after which a stale entry is served while the fetch continues, if the \
         entry may be served while the origin is unreachable (`stale_on_disconnect_max`).",
        "A person notices a delay of one second.";
    SITE_STALE_ON_DISCONNECT_MAX: Duration =
        Site "stale_on_disconnect_max", reader::DURATION, Value(r#""1h""#),
        r#""0s""# to r#""365d""#;
        "Maximum staleness of entries that are served while the origin is unreachable or does not \
         answer, unless the response forbids it. 0 serves only entries that allow it themselves.",
        "Time to repair an origin, and short enough for prices and headlines.";
    SITE_EARLY_REFRESH_BETA: f64 = Site "early_refresh_beta", reader::NUMBER, Value("1.0"),
        "0.0" to "10.0";
        "Early refresh: how early a frequently requested entry is refreshed in the background, \
         relative to the duration of its fetch. 0 turns it off.",
        "1 is the published optimum: no request waits when a popular entry expires, at the cost of \
         11 % more fetches at most, because only the last tenth of the lifetime is used.";
    SITE_DEFAULT_TTL: Duration = Site "default_ttl", reader::DURATION, Value(r#""0s""#),
        r#""0s""# to r#""365d""#;
        "Freshness lifetime of responses without an explicit one, if their status or `public` \
         allows a heuristic lifetime (RFC 9111 section 4.2.2); 0 leaves it to `Last-Modified`: a \
         tenth of the time since then, at most one day.",
        "Only the site's operator knows whether such responses may be shared.";
    SITE_NEGATIVE_TTL: Duration = Site "negative_ttl", reader::DURATION, Value(r#""0s""#),
        r#""0s""# to r#""365d""#;
        "Freshness lifetime of negative responses (404, 405, 410, 414, 501) without an explicit \
         lifetime; 0 leaves it to `default_ttl`.",
        "A missing page may be created at any moment; only the site's operator knows how soon.";
    SITE_VARIANTS_MAX: u64 = Site "variants_max", reader::COUNT, Value("64"), "1" to "1000";
        "Maximum number of variants per URL; above it, the least recently used variant is removed.",
        "Above the number of languages times encodings; a `Vary` on a field that differs for each \
         client could otherwise fill the memory with one page.";
    SITE_IGNORE_QUERY: Vec<String> = Site "ignore_query", reader::QUERY_NAMES, Value("[]");
        "Query parameters that are removed before lookup and fetch; `*` at the end of a name \
         matches any ending.",
        "Only the site's operator knows which parameters do not change a response.";
    SITE_SORT_QUERY: bool = Site "sort_query", reader::TRUTH, Value("false");
        "Whether query parameters are sorted before lookup and fetch.",
        "Some origins depend on the order of parameters.";
    SITE_COALESCE: bool = Site "coalesce", reader::TRUTH, Value("true");
        "Request coalescing: simultaneous requests for one entry share one fetch. With `false`, \
         each request that is not a hit is fetched on its own.",
        "It protects the origin from crowds.";
    SITE_COALESCE_CLUSTER: bool = Site "coalesce_cluster", reader::TRUTH, Value("true");
        "Request coalescing between instances that share a Redis: one instance fetches and wakes \
         the others. Without a shared tier it has no effect.",
        "Otherwise every additional instance adds a fetch.";
    SITE_DIRECT_HITS: bool = Site "direct_hits", reader::TRUTH, Value("true");
        "Whether plain hits from memory are answered on a shorter path: GET and HEAD without body, \
         range or `Connection` options. Responses are the same on both paths.",
        "A hit costs about a third. `false` shows whether a defect is in this path.";
    SITE_CLIENT_RELOADS_MAX: u32 = Site "client_reloads_max", reader::RATE,
        Derived("no limit");
        "Maximum number of requests per second that force a fetch although the entry is fresh \
         (`no-cache`, `max-age`, `min-fresh`), such as `\"10/s\"`; beyond it they get the fresh entry, \
         with `detail=reload-limited`.",
        "Only the site's operator knows whether clients may be refused a validated response.";
    SITE_STORE_SET_COOKIE: bool = Site "store_set_cookie", reader::TRUTH, Value("false");
        "Whether responses with `Set-Cookie` may be stored.",
        "A stored cookie would hand one client's session to all others.";
    SITE_SHARE_CODINGS: bool = Site "share_codings", reader::TRUTH, Value("false");
        "Whether responses with `Content-Encoding` but without `Vary: Accept-Encoding` are served to \
         clients with any `Accept-Encoding`. `false` stores them as if they had that `Vary`.",
        "Many servers compress without `Vary`, and a client that does not accept the encoding cannot \
         read the body.";
    SITE_HEURISTICS_WITH_COOKIE: bool =
        Site "heuristics_with_cookie", reader::TRUTH, Value("false");
        "Whether a response to a request with `Cookie` that has neither explicit freshness nor \
         `public` gets a lifetime by `Last-Modified`, `default_ttl` or `negative_ttl`. If not, such \
         a response is not stored.",
        "A response to a request with a session cookie is mostly about one user, even if its origin \
         does not say so.";
    SITE_CACHE_METHODS: Vec<Method> = Site "cache_methods", reader::METHODS, Value("[]");
        "Methods besides GET and HEAD whose responses are stored: `\"QUERY\"`, `\"POST\"`. The key \
         consists of URL, request body and content type. A response to POST is stored only with \
         explicit freshness; any other POST is treated as an unsafe request.",
        "Only the site's operator knows whether a POST is safe. QUERY is safe by definition, but \
         few origins support it.";
    SITE_CACHE_BODY_MAX: u64 = Site "cache_body_max", reader::SIZE, Value(r#""64KiB""#),
        r#""1B""# to r#""1MiB""#;
        "Largest request body that is used for lookup, in bytes; requests with a larger body are \
         forwarded. Each such request holds its body in memory.",
        "Fits searches and GraphQL queries; uploads are not worth buffering.";
    SITE_CACHE_GROUPS: bool = Site "cache_groups", reader::TRUTH, Value("false");
        "Whether `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875) are honoured: the \
         response to a POST, PUT, PATCH or DELETE then invalidates the groups that it names.",
        "Otherwise any part of the origin could invalidate the groups of another part.";
    SITE_CACHE_GROUPS_MAX: u64 = Site "cache_groups_max", reader::COUNT, Value("64"),
        "32" to "1024";
        "Maximum number of groups per response; the rest is ignored.",
        "Twice the minimum that RFC 9875 requires; each group adds its name to the entry.";
    SITE_CACHE_GROUP_LENGTH_MAX: u64 =
        Site "cache_group_length_max", reader::COUNT, Value("128"), "32" to "1024";
        "Maximum length of a group name in bytes; longer ones are ignored.",
        "Fits a path or a database key; RFC 9875 requires at least 32.";
    SITE_IGNORE_SCHEME: bool = Site "ignore_scheme", reader::TRUTH, Value("false");
        "Gives http and https one key, for an origin whose responses do not depend on the scheme.",
        "A stored redirect to https must not answer a request over https.";
    SITE_ALLOW: Networks = Site "allow", reader::NETWORKS, Value("[]");
        "Networks of the clients that may use the site, as in `trusted_proxies`; empty means all. Others \
         get 403.",
        "Most sites are public.";
    SITE_DENY: Networks = Site "deny", reader::NETWORKS, Value("[]");
        "Networks of the clients that may not use the site, also if `allow` contains them.",
        "Most sites are public.";
    SITE_HSTS: HeaderValue = Site "hsts", reader::HSTS, Derived("none");
        "Value of `Strict-Transport-Security` in responses over https without one, such as \
         `max-age=31536000`.",
        "Browsers do not forget it before its time, so that a mistake cannot be taken back.";
    SITE_FORWARDED: bool = Site "forwarded", reader::TRUTH, Value("false");
        "Adds `Forwarded` (RFC 7239) to requests to the origin, beside `X-Forwarded-*`.",
        "Few origins read it, and it repeats `X-Forwarded-*`.";
    SITE_TIER_ERRORS: TierErrors = Site "tier_errors", reader::TIER_ERRORS, Value(r#""graceful""#);
        "Effect of a failing lower tier on a request: `graceful` fetches from the origin, `strict` \
         answers 503 unless another tier has the entry.",
        "A failing tier should cost time, not responses. `strict` is for an origin that cannot \
         handle the full load.";
    SITE_EXPOSE_ERRORS: bool = Site "expose_errors", reader::TRUTH, Value("false");
        "Whether error responses of the cache contain the cause.",
        "Causes contain internal addresses.";

    ORIGIN_URLS: Vec<OriginUrl> = SiteOrigin "urls", reader::ORIGINS, Required;
        "URL of the origin server, as a list with one element.",
        "There is no default origin server.";
    ORIGIN_HOST: String = SiteOrigin "host", reader::ORIGIN_HOST, Derived("the client's");
        "Value of `Host` in requests to the origin.",
        "The origin receives the host that the client requested.";
    ORIGIN_CONNECTIONS_MAX: u64 = SiteOrigin "connections_max", reader::COUNT, Value("1024"),
        "1" to "65536";
        "Maximum number of concurrent requests to the origin, each with its own connection; \
         further fetches wait for a free one within `fetch_timeout`, then fail with 503. \
         Responses that cannot be shared use three quarters of them at most, tunnels half.",
        "Above the needs of a healthy origin, below the number of local ports.";
    ORIGIN_KEEP_ALIVE: Duration = SiteOrigin "keep_alive", reader::DURATION, Value(r#""60s""#),
        r#""0s""# to r#""1h""#;
        "Time for which an idle connection to the origin is kept; 0 closes it after its request.",
        "Below the 75 seconds of common origins, so that they rarely close a connection first.";

    ORIGIN_CA: PathBuf = SiteOrigin "ca", reader::PATH, Derived("the roots of Mozilla");
        "PEM file with the authorities of the certificate of an `https://` origin, or `system` for \
         those that the operating system trusts.",
        "Part of the binary, so that a container needs no package with roots.";
    ORIGIN_SERVER_NAME: String = SiteOrigin "server_name", reader::ORIGIN_HOST,
        Derived("`host` if it is a name, else that of the URL");
        "Name in the certificate of an `https://` origin, which is also sent as server name \
         indication.",
        "The name that the origin is asked for.";
    ORIGIN_VERIFY: bool = SiteOrigin "verify", reader::TRUTH, Value("true");
        "Verifies the certificate of an `https://` origin. `false` is warned of at the start and at \
         each reload.",
        "Without it, anyone on the path can answer for the origin.";
    ORIGIN_CLIENT_CERTIFICATE: PathBuf =
        SiteOrigin "client_certificate", reader::PATH, Derived("none");
        "PEM file with the certificate that is shown to an `https://` origin which asks for one.",
        "Most origins ask for none.";
    ORIGIN_CLIENT_KEY: PathBuf = SiteOrigin "client_key", reader::PATH, Derived("none");
        "PEM file with the private key of `client_certificate`.",
        "Needed with `client_certificate` only.";
    ORIGIN_CONNECT_TIMEOUT: Duration =
        SiteOrigin "connect_timeout", reader::DURATION, Value(r#""2s""#), r#""1ms""# to r#""1m""#;
        "Timeout for connecting to the origin, TLS included. The lookup of a name whose address \
         is not known yet has another 2 seconds.",
        "Two lost packets of a handshake are sent again within it.";
    ORIGIN_BODY_TIMEOUT: Duration = SiteOrigin "body_timeout", reader::DURATION,
        Derived("`fetch_timeout`"), r#""1ms""# to r#""1h""#;
        "Timeout of each further piece of a response body.",
        "An origin that takes long for the head may take as long for a piece.";
    ORIGIN_RESOLVE_EVERY: Duration = SiteOrigin "resolve_every", reader::DURATION,
        Value(r#""30s""#), r#""1s""# to r#""1d""#;
        "Interval at which the name of the origin is looked up again, varied by a tenth. A failed \
         lookup keeps the last addresses.",
        "Follows a moved origin within half a minute.";

    LEASE_DURATION: Duration = SiteLease "duration", reader::DURATION, Value(r#""1500ms""#),
        r#""100ms""# to r#""1m""#;
        "Duration of a lease without a heartbeat: after it, another instance may fetch the key.",
        "Longer than a short pause of a process; a crash delays waiting requests only briefly.";
    LEASE_HEARTBEAT: Duration = SiteLease "heartbeat", reader::DURATION,
        Derived("a third of `duration`"), r#""20ms""# to r#""30s""#;
        "Interval at which the fetching instance extends its lease; at most half of `duration`.",
        "Two of three heartbeats may be lost.";
    LEASE_WAIT_MAX: Duration = SiteLease "wait_max", reader::DURATION, Value(r#""10s""#),
        r#""0s""# to r#""1h""#;
        "Maximum wait for the fetch of another instance. Then the request gets a stale entry where \
         allowed, or fetches without storing.",
        "Above the duration of most fetches, below the timeout of common load balancers.";

    RATE_REQUESTS: RequestRate = SiteRateLimit "requests", reader::REQUEST_RATE, Required;
        "Maximum rate of the requests of one client, such as `50/s`, `600/m` or `1000/h`. Further ones \
         get 429 with `Retry-After`. Each instance counts for itself.",
        "Only the site's operator knows how many requests a page takes.";
    RATE_BURST: u64 = SiteRateLimit "burst", reader::COUNT,
        Derived("the number in `requests`"), "1" to "1000000";
        "Number of requests that one client may send at once, before `requests` limits it.",
        "A page and its files are requested at once.";
    RATE_BY: ByAddress = SiteRateLimit "by", reader::RATE_BY, Value(r#""address""#);
        "Distinction of clients: by address, IPv6 by /64. A trusted proxy that names no client is not \
         limited.",
        "Nothing else is known of every client.";
    RATE_EXEMPT_HITS: bool = SiteRateLimit "exempt_hits", reader::TRUTH, Value("false");
        "Whether requests that memory answers do not count. Those that disk, Redis or the origin \
         answers count.",
        "A limit on all requests is what most operators mean; hits cost the origin nothing.";

    BREAKER_ENABLED: bool = SiteBreaker "enabled", reader::TRUTH, Value("true");
        "Stops requests to an origin that fails or is too slow. Meanwhile clients get stale \
         responses where that is allowed, else `[site.fallback]` or 503.",
        "A hung origin would cost each URL its whole `fetch_timeout`.";
    BREAKER_ERROR_THRESHOLD: u64 =
        SiteBreaker "error_threshold", reader::COUNT, Value("50"), "1" to "100";
        "Percentage of failed calls among the counted ones that opens the breaker.",
        "The default of most circuit breakers.";
    BREAKER_MINIMUM_REQUESTS: u64 =
        SiteBreaker "minimum_requests", reader::COUNT, Value("10"), "1" to "10000";
        "Number of counted calls from which on the two percentages apply.",
        "Few failures may be chance.";
    BREAKER_WINDOW: Duration = SiteBreaker "window", reader::DURATION, Value(r#""10s""#),
        r#""100ms""# to r#""1h""#;
        "Period before now whose calls to the origin are counted.",
        "Short enough to notice a failure soon, long enough for a rate.";
    BREAKER_WINDOW_CALLS: u64 =
        SiteBreaker "window_calls", reader::COUNT, Value("0"), "0" to "10000";
        "Number of last calls that are counted, instead of those of `window`; 0 counts those of \
         `window`.",
        "A period forgets old failures by itself.";
    BREAKER_OPEN_FOR: Duration = SiteBreaker "open_for", reader::DURATION, Value(r#""30s""#),
        r#""100ms""# to r#""1h""#;
        "Time for which an open breaker rejects requests, before a trial. After a failed trial, \
         a shorter `Retry-After` in its response applies instead.",
        "Gives an overloaded origin time to recover.";
    BREAKER_FAILURE_STATUSES: Vec<u64> =
        SiteBreaker "failure_statuses", reader::COUNTS, Value("[502, 503, 504]");
        "Status codes of responses that count as failures.",
        "500 is not among them, because one broken page must not stop a site.";
    BREAKER_SLOW_CALL: Duration = SiteBreaker "slow_call", reader::DURATION, Value(r#""5s""#),
        r#""0s""# to r#""1h""#;
        "Time without a response head after which a call counts as slow, while it still runs; 0 \
         turns this off.",
        "Above the time of slow pages.";
    BREAKER_SLOW_THRESHOLD: u64 =
        SiteBreaker "slow_threshold", reader::COUNT, Value("80"), "1" to "100";
        "Percentage of slow calls among the counted ones that opens the breaker.",
        "An origin with some slow pages is usable.";
    BREAKER_TRIALS: u64 = SiteBreaker "trials", reader::COUNT, Value("1"), "1" to "100";
        "Maximum number of concurrent requests that test the origin after `open_for`.",
        "A recovering origin is not flooded.";

    FALLBACK_STATUS: u64 = SiteFallback "status", reader::COUNT, Value("503"), "200" to "599";
        "Status code of the fallback response.",
        "Clients and other caches understand that it is temporary.";
    FALLBACK_BODY: String = SiteFallback "body", reader::TEXT, Value(r#""""#);
        "Body of the fallback response, which clients get when nothing stale may be served and the \
         origin is unavailable. It is never stored, and never replaces a response of the origin.",
        "Without the table, clients get an error page of forebay.";
    FALLBACK_BODY_FILE: PathBuf = SiteFallback "body_file", reader::PATH, Derived("none");
        "File with the body of the fallback response, instead of `body`; at most 1 MiB.",
        "Short texts fit into the configuration.";
    FALLBACK_CONTENT_TYPE: HeaderValue = SiteFallback "content_type", reader::FIELD_VALUE,
        Value(r#""text/plain; charset=utf-8""#);
        "`Content-Type` of the fallback response.",
        "Browsers do not run it as a page.";
    FALLBACK_RETRY_AFTER: Duration = SiteFallback "retry_after", reader::DURATION,
        Value(r#""30s""#), r#""1s""# to r#""1d""#;
        "`Retry-After` of the fallback response.",
        "The default of `open_for`.";
}

impl Table {
    /// Names of all options and subtables of the table.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.options().map(|spec| spec.name).chain(self.tables().iter().copied())
    }

    /// Options of the table.
    pub(crate) fn options(self) -> impl Iterator<Item = &'static Spec> {
        ALL.iter().copied().filter(move |spec| spec.table == self)
    }
}

/// Options and tables of later versions, with what this version lacks.
pub(crate) const LATER: &[(&str, &str)] = &[
    ("memcached", "has no memcached tier"),
    ("site.log", "has no log level per site"),
    ("site.origin.health", "has no health checks"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::problem::Problems;
    use crate::config::typed::Typed;
    use std::cmp::Ordering;
    use std::collections::HashSet;
    use std::fmt::Debug;

    fn parsed<T: Debug>(field: &Field<T>, text: &str) -> T {
        let typed = Typed::from_default(field.spec.path(), text);
        let typed = typed.unwrap_or_else(|| panic!("{}: not TOML: {text}", field.spec.path()));
        let mut problems = Problems::new(None);
        (field.reader.read)(&typed, &mut problems).unwrap_or_else(|| panic!("{problems}"))
    }

    /// Asserts that the default and the bounds are valid, printed as declared, and in order.
    fn is_sound<T: Debug>(field: &Field<T>) {
        let path = field.spec.path();
        let preset = match field.spec.preset {
            Value(text) => {
                let value = parsed(field, text);
                let normal = text.replace("\"60s\"", "\"1m\"");
                assert_eq!((field.reader.show)(&value), normal, "{path}");
                Some(value)
            }
            _ => None,
        };
        let Some((low, high)) = field.spec.bounds else { return };
        let order = field.reader.order.unwrap_or_else(|| panic!("{path}: bounds without order"));
        let (low, high) = (parsed(field, low), parsed(field, high));
        assert_eq!(order(&low, &high), Ordering::Less, "{path}");
        if let Some(value) = preset {
            assert_ne!(order(&low, &value), Ordering::Greater, "{path}");
            assert_ne!(order(&value, &high), Ordering::Greater, "{path}");
        }
    }

    #[test]
    fn every_default_and_bound_is_valid() {
        for_each_option!(is_sound);
    }

    #[test]
    fn every_option_has_a_description_and_a_unique_name() {
        let mut paths = HashSet::new();
        for spec in ALL {
            let path = spec.path();
            assert!(spec.doc.ends_with('.') && spec.reason.ends_with('.'), "{path}");
            assert!(paths.insert(path.clone()), "{path} is declared twice");
        }
        for (path, _) in LATER {
            assert!(paths.insert((*path).to_owned()), "{path} is both here and for later");
        }
    }
}

//! Options of the process: listeners, TLS, certificates and logs.

use super::Preset::{Derived, Required, Value};
use crate::config::listen_address::ListenAddress;
use crate::config::reader::{self, AccessLog, ClientIp, ListenerRole, LogFormat, Protocol};
use forebay_semantics::Networks;
use forebay_semantics::client_address::AddressField;
use forebay_tls::acme::ChallengeKind;
use forebay_tls::server::{ClientCertificates, MinVersion};
use forebay_tls::store::UnknownName;
use http::Uri;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

options! {
    SERVER_OPTIONS;

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
    READY_AFTER_WARM: PathBuf = Top "ready_after_warm", reader::PATH, Derived("no warm-up");
        "File with one URL per line that the process fetches through its cache at the start, 16 at once \
         and ranked below requests of clients. `/readyz` answers 503 until the end. A relative path \
         starts at the configuration file.",
        "Most caches fill fast enough, or keep their entries on disk.";
    READY_AFTER_WARM_MAX: Duration = Top "ready_after_warm_max", reader::DURATION,
        Value(r#""5m""#), r#""1s""# to r#""1h""#;
        "Maximum duration of the warm-up of `ready_after_warm`; then the process is ready nevertheless.",
        "A slow origin must not stop a deployment.";
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
        "Lowest level of messages that are logged.",
        "Shows events that need an operator, without a line per request.";
    LOG_FORMAT: LogFormat = Top "log_format", reader::LOG_FORMAT, Value(r#""auto""#);
        "Format of messages on stderr: `text` for people, `logfmt`, or `json` with one object per line. \
         `auto` is `text` on a terminal, else `logfmt`.",
        "People read terminals, and programs read the rest.";
    ACCESS_LOG: AccessLog = Top "access_log", reader::ACCESS_LOG, Value(r#""off""#);
        "Access log, on stdout unless `access.file` is set: one line per response, written when it ends, in the common or combined log format, as logfmt or as JSON, or off.",
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

    ACCESS_ROTATE_SIZE: u64 = Access "rotate_size", reader::SIZE, Value(r#""256MiB""#),
        r#""0B""# to r#""1TiB""#;
        "Size from which `file` is renamed to `FILE.1`, and older files to `FILE.2` and so on; `0B` means \
         never.",
        "A log must not fill the disk.";
    ACCESS_ROTATE_KEEP: u64 = Access "rotate_keep", reader::COUNT, Value("8"), "1" to "1000";
        "Number of renamed files that are kept; the oldest one is removed.",
        "With `rotate_size` it bounds the log to 2.25 GiB.";
    ACCESS_SAMPLE_HITS: f64 = Access "sample_hits", reader::NUMBER, Value("1.0"), "0" to "1";
        "Share of plain hits that are logged; their lines have `sample`. All other responses are logged.",
        "A log without gaps is what most programs expect.";
    ACCESS_CLIENT_IP: ClientIp = Access "client_ip", reader::CLIENT_IP, Value(r#""full""#);
        "Addresses of clients in the access log and in live views: `full`, `prefix` (IPv4 /24, IPv6 \
         /48), or `off`.",
        "Operators need the address of an abusive client; the law may require less.";
    ACCESS_QUERY: bool = Access "query", reader::KEEP_OR_DROP, Value(r#""keep""#);
        "Query of targets in the access log and in live views: `keep` or `drop`.",
        "The query selects the response at most origins.";
    ACCESS_REDACT_QUERY: Vec<String> = Access "redact_query", reader::QUERY_NAMES, Value("[]");
        "Further query parameters whose values are replaced by `REDACTED`; `*` at the end of a name \
         matches any ending.",
        "Names with a word such as `token`, `key` or `password` are redacted in any case.";

    TRACE_ENDPOINT: Uri = Trace "endpoint", reader::COLLECTOR, Derived("no tracing");
        "URL of the collector of OpenTelemetry, such as `http://127.0.0.1:4318`, which gets spans as OTLP \
         over HTTP in protobuf. `/v1/traces` is appended if it is missing.",
        "Most collectors run on the same host.";
    TRACE_SAMPLE: f64 = Trace "sample", reader::NUMBER, Value("0.01"), "0" to "1";
        "Share of requests that are traced. Errors and slow responses that are not plain hits are traced in \
         any case.",
        "Enough to see what is usual, at a cost below that of an access log.";
    TRACE_SLOW: Duration = Trace "slow", reader::DURATION, Value(r#""1s""#), r#""0s""# to r#""1h""#;
        "Time to the response head from which a response is traced in any case.",
        "Users notice a second.";
    TRACE_TRUST_INCOMING: bool = Trace "trust_incoming", reader::TRUTH, Value("false");
        "Continues the traces in `traceparent` of clients, and lets clients decide whether their traces are \
         recorded. `false` replaces `traceparent`.",
        "Any client could have all of its requests recorded.";

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
}

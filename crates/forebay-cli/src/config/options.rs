//! Every option, declared once: where it stands, its type, default, bounds, doc and reason.
//!
//! The file is checked against this table, the plan reads through it, and the reference is rendered
//! from it; so none of the three can know an option that the others do not.

use super::host::HostPattern;
use super::origin_url::OriginUrl;
use super::reader::{self, AccessLog, Reader};
use super::redis_url::RedisUrl;
use super::table::Table;
use forebay_core::WhenBlind;
use forebay_engine::TierErrors;
use forebay_redis::Codec;
use http::Method;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

/// What holds when nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    /// This value, as it would be typed.
    Value(&'static str),
    /// Something that follows from other values; the sentence says what.
    Derived(&'static str),
    /// It is an error to say nothing.
    Required,
}

/// The part of an option's declaration that does not depend on its type.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "kind, doc and reason are what docs/config.md is rendered from")
)]
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) table: Table,
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) preset: Preset,
    /// Smallest and largest value, as they would be typed.
    pub(crate) bounds: Option<(&'static str, &'static str)>,
    pub(crate) doc: &'static str,
    pub(crate) reason: &'static str,
}

impl Spec {
    /// The path in general, such as `site.fetch_timeout`.
    pub(crate) fn path(&self) -> String {
        match self.table.path() {
            "" => self.name.to_owned(),
            table => format!("{table}.{}", self.name),
        }
    }
}

/// An option with its type.
#[derive(Debug)]
pub(crate) struct Field<T: 'static> {
    pub(crate) spec: Spec,
    pub(crate) reader: Reader<T>,
}

/// `NAME: Type = Table "name", reader, preset, (bounds)?; "doc", "reason"` for each option.
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

        /// Every option, in the order of the reference.
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
        "Where clients are answered. One address or a list of up to 64; port 0 takes a free port.",
        "A loopback address: nothing is open to a network until somebody asks for it.";
    ADMIN: SocketAddr = Top "admin", reader::ADDRESS, Value(r#""127.0.0.1:8081""#);
        "Where health, metrics, purges and the dashboard are served.",
        "A loopback address: whoever reaches it may purge the cache.";
    ADMIN_TOKEN_FILE: PathBuf = Top "admin_token_file", reader::PATH, Derived("no token");
        "A file whose content is the admin listener's bearer token; a relative path starts at the \
         configuration file. Required unless `admin` is a loopback address.",
        "On a loopback address the machine's own users are trusted; a token in a file, unlike one \
         in the configuration, is not shown by whoever shows the configuration.";
    THREADS: u64 = Top "threads", reader::COUNT, Value("0"), "0" to "1024";
        "Threads that serve requests; 0 is one per core.",
        "A request never blocks a thread, so more threads than cores only add switches.";
    LOG: Level = Top "log", reader::LEVEL, Value(r#""info""#);
        "The least severe messages that are logged.",
        "What an operator must know, and nothing per request.";
    ACCESS_LOG: AccessLog = Top "access_log", reader::ACCESS_LOG, Value(r#""off""#);
        "Whether each request is written to stdout, and in which form.",
        "A line per request costs more than a hit; the metrics count every request anyway.";

    MEMORY_SIZE: u64 = Memory "size", reader::SIZE, Value(r#""256MiB""#),
        r#""16KiB""# to r#""16TiB""#;
        "Bound of all that is stored or on its way, in bytes: bodies, fields, keys, bookkeeping.",
        "Fits the smallest machines that serve the web, and holds some ten thousand pages.";
    MEMORY_OBJECT_MAX: u64 = Memory "object_max", reader::SIZE,
        Derived("`16MiB`, or `memory.size` where that is smaller"), r#""1B""# to r#""16TiB""#;
        "Largest body that is stored, in bytes; at most `memory.size`.",
        "Larger bodies displace hundreds of pages and gain little from memory.";
    MEMORY_IN_FLIGHT_MAX: u64 = Memory "in_flight_max", reader::SIZE,
        Derived("a quarter of `memory.size`"), r#""4KiB""# to r#""16TiB""#;
        "The part of `memory.size` that is for bodies on their way, in bytes. Beyond it, \
         fetches wait for room.",
        "Grows with the machine, and leaves a crowd of slow clients unable to exhaust it.";

    REDIS_URL: RedisUrl = Redis "url", reader::REDIS_URL, Derived("none: no Redis is used");
        "The server: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss://` for TLS, or \
         `unix:///PATH`. It stands instead of `cluster` and `sentinel`.",
        "A cache needs no server to be of use.";
    REDIS_CLUSTER: Vec<RedisUrl> = Redis "cluster", reader::REDIS_URLS, Derived("none");
        "URLs of some nodes of a Redis Cluster, up to 64; the others are found through them.",
        "Most Redis servers are single ones.";
    REDIS_NAMESPACE: String = Redis "namespace", reader::NAMESPACE, Value(r#""forebay""#);
        "What all names in Redis begin with. Caches with the same namespace share what they store.",
        "Caches that are pointed to one server are meant to share, unless somebody says otherwise.";
    REDIS_READ_TIMEOUT: Duration = Redis "read_timeout", reader::DURATION, Value(r#""50ms""#),
        r#""1ms""# to r#""10s""#;
        "How long a request that is not in memory may wait for Redis before it goes to the origin; \
         also how fast a server has to answer to be used at all.",
        "Below what a person notices, above what a healthy server in the same building needs.";
    REDIS_WRITE_TIMEOUT: Duration = Redis "write_timeout", reader::DURATION, Value(r#""100ms""#),
        r#""1ms""# to r#""10s""#;
        "How long storing or removing something may take. No client waits for storing.",
        "Twice the time of a reading, since a store takes two round trips.";
    REDIS_OBJECT_MAX: u64 = Redis "object_max", reader::SIZE, Value(r#""1MiB""#),
        r#""1B""# to r#""256MiB""#;
        "Largest body that is sent to Redis, in bytes.",
        "A larger one holds up all that is read behind it on the same connection.";
    REDIS_COMPRESSION: Codec = Redis "compression", reader::COMPRESSION, Value(r#""zstd""#);
        "How what is stored is compressed: `zstd` is smallest, `lz4` takes least time. What does \
         not become smaller is stored as it is, and readers understand all of them.",
        "Pages become a quarter, which is worth more in Redis and on the way there than the time.";
    REDIS_COMPRESSION_THRESHOLD: u64 =
        Redis "compression_threshold", reader::SIZE, Value(r#""1KiB""#), r#""1B""# to r#""256MiB""#;
        "Size from which on compressing is tried, in bytes.",
        "What is small becomes hardly smaller.";
    REDIS_HMAC_KEY_FILE: PathBuf =
        Redis "hmac_key_file", reader::PATH, Derived("none: values are not signed");
        "A file with a secret of at least 16 bytes, the same for all who share: values are signed \
         with it, and what is not is a miss. A relative path starts at the configuration file.",
        "Who can write to Redis is trusted with its pages until somebody says otherwise.";
    REDIS_WHEN_BLIND: WhenBlind =
        Redis "when_blind", reader::WHEN_BLIND, Value(r#""available""#);
        "What is served while other caches are not heard, or some of what they said was missed: \
         `available` serves what memory and disk hold for another 30 seconds, `strict` nothing \
         that Redis has not confirmed.",
        "An outage of Redis should be nobody's outage, and half a minute is what most pages bear.";
    REDIS_TRACKING: bool = Redis "tracking", reader::TRUTH, Value("false");
        "Whether what other programs remove from Redis, or write over, is removed from memory and \
         disk, too. Not with `cluster`.",
        "It costs a message to each cache for each answer that is stored, and few others write.";
    REDIS_USER: String = Redis "user", reader::WORD, Derived("the URL's, or the default user");
        "The user of Redis (ACL) that the password belongs to.",
        "Most servers have the default user alone.";
    REDIS_PASSWORD_FILE: PathBuf =
        Redis "password_file", reader::PATH, Derived("the URL's, if any");
        "A file whose content is the password; it takes the place of what the URL says. A relative \
         path starts at the configuration file.",
        "A password in a file of its own is not shown by whoever shows the configuration.";
    REDIS_CA: PathBuf = Redis "ca", reader::PATH, Derived("the authorities that browsers trust");
        "A file (PEM) with the authorities that may vouch for a `rediss://` server.",
        "A server with a public name has a certificate that everybody can check.";
    REDIS_CLIENT_CERTIFICATE: PathBuf = Redis "client_certificate", reader::PATH, Derived("none");
        "A file (PEM) with the certificate that is shown to the server, and its chain.",
        "Most servers ask for a password, not for a certificate.";
    REDIS_CLIENT_KEY: PathBuf = Redis "client_key", reader::PATH, Derived("none");
        "A file (PEM) with the key of `client_certificate`.",
        "It goes with the certificate.";

    SENTINEL_MASTER: String = RedisSentinel "master", reader::WORD, Required;
        "What the Sentinels call the master.",
        "Sentinels watch over several masters, and only their operator knows the names.";
    SENTINEL_NODES: Vec<RedisUrl> = RedisSentinel "nodes", reader::REDIS_URLS, Required;
        "URLs of the Sentinels, up to 64. TLS, database and login of the first one hold for the \
         master too.",
        "There is no other way to find the master.";

    FALLBACK_URL: RedisUrl = RedisFallback "url", reader::REDIS_URL, Required;
        "The server that is used while those before it do not answer, as in `redis.url`.",
        "A fallback is another server.";
    FALLBACK_READ_TIMEOUT: Duration = RedisFallback "read_timeout", reader::DURATION,
        Derived("`redis.read_timeout`"), r#""1ms""# to r#""10s""#;
        "As in `[redis]`, for this server.",
        "A server in another region may need more.";
    FALLBACK_WRITE_TIMEOUT: Duration = RedisFallback "write_timeout", reader::DURATION,
        Derived("`redis.write_timeout`"), r#""1ms""# to r#""10s""#;
        "As in `[redis]`, for this server.",
        "A server in another region may need more.";
    FALLBACK_USER: String =
        RedisFallback "user", reader::WORD, Derived("the URL's, or the default user");
        "As in `[redis]`, for this server.",
        "The nearest server's login is sent to no other one.";
    FALLBACK_PASSWORD_FILE: PathBuf =
        RedisFallback "password_file", reader::PATH, Derived("the URL's, if any");
        "As in `[redis]`, for this server.",
        "The nearest server's login is sent to no other one.";
    FALLBACK_CA: PathBuf =
        RedisFallback "ca", reader::PATH, Derived("the authorities that browsers trust");
        "As in `[redis]`, for this server.",
        "A server with a public name has a certificate that everybody can check.";
    FALLBACK_CLIENT_CERTIFICATE: PathBuf =
        RedisFallback "client_certificate", reader::PATH, Derived("none");
        "As in `[redis]`, for this server.",
        "Most servers ask for a password, not for a certificate.";
    FALLBACK_CLIENT_KEY: PathBuf = RedisFallback "client_key", reader::PATH, Derived("none");
        "As in `[redis]`, for this server.",
        "It goes with the certificate.";
    DISK_PATH: PathBuf = Disk "path", reader::PATH, Derived("no disk tier");
        "The directory of the disk tier, made if it is missing; a relative path starts at the \
         configuration file, or for the flag where the command runs.",
        "Nothing is written to a disk until somebody says which.";
    DISK_SIZE: u64 = Disk "size", reader::SIZE, Value(r#""10GiB""#), r#""16MiB""# to r#""16TiB""#;
        "Bound of all files in it, in bytes, give or take one segment: a 64th, 64 MiB at most.",
        "Some hundred thousand pages, on a disk that has room for more.";
    DISK_OBJECT_MAX: u64 = Disk "object_max", reader::SIZE,
        Derived("`1GiB`, or a quarter of `disk.size` where that is smaller"),
        r#""1B""# to r#""16TiB""#;
        "Largest body that is stored on disk, in bytes; at most half of `disk.size`.",
        "Films fit, and one of them does not displace everything else.";

    SITE_ID: String = Site "id", reader::SITE_ID, Required;
        "The site's name in metrics, logs and purges.",
        "Only a name that the operator chose stays the same when sites are reordered.";
    SITE_HOSTS: Vec<HostPattern> = Site "hosts", reader::HOSTS, Value("[]");
        "Hosts that the site answers for, without ports: exact names, or `*.name` for every name \
         below one. Empty is every host that no other site names.",
        "One site for everything is the commonest configuration.";
    SITE_PREFIX: String = Site "prefix", reader::PREFIX, Derived("every path");
        "Path prefix that the site answers for; removed before a request is sent to the origin.",
        "Most sites have a host of their own.";
    SITE_ORIGIN: OriginUrl = Site "origin", reader::ORIGIN, Required;
        "Where answers come from: `http://HOST[:PORT]`, or a table with the options below.",
        "A cache without an origin has nothing to answer.";
    SITE_FETCH_TIMEOUT: Duration = Site "fetch_timeout", reader::DURATION, Value(r#""30s""#),
        r#""1ms""# to r#""1h""#;
        "How long the origin may take until its answer begins; after it the client gets 504.",
        "Longer than slow pages take, shorter than people and load balancers wait.";
    SITE_ORIGIN_FIELDS_MAX: u64 = Site "origin_fields_max", reader::COUNT, Value("256"),
        "16" to "4096";
        "Maximum number of fields in the head of one response of the origin; a response with more \
         is answered with 502.",
        "Policies and cookies make up some dozens; a head with more fields than this is a fault.";
    SITE_ORIGIN_HEAD_MAX: u64 = Site "origin_head_max", reader::SIZE, Value(r#""256KiB""#),
        r#""8KiB""# to r#""16MiB""#;
        "Maximum size of the head of one response of the origin, in bytes; a response with more is \
         answered with 502.",
        "Many times what browsers accept; the head of each response under way is held in memory.";
    SITE_SOFT_TIMEOUT: Duration = Site "soft_timeout", reader::DURATION, Value(r#""1s""#),
        r#""1ms""# to r#""1h""#;
        "How long a fetch may take until a stale answer is served while the fetch goes on.",
        "People notice a second; an origin that needs more is in trouble or will be.";
    SITE_STALE_ON_DISCONNECT_MAX: Duration =
        Site "stale_on_disconnect_max", reader::DURATION, Value(r#""1h""#),
        r#""0s""# to r#""365d""#;
        "How long past its lifetime an answer is served while the origin cannot be reached or does \
         not answer, where the answer does not forbid it; 0 serves only what allows it itself.",
        "An hour is time to repair an origin, and short enough that prices are not from last week.";
    SITE_EARLY_REFRESH_BETA: f64 = Site "early_refresh_beta", reader::NUMBER, Value("1.0"),
        "0.0" to "10.0";
        "How early a busy entry is refreshed behind its hits, in terms of what a fetch takes; \
         0 is never.",
        "1 is the published optimum: nobody waits at an expiry, for about two fetches each.";
    SITE_DEFAULT_TTL: Duration = Site "default_ttl", reader::DURATION, Value(r#""0s""#),
        r#""0s""# to r#""365d""#;
        "Freshness lifetime of answers that name none; 0 leaves it to the heuristics of RFC 9111.",
        "Whether an answer without a lifetime may be shared is the site's to say, not the cache's.";
    SITE_NEGATIVE_TTL: Duration = Site "negative_ttl", reader::DURATION, Value(r#""0s""#),
        r#""0s""# to r#""365d""#;
        "Freshness lifetime of answers that say that there is nothing (404, 405, 410, 414, 501) \
         and name none; 0 leaves them to `default_ttl`.",
        "What is not there yet may be there in a moment; only the site knows how soon.";
    SITE_VARIANTS_MAX: u64 = Site "variants_max", reader::COUNT, Value("64"), "1" to "1000";
        "How many variants of one URL are kept; of more, the one that was used longest ago goes.",
        "More than languages and codings together make; a `Vary` on what each client sends \
         otherwise fills the memory with one page.";
    SITE_IGNORE_QUERY: Vec<String> = Site "ignore_query", reader::QUERY_NAMES, Value("[]");
        "Query parameters that are removed before an entry is looked up or fetched; a `*` at the \
         end stands for any ending.",
        "Only the site knows which parameters do not change its answers.";
    SITE_SORT_QUERY: bool = Site "sort_query", reader::TRUTH, Value("false");
        "Whether query parameters are put in order before an entry is looked up or fetched.",
        "For some origins the order of parameters has a meaning.";
    SITE_COALESCE: bool = Site "coalesce", reader::TRUTH, Value("true");
        "Whether simultaneous requests for one entry share a single fetch.",
        "It is what keeps a crowd away from the origin.";
    SITE_COALESCE_CLUSTER: bool = Site "coalesce_cluster", reader::TRUTH, Value("true");
        "Whether that also holds between caches that share a Redis: one of them fetches, and wakes \
         the others. Without a shared tier it has no effect.",
        "Otherwise each new cache is another crowd for the origin.";
    SITE_STORE_SET_COOKIE: bool = Site "store_set_cookie", reader::TRUTH, Value("false");
        "Whether answers that set cookies may be stored.",
        "A stored cookie hands one client's session to all the others.";
    SITE_SHARE_CODINGS: bool = Site "share_codings", reader::TRUTH, Value("false");
        "Whether a response with `Content-Encoding` that does not say `Vary: Accept-Encoding` is \
         served to clients with any `Accept-Encoding`. `false` treats it as if it said so.",
        "Many servers compress without `Vary`, and a client that did not offer the coding cannot \
         read the body.";
    SITE_CACHE_METHODS: Vec<Method> = Site "cache_methods", reader::METHODS, Value("[]");
        "Methods beside GET and HEAD whose answers are stored: `\"QUERY\"`, `\"POST\"`. An answer \
         is stored for the target, the body and the type of its request; to a POST only if it says \
         itself for how long it is fresh, and any other POST counts as a change.",
        "Whether a POST only reads is known to the site alone; QUERY is safe by its definition, \
         but few origins know it.";
    SITE_CACHE_BODY_MAX: u64 = Site "cache_body_max", reader::SIZE, Value(r#""64KiB""#),
        r#""1B""# to r#""1MiB""#;
        "Largest body of a request that is looked up by it, in bytes; one with more goes to the \
         origin as it is. Each such request holds its body in memory.",
        "Searches and GraphQL queries fit; uploads are not worth waiting for.";
    SITE_CACHE_GROUPS: bool = Site "cache_groups", reader::TRUTH, Value("false");
        "Whether `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875) are heeded: the answer \
         to a POST, PUT, PATCH or DELETE then removes what is stored of the groups that it names.",
        "Whoever may change one page could empty a group that the site did not mean to be emptied.";
    SITE_CACHE_GROUPS_MAX: u64 = Site "cache_groups_max", reader::COUNT, Value("64"),
        "32" to "1024";
        "How many groups of one answer are heeded; of more, the first.",
        "Twice what RFC 9875 wants to be understood at least; each one costs an entry its name.";
    SITE_CACHE_GROUP_LENGTH_MAX: u64 =
        Site "cache_group_length_max", reader::COUNT, Value("128"), "32" to "1024";
        "How many bytes the name of a group may have; one with more is passed over.",
        "A path or a row's key fits, and RFC 9875 wants 32 to be understood at least.";
    SITE_TIER_ERRORS: TierErrors = Site "tier_errors", reader::TIER_ERRORS, Value(r#""graceful""#);
        "What it means for a request that a tier below memory fails: `graceful` goes to the \
         origin, `strict` answers 503 where no other tier has the answer.",
        "A cache that fails should cost time, not answers; an origin that cannot bear all \
         requests is the exception.";
    SITE_EXPOSE_ERRORS: bool = Site "expose_errors", reader::TRUTH, Value("false");
        "Whether error answers of the cache itself tell the cause.",
        "Causes name internal addresses, which strangers need not know.";

    ORIGIN_URLS: Vec<OriginUrl> = SiteOrigin "urls", reader::ORIGINS, Required;
        "The origin's URL, as a list of one.",
        "A cache without an origin has nothing to answer.";
    ORIGIN_HOST: String = SiteOrigin "host", reader::ORIGIN_HOST, Derived("the client's");
        "The `Host` that is sent to the origin.",
        "An origin behind a cache should see what it would see without one.";
    ORIGIN_CONNECTIONS_MAX: u64 = SiteOrigin "connections_max", reader::COUNT, Value("1024"),
        "1" to "65536";
        "Connections to the origin at the same time; further fetches wait for one.",
        "More than a healthy origin needs, fewer than exhaust this machine's ports.";
    ORIGIN_KEEP_ALIVE: Duration = SiteOrigin "keep_alive", reader::DURATION, Value(r#""60s""#),
        r#""0s""# to r#""1h""#;
        "How long an idle connection to the origin is kept for the next fetch.",
        "Shorter than the 75 seconds that common origins keep theirs, so they rarely close first.";

    LEASE_DURATION: Duration = SiteLease "duration", reader::DURATION, Value(r#""1500ms""#),
        r#""100ms""# to r#""1m""#;
        "How long a cache that fetches is counted on without a sign of life: then another one \
         fetches.",
        "Long enough for a pause that nobody notices, short enough that a crash costs a moment.";
    LEASE_HEARTBEAT: Duration = SiteLease "heartbeat", reader::DURATION,
        Derived("a third of `duration`"), r#""20ms""# to r#""30s""#;
        "How often a cache that fetches gives a sign of life; at most half of `duration`.",
        "Two of three may be lost.";
    LEASE_WAIT_MAX: Duration = SiteLease "wait_max", reader::DURATION, Value(r#""10s""#),
        r#""0s""# to r#""1h""#;
        "How long a request waits for the fetch of another cache: then it gets what is stale where \
         that is allowed, or is fetched here and not stored.",
        "Longer than most fetches take, shorter than people and load balancers wait.";
}

impl Table {
    /// All that may stand in it, by name.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.options().map(|spec| spec.name).chain(self.tables().iter().copied())
    }

    /// The options that may stand in it.
    pub(crate) fn options(self) -> impl Iterator<Item = &'static Spec> {
        ALL.iter().copied().filter(move |spec| spec.table == self)
    }
}

/// Options and tables that are documented for later versions, with what is missing now.
pub(crate) const LATER: &[(&str, &str)] = &[
    ("memcached", "has no memcached tier yet"),
    ("tls", "has no TLS listener yet"),
    ("site.breaker", "has no circuit breaker yet"),
    ("site.transform", "has no transformations yet"),
    ("site.fallback", "has no fallback answers yet"),
    ("site.log", "has no log level per site yet"),
    ("site.origin.health", "has no health checks yet"),
    ("site.origin.ca", "does not speak TLS to origins yet"),
    ("site.origin.client_certificate", "does not speak TLS to origins yet"),
    ("site.origin.client_key", "does not speak TLS to origins yet"),
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

    /// Every preset and bound is a legal value, shown as it is declared, and within its bounds.
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
    fn every_declaration_is_sound() {
        for_each_option!(is_sound);
    }

    #[test]
    fn every_option_has_its_sentences_and_a_name_of_its_own() {
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

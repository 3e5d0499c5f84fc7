//! Options of the tiers: memory, Redis and disk.

use super::Preset::{Derived, Required, Value};
use crate::config::reader;
use crate::config::redis_url::RedisUrl;
use forebay_core::WhenBlind;
use forebay_redis::Codec;
use std::path::PathBuf;
use std::time::Duration;

options! {
    TIERS_OPTIONS;

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
        "Removes keys that other programs remove or overwrite in Redis from memory and disk as \
         well. Not supported with `cluster`.",
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
}

//! Options of the origin of a site: connections, leases, rate limit, circuit breaker, fallback,
//! compression.

use super::Preset::{Derived, Required, Value};
use crate::config::reader::{self, ByAddress, Protocol, RequestRate, WeightedUrl};
use forebay_http::{Balance, RetryOn};
use forebay_semantics::coding::Coding;
use forebay_semantics::coding::media_types::MediaTypePattern;
use http::HeaderValue;
use http::uri::PathAndQuery;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

options! {
    ORIGIN_OPTIONS;

    ORIGIN_URLS: Vec<WeightedUrl> = SiteOrigin "urls", reader::ORIGINS, Required;
        "URLs of the origin servers, 1 to 64. An endpoint with `weight = 2` gets twice as many requests \
         as one with weight 1, the default; weights are 1 to 1000.",
        "There is no default origin server.";
    ORIGIN_BALANCE: Balance = SiteOrigin "balance", reader::BALANCE, Value(r#""least""#);
        "Choice among several servers: `least` takes the one of two random servers that has fewer \
         requests in flight; `hash` takes the same one for each host and path; `first` takes them in \
         order, so that the others are spares.",
        "A slow server gets few requests.";
    ORIGIN_HOST: String = SiteOrigin "host", reader::ORIGIN_HOST, Derived("the client's");
        "Value of `Host` in requests to the origin.",
        "The origin receives the host that the client requested.";
    ORIGIN_CONNECTIONS_MAX: u64 = SiteOrigin "connections_max", reader::COUNT, Value("1024"),
        "1" to "65536";
        "Maximum number of connections to the origin, and of concurrent requests (`in_flight_max`). \
         Responses that cannot be shared use three quarters of them at most, tunnels half.",
        "Above the needs of a healthy origin, below the number of local ports.";
    ORIGIN_IN_FLIGHT_MAX: u64 = SiteOrigin "in_flight_max", reader::COUNT,
        Derived("`connections_max`"), "1" to "65536";
        "Maximum number of concurrent requests to the origin by this process, at most \
         `connections_max`. Further ones wait for half of `fetch_timeout` at most, refreshes of stored responses \
         after requests that clients wait for; then they fail with 503.",
        "Each request has a connection of its own.";
    ORIGIN_ADAPTIVE: bool = SiteOrigin "adaptive", reader::TRUTH, Value("false");
        "Lowers the number of concurrent requests by a tenth, to 8 at least, when the origin shows \
         an overload (timeout, refused connection, 429, 503), and raises it by one after as many \
         requests without one, up to `in_flight_max`. It begins at 32.",
        "A fixed limit is easier to understand.";
    ORIGIN_KEEP_ALIVE: Duration = SiteOrigin "keep_alive", reader::DURATION, Value(r#""60s""#),
        r#""0s""# to r#""1h""#;
        "Time for which an idle connection to the origin is kept; 0 closes it after its request.",
        "Below the 75 seconds of common origins, so that they rarely close a connection first.";
    ORIGIN_PROTOCOLS: Vec<Protocol> =
        SiteOrigin "protocols", reader::PROTOCOLS, Value(r#"["http/1.1"]"#);
        "Versions of HTTP for requests to the origin, the preferred one first: `[\"h2\", \"http/1.1\"]` \
         lets `https://` servers choose by ALPN; `[\"h2c\"]` is HTTP/2 without TLS, which the server \
         must expect.",
        "Most servers speak it, and each response has a connection of its own.";
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

    HEALTH_PATH: PathAndQuery = OriginHealth "path", reader::CHECK_PATH, Required;
        "Path and query of the GET that checks a server.",
        "Only the operator knows which page shows that a server works.";
    HEALTH_EVERY: Duration = OriginHealth "every", reader::DURATION, Value(r#""5s""#),
        r#""100ms""# to r#""1h""#;
        "Interval of the checks of one server, varied by a tenth.",
        "Detects a failure within 15 seconds, at a fifth of a request per second and instance.";
    HEALTH_TIMEOUT: Duration = OriginHealth "timeout", reader::DURATION, Value(r#""2s""#),
        r#""1ms""# to r#""1m""#;
        "Timeout of one check, for connecting and for the head of the response.",
        "A check that takes longer shows an overloaded server.";
    HEALTH_HEALTHY_AFTER: u64 =
        OriginHealth "healthy_after", reader::COUNT, Value("2"), "1" to "100";
        "Number of passed checks in a row after which an unhealthy server is used again.",
        "One check may pass by chance while a server starts.";
    HEALTH_UNHEALTHY_AFTER: u64 =
        OriginHealth "unhealthy_after", reader::COUNT, Value("3"), "1" to "100";
        "Number of failed checks in a row after which a server is not used.",
        "A single lost packet must not remove a server.";
    HEALTH_STATUSES: Vec<RangeInclusive<u16>> =
        OriginHealth "statuses", reader::STATUS_RANGES, Value(r#"["200-399"]"#);
        "Status codes of a passed check, as single codes or ranges.",
        "A redirect to a login page is an answer of a working server.";

    EJECT_FAILURES: u64 = OriginEject "failures", reader::COUNT, Value("5"), "0" to "10000";
        "Number of failed requests in a row that ejects a server: no connection, no valid response \
         head in time, or a status from 502 to 504. 0 turns ejection off.",
        "Fewer may be chance; more would be noticed by clients.";
    EJECT_FOR: Duration = OriginEject "for", reader::DURATION, Value(r#""10s""#),
        r#""100ms""# to r#""5m""#;
        "Time for which an ejected server gets no requests. The n-th ejection in a row takes n times \
         as long, at most 5 minutes.",
        "Longer than the restart of common servers.";
    EJECT_MAX_PERCENT: u64 =
        OriginEject "max_percent", reader::COUNT, Value("50"), "1" to "100";
        "Maximum percentage of the servers that may be ejected. One may always be, unless it is the \
         last usable one.",
        "The rest must be able to serve all requests.";
    EJECT_SLOW_START: Duration = OriginEject "slow_start", reader::DURATION, Value(r#""10s""#),
        r#""0s""# to r#""1h""#;
        "Time in which the share of a server grows from a tenth to the whole after it is used again; \
         0 turns this off.",
        "A server that has just started is slower at first.";

    RETRY_ATTEMPTS: u64 = OriginRetry "attempts", reader::COUNT, Value("1"), "0" to "5";
        "Maximum number of retries of one request, at another server if there is one; 0 turns retries \
         off. All are made within `fetch_timeout`.",
        "A second server rarely fails in the same moment.";
    RETRY_ON: Vec<RetryOn> =
        OriginRetry "on", reader::RETRY_ON, Value(r#"["connect", "closed"]"#);
        "Failures after which a request is sent again: `connect` (no connection: nothing was sent), \
         `closed` (connection closed before the response head), `timeout` (no response head; each \
         attempt has an equal part of `fetch_timeout`), `502`, `503`, `504`. Requests that are not \
         idempotent or have a body are sent again after `connect` only.",
        "The other failures may mean that the origin is overloaded.";
    RETRY_BUDGET_PERCENT: u64 =
        OriginRetry "budget_percent", reader::COUNT, Value("10"), "0" to "100";
        "Maximum number of retries, as a percentage of the requests to the origin in the last 10 \
         seconds; 3 per second are always possible.",
        "Retries do not multiply the load of an origin that fails.";

    BUDGET_IN_FLIGHT: u64 = OriginBudget "in_flight", reader::COUNT, Derived("no bound"),
        "1" to "1000000";
        "Maximum number of concurrent requests to the origin of all instances that share a tier for \
         this site. Without one, of this process.",
        "Only the operator knows what the origin can serve.";
    BUDGET_RATE: RequestRate = OriginBudget "rate", reader::REQUEST_RATE, Derived("no bound");
        "Maximum rate of requests to the origin of all instances, such as `200/s`. One batch, the \
         requests of 50 milliseconds, may come at once.",
        "Only the operator knows what the origin can serve.";

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
        "Exempts requests that memory answers from the limit. Requests that disk, Redis or the origin \
         answer count.",
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

    COMPRESS_ENABLED: bool = SiteCompress "enabled", reader::TRUTH, Value("false");
        "Compresses stored responses of `types` for clients that accept it. The origin is asked for \
         unencoded responses.",
        "Needs threads and memory, and many origins compress already.";
    COMPRESS_CODINGS: Vec<Coding> =
        SiteCompress "codings", reader::CODINGS, Value(r#"["zstd", "br", "gzip"]"#);
        "Content codings, in the order of preference among those that a client weighs equally.",
        "The order of the size of their results, for the same computation.";
    COMPRESS_TYPES: Vec<MediaTypePattern> = SiteCompress "types", reader::MEDIA_TYPES,
        Value(concat!(
            r#"["text/*", "application/json", "application/javascript", "application/xml", "#,
            r#""image/svg+xml", "application/wasm"]"#,
        ));
        "Media types that are compressed. A changed list applies to responses that are stored from \
         then on.",
        "Images, video and archives are compressed already.";
    COMPRESS_MIN: u64 = SiteCompress "min", reader::SIZE, Value(r#""1KiB""#),
        r#""1B""# to r#""8MiB""#;
        "Minimum length of a body that is compressed.",
        "A shorter one fits into one packet with its head.";
    COMPRESS_MAX: u64 = SiteCompress "max", reader::SIZE, Value(r#""8MiB""#),
        r#""1KiB""# to r#""256MiB""#;
        "Maximum length of a body that is compressed; at least `min`.",
        "A tenth of a second of one thread.";
    COMPRESS_PASS: bool = SiteCompress "pass", reader::TRUTH, Value("false");
        "Compresses responses that are not stored, too, each for its own client.",
        "Costs a computation per response, and lets attackers who see its length guess secrets in \
         it (BREACH).";
}

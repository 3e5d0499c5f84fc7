//! Options of a site.

use super::Preset::{Derived, Required, Value};
use crate::config::host::HostPattern;
use crate::config::origin_url::OriginUrl;
use crate::config::reader::{self, AccessLog};
use forebay_engine::TierErrors;
use forebay_semantics::Networks;
use http::{HeaderValue, Method};
use std::time::Duration;

options! {
    SITE_OPTIONS;

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
        "Sorts query parameters before lookup and fetch.",
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
        "Answers plain hits from memory on a shorter path: GET and HEAD without body, range or \
         `Connection` options. A small unshared response to such a GET takes it, too, except the first \
         one of a URL, in sites without rules, transforms, compression, rate limit, `no_vary_search` \
         and `server_timing`. Responses are the same on both paths.",
        "A hit costs about a third, an unshared response two thirds. `false` shows whether a defect \
         is in this path.";
    SITE_CLIENT_RELOADS_MAX: u32 = Site "client_reloads_max", reader::RATE,
        Derived("no limit");
        "Maximum number of requests per second that force a fetch although the entry is fresh \
         (`no-cache`, `max-age`, `min-fresh`), such as `\"10/s\"`; beyond it they get the fresh entry, \
         with `detail=reload-limited`.",
        "Only the site's operator knows whether clients may be refused a validated response.";
    SITE_STORE_SET_COOKIE: bool = Site "store_set_cookie", reader::TRUTH, Value("false");
        "Allows storing responses with `Set-Cookie`.",
        "A stored cookie would hand one client's session to all others.";
    SITE_SHARE_CODINGS: bool = Site "share_codings", reader::TRUTH, Value("false");
        "Serves responses with `Content-Encoding` but without `Vary: Accept-Encoding` to clients with \
         any `Accept-Encoding`. `false` stores them as if they had that `Vary`.",
        "Many servers compress without `Vary`, and a client that does not accept the encoding cannot \
         read the body.";
    SITE_HEURISTICS_WITH_COOKIE: bool =
        Site "heuristics_with_cookie", reader::TRUTH, Value("false");
        "Gives a response to a request with `Cookie` a lifetime by `Last-Modified`, `default_ttl` or \
         `negative_ttl`, although it has neither explicit freshness nor `public`. With `false`, such \
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
        "Honours `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875): the \
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
    SITE_ACCESS_LOG: AccessLog = Site "access_log", reader::ACCESS_LOG,
        Derived("that of the top level");
        "Format of the access log for requests of this site, or `off`.",
        "Most processes log all sites alike.";
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
    SITE_EARLY_HINTS: bool = Site "early_hints", reader::TRUTH, Value("false");
        "Sends `Link` fields of a stored response that may be served stale as 103 Early Hints \
         (RFC 8297) while the origin is asked: `preload`, `modulepreload` and `preconnect`, and only \
         to browsers that follow a link (`Sec-Fetch-Mode: navigate`).",
        "Some clients and proxies cannot read interim responses.";
    SITE_NO_VARY_SEARCH: bool = Site "no_vary_search", reader::TRUTH, Value("false");
        "Lets a response in memory with `No-Vary-Search` answer the queries that the field names. A \
         purge of a URL then reaches all such responses of its path.",
        "The field is a draft, and each purge of a URL records a tag.";
    SITE_SERVER_TIMING: bool = Site "server_timing", reader::TRUTH, Value("false");
        "Adds `Server-Timing` to responses: `cache;desc=hit`, `head;dur` and, if the origin was asked, \
         `origin;dur`, in milliseconds. Hits are then not answered on the shorter path \
         (`direct_hits`).",
        "Durations tell every client whether a response was cached, and how fast the origin is.";
    SITE_EXPOSE_ERRORS: bool = Site "expose_errors", reader::TRUTH, Value("false");
        "Includes the cause in error responses of the cache.",
        "Causes contain internal addresses.";
}

//! Caching HTTP reverse proxy as a library: accepts client connections, serves stored responses and
//! fetches from origins.
//!
//! | module | contents | may import |
//! |---|---|---|
//! | [`edge`] | client connections: start, HTTP/1.1 and HTTP/2, end | direct, service, response, client, request_guard |
//! | `direct` | plain hits, answered below the parser | service, load, site, stored, client, request_guard |
//! | [`service`] | processing of one request; read it first | response, load, site, origin, tunnel, client, metrics |
//! | `response` | responses from stored entries, bodies, error pages | load, stored, origin, tunnel, failure, record |
//! | `load` | the engine's loads over HTTP; invalidation by unsafe requests | origin, site, stored, client |
//! | `rules` | rules of a site, applied to a request and its responses | site, stored, client |
//! | `site` | sites, their table, keys, tags, purges by prefix | settings, origin, metrics |
//! | `origin` | connections to an origin, with all their timeouts | settings, tunnel, request_guard |
//! | `stored` | status and fields as stored; stored parts | |
//! | [`tunnel`] | tunnels that carry another protocol than HTTP; upgrades | metrics |
//! | [`metrics`] | Prometheus metrics | record, client, request_guard |
//! | `failure` | failures of requests, with their status codes | origin, request_guard |
//! | `phase` | phase of the process | |
//! | `record` | record of a response, made when it ends | client |
//! | `settings`, `authority` | settings of a site; host and port | |
//! | `endpoint_status`, `origin_status` | status of an origin server; load and budget of an origin, for reports | |
//! | [`explanation`] | explanation of a request, for reports | |
//! | `client` | client and connection of a request | |
//! | `warnings` | limit on warnings | |
//! | [`request_guard`] | guard below hyper's server: framing checks, limits and client timeouts | record |
//!
//! `cargo xtask tidy` checks that no cycle crosses these folders.
//!
//! Deliberately absent: listeners, signals and configuration files. The caller creates the sites
//! and the engine and passes them to the service.

mod authority;
mod client;
mod compress;
mod direct;
pub mod edge;
mod endpoint_status;
pub mod explanation;
mod failure;
mod head_writer;
mod load;
pub mod metrics;
mod origin;
mod origin_status;
mod phase;
mod record;
pub mod request_guard;
mod response;
mod rules;
pub mod service;
mod settings;
mod site;
mod stored;
pub mod transform;
pub mod tunnel;
mod warnings;

pub use authority::normalise_authority;
pub use client::peer::{AddressOrigin, ConnectionInfo, Peer, Role};
pub use endpoint_status::{EndpointStatus, OriginUsage};
pub use metrics::{DrainCut, Metrics};
pub use origin_status::BudgetStatus;
pub use phase::Phase;
pub use record::{
    AccessEntry, AccessLog, CacheResult, End, Feed, FeedEntry, IS_RECORDED, KeySample, KeySamples,
    LoadEntry, LoadExchange, LoadFeed, LoadSpan, MethodLabel, Outcome, RequestFields, RequestId,
    RequestSpan, SiteSlot, SpanExporter, TierEvent, TraceSettings, Tracer, hexadecimal, key_hash,
};
pub use response::body::ResponseBody;
pub use service::Service;
pub use service::explain::{ExplainRequest, LiveResponse};
pub use settings::{
    Balance, BreakerSettings, BudgetSettings, ClientAccess, CompressSettings, EjectionSettings,
    EndpointAddress, EndpointSettings, EndpointTls, Fallback, HealthCheckSettings, HostPattern,
    OptIns, OriginProtocols, OriginSettings, PhaseTimeouts, RateLimitSettings, RetryOn,
    RetrySettings, SharedBudget, SiteSettings,
};
pub use site::key;
pub use site::prefix_purge::PrefixError;
pub use site::table::Reloaded;
pub use site::{Site, Sites};
pub use stored::head;
pub use warnings::WarningLimits;

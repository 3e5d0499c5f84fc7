//! Caching HTTP reverse proxy as a library: accepts client connections, serves stored responses and
//! fetches from origins.
//!
//! | module | contents |
//! |---|---|
//! | [`service`] | processing of one request; read it first |
//! | `origin_request` | requests that memory did not answer: fetched, or forwarded |
//! | [`connection`] | client connections |
//! | [`request_guard`] | guard below hyper's server: framing checks, limits and client timeouts |
//! | `site` | settings of one origin, and the selection of the site for a request |
//! | `site_table` | active sites, and their replacement by a reload |
//! | [`prefix_purge`] | purges by prefix, resolved for each site |
//! | [`key`] | primary key of a request, and the forwarded target |
//! | `load` | loads from an origin, and the interpretation of the response |
//! | `origin` | connections to an origin, with all their timeouts |
//! | [`head`] | status and fields of a stored response |
//! | [`deliver`] | response from a stored entry: age, status, 304, ranges, HEAD |
//! | `upgrade` | protocol upgrades |
//! | [`tunnel`] | tunnels that carry another protocol than HTTP |
//! | [`edge`] | connection and client of a request, PROXY protocol |
//! | `failure` | error responses |
//! | [`forward`] | requests that bypass the cache |
//! | `invalidate` | invalidation by unsafe requests |
//! | `by_body` | requests whose key includes their body |
//! | `tags` | tags by which a response can be purged |
//! | `partial` | stored partial responses |
//! | `response_body` | response bodies |
//! | `warnings` | limit on warnings per site |
//! | [`metrics`] | Prometheus metrics |
//!
//! Deliberately absent: listeners, signals and configuration files. The caller creates the sites
//! and the engine and passes them to the service.

mod by_body;
pub mod connection;
pub mod deliver;
mod direct;
pub mod edge;
mod failure;
pub mod forward;
pub mod head;
mod invalidate;
pub mod key;
mod load;
pub mod metrics;
mod origin;
mod origin_request;
mod partial;
mod phase;
pub mod prefix_purge;
pub mod request_guard;
mod response_body;
pub mod service;
mod site;
mod site_table;
mod tags;
pub mod tunnel;
mod upgrade;
mod warnings;

pub use edge::peer::{ConnectionInfo, Peer};
pub use failure::Fallback;
pub use metrics::{DrainCut, Metrics};
pub use origin::settings::{
    BreakerSettings, EndpointAddress, EndpointSettings, EndpointTls, OriginSettings, PhaseTimeouts,
};
pub use phase::Phase;
pub use prefix_purge::PrefixError;
pub use response_body::ResponseBody;
pub use service::{ACCESS, Service};
pub use site::{ClientAccess, HostPattern, OptIns, Site, SiteSettings, Sites};
pub use site_table::Reloaded;

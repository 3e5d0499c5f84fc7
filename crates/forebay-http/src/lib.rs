//! Caching HTTP reverse proxy as a library: accepts client connections, serves stored responses and
//! fetches from origins.
//!
//! | module | contents |
//! |---|---|
//! | [`service`] | processing of one request; read it first |
//! | `errand` | what has to go to the origin: fetched, or forwarded |
//! | [`connection`] | client connections |
//! | [`request_guard`] | guard below hyper's server: framing checks, limits and client timeouts |
//! | [`site`] | settings of one origin, and the selection of the site for a request |
//! | `site_table` | active sites, and their replacement by a reload |
//! | [`below`] | what a purge by prefix means for each site |
//! | [`key`] | primary key of a request, and the forwarded target |
//! | `load` | loads from an origin, and the interpretation of the response |
//! | [`origin`] | connections to an origin, with all their timeouts |
//! | [`head`] | status and fields of an answer, as an entry keeps them |
//! | [`deliver`] | entry to response: age, status, 304, ranges, HEAD |
//! | `upgrade` | protocol upgrades |
//! | [`tunnel`] | tunnels that carry another protocol than HTTP |
//! | [`failure`] | error responses |
//! | [`forward`] | what never touches the cache, and what it invalidates |
//! | `invalidate` | what the answer to an unsafe request makes invalid |
//! | `by_body` | requests whose answers are stored for their bodies |
//! | `tags` | by what an answer can be purged beside its key |
//! | `partial` | parts of a body that are stored without the rest |
//! | [`response_body`] | response bodies |
//! | `warnings` | limit on warnings per site |
//! | [`metrics`] | Prometheus metrics |
//!
//! Deliberately absent: listeners, signals and configuration files. The caller creates the sites
//! and the engine and passes them to the service.

pub mod below;
mod by_body;
pub mod connection;
pub mod deliver;
mod errand;
pub mod failure;
pub mod forward;
pub mod head;
mod invalidate;
pub mod key;
mod load;
pub mod metrics;
pub mod origin;
mod partial;
pub mod request_guard;
pub mod response_body;
pub mod service;
pub mod site;
mod site_table;
mod tags;
pub mod tunnel;
mod upgrade;
mod warnings;

pub use below::PrefixError;
pub use metrics::Metrics;
pub use response_body::ResponseBody;
pub use service::{ACCESS, Service};
pub use site::{HostPattern, OptIns, OriginSettings, Site, SiteSettings, Sites};
pub use site_table::Reloaded;

//! Caching HTTP reverse proxy as a library: accepts client connections, serves stored responses and
//! fetches from origins.
//!
//! | module | contents |
//! |---|---|
//! | [`service`] | dispatch of requests, and the hit path; read it first |
//! | `origin_request` | requests that memory did not answer: fetched, or forwarded |
//! | [`connection`] | client connections |
//! | [`request_guard`] | validation and limits below hyper's server |
//! | [`site`] | settings of a site, and the requests that belong to it |
//! | `site_table` | all sites, replaced by a reload |
//! | [`prefix_purge`] | purges by prefix, translated for each site |
//! | [`key`] | primary key of a request, and the target that is forwarded |
//! | `load` | loads of the engine over HTTP, and the evaluation of responses |
//! | [`origin`] | connections to an origin, with their timeouts |
//! | [`head`] | status and fields of a stored response |
//! | [`deliver`] | response from an entry: age, status, 304, ranges, HEAD |
//! | `upgrade` | protocol upgrades |
//! | [`tunnel`] | tunnels that carry another protocol than HTTP |
//! | [`failure`] | error responses |
//! | [`forward`] | requests that bypass the cache |
//! | `invalidate` | invalidation after an unsafe request |
//! | `by_body` | keys of responses that are stored by request body |
//! | `tags` | tags of a stored response |
//! | `partial` | stored parts of a body |
//! | [`response_body`] | response bodies |
//! | `warnings` | limit on warnings per site |
//! | [`metrics`] | Prometheus metrics |
//!
//! Deliberately absent: listeners, signals and configuration files. The caller creates the sites
//! and the engine and passes them to the service.

mod by_body;
pub mod connection;
pub mod deliver;
pub mod failure;
pub mod forward;
pub mod head;
mod invalidate;
pub mod key;
mod load;
pub mod metrics;
pub mod origin;
mod origin_request;
mod partial;
pub mod prefix_purge;
pub mod request_guard;
pub mod response_body;
pub mod service;
pub mod site;
mod site_table;
mod tags;
pub mod tunnel;
mod upgrade;
mod warnings;

pub use metrics::Metrics;
pub use prefix_purge::PrefixError;
pub use response_body::ResponseBody;
pub use service::{ACCESS, Service};
pub use site::{HostPattern, OptIns, OriginSettings, Site, SiteSettings, Sites};
pub use site_table::Reloaded;

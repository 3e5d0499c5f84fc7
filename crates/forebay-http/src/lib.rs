//! The caching HTTP proxy as a service: requests in, responses out.
//!
//! | file | holds |
//! |---|---|
//! | [`service`] | the story of one request; read it first |
//! | `errand` | what has to go to the origin: fetched, or forwarded |
//! | [`connection`] | one client connection, from its first byte to its last |
//! | [`request_guard`] | the guard below hyper's server: what may come in at all |
//! | [`site`] | one origin's settings, and which request belongs to it |
//! | `site_table` | all sites at this moment, and what a reload makes of them |
//! | [`below`] | what a purge by prefix means for each site |
//! | [`key`] | request to primary key, and the target as it is forwarded |
//! | `load` | how the engine asks an origin, and what the answer means |
//! | [`origin`] | connections to an origin, with all their timeouts |
//! | [`head`] | status and fields of an answer, as an entry keeps them |
//! | [`deliver`] | entry to response: age, status, 304, ranges, HEAD |
//! | `upgrade` | which other protocol a request asks for, and who agreed to it |
//! | [`tunnel`] | two connections joined, once HTTP is over |
//! | [`failure`] | when there is no answer: 502, 503, 504 and their words |
//! | [`forward`] | what never touches the cache, and what it invalidates |
//! | `invalidate` | what the answer to an unsafe request makes invalid |
//! | `by_body` | requests whose answers are stored for their bodies |
//! | `tags` | by what an answer can be purged beside its key |
//! | `partial` | parts of a body that are stored without the rest |
//! | [`response_body`] | the body of a response |
//! | `warnings` | a bound on what is logged |
//! | [`metrics`] | what is counted |
//!
//! Deliberately absent: listeners, signals, configuration files. The service is handed its sites
//! and its engine, and knows nothing of where they came from.

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

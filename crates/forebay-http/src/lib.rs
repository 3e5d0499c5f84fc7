//! The caching HTTP proxy as a service: requests in, responses out.
//!
//! | file | holds |
//! |---|---|
//! | [`service`] | the story of one request; read it first |
//! | `origin_request` | requests that memory did not answer: fetched, or forwarded |
//! | [`connection`] | one client connection, from its first byte to its last |
//! | [`front`] | the guard below hyper's server: what may come in at all |
//! | [`site`] | one origin's settings, and which request belongs to it |
//! | `roster` | all sites at this moment, and what a reload makes of them |
//! | [`prefix_purge`] | purges by prefix, translated for each site |
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
//! | [`outgoing`] | the body of a response |
//! | `warnings` | a bound on what is logged |
//! | [`metrics`] | what is counted |
//!
//! Deliberately absent: listeners, signals, configuration files. The service is handed its sites
//! and its engine, and knows nothing of where they came from.

mod by_body;
pub mod connection;
pub mod deliver;
pub mod failure;
pub mod forward;
pub mod front;
pub mod head;
mod invalidate;
pub mod key;
mod load;
pub mod metrics;
pub mod origin;
mod origin_request;
pub mod outgoing;
mod partial;
pub mod prefix_purge;
mod roster;
pub mod service;
pub mod site;
mod tags;
pub mod tunnel;
mod upgrade;
mod warnings;

pub use metrics::Metrics;
pub use outgoing::Outgoing;
pub use prefix_purge::PrefixError;
pub use roster::Reloaded;
pub use service::{ACCESS, Service};
pub use site::{HostPattern, OptIns, OriginSettings, Site, SiteSettings, Sites};

//! Cost of a request to the proxy: hits, passes, misses, and the memory of a stored object.
//!
//! Each server has one core, the load generator and the origin another; the servers take turns, so
//! that other load of the machine falls on all of them. The CPU time per request does not depend on
//! the speed of the load generator. Figures with bounds are medians of the ratios of the rounds.
//!
//! | file | contents |
//! |---|---|
//! | `hit.rs` | hits of 1 KiB and 1 MiB, 304, pipelining, many connections |
//! | `routes.rs` | three routes of a published measurement |
//! | `pass.rs` | responses that are not stored, and responses that are stored for the first time |
//! | `objects.rs` | resident memory of a stored object |
//! | `servers.rs` | forebay, nginx, HAProxy and Varnish, each with one thread |
//! | `traffic_server.rs` | Apache Traffic Server with one network thread |
//! | `raw.rs` | server without a parser: the floor, and the origin of the others |
//! | `load.rs` | the load generator, and CPU times |

pub(crate) mod hit;
pub(crate) mod load;
pub(crate) mod objects;
pub(crate) mod pass;
pub(crate) mod raw;
pub(crate) mod routes;
pub(crate) mod servers;
mod traffic_server;

//! Compression of responses at the edge.
//!
//! The origin is asked for unencoded responses, and one of them is stored. The second hit that wants
//! it in a coding has a derived form made, on a thread of the [pool](pool::CompressPool); the entry
//! keeps it in memory. Until then, and if the queue is full, clients get the unencoded response:
//! no request waits for a compression.
//!
//! | file | contents |
//! |---|---|
//! | `choose.rs` | the form for a client |
//! | `stored.rs` | heads of stored responses that may have forms |
//! | `job.rs`, `pool.rs` | making a form; threads and their queue |
//! | `encoder.rs` | the codecs |
//!
//! This folder uses `stored`, `settings` and `metrics`; it never sees a site, a request to an origin
//! or a response to a client.

pub(crate) mod choose;
pub(crate) mod encoder;
pub(crate) mod job;
pub(crate) mod pool;
pub(crate) mod stored;

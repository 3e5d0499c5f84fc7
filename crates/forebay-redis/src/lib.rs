//! A tier in Redis or Valkey that several instances share. Its content is untrusted.
//!
//! | module | content |
//! |---|---|
//! | [`tier`] | the tier: reads, writes and removals; read it first |
//! | `entry_writer` | writer of one entry |
//! | `link` | one connection, and the commands sent over it |
//! | `read_connection` | read-only connections, driven on the reader's runtime |
//! | `endpoint` | state of one endpoint, and its operations with their timeouts |
//! | `watch` | connecting, checking and reconnecting |
//! | `target` | connection settings of a single server, a Cluster or Sentinels |
//! | [`settings`] | settings of the tier |
//! | [`envelope`] | format of a value: length, digest, signature, compressed frame |
//! | `server_clock` | estimate of the server's clock between heartbeats |
//! | [`pack`] | compression and its bounds |
//! | `names` | names in Redis |
//! | `pending_removals`, `pending_purges` | removals and purges that an endpoint has not received |
//! | `tombstones` | recent purges that a server may lack after a failover |
//! | `lease` | leases: one instance at a time loads a key |
//! | `wakeups` | waiters for other instances' loads, and the messages that wake them |
//! | `bus` | the stream of purges, and the detection of missed ones |
//! | `generation` | purges by tag, by site or of everything |
//! | `purge_check` | purge state of entries that are read or stored |
//! | `tracking` | changes by other programs |
//! | `scripts` | Lua scripts |
//! | `sharing` | settings and state for sharing leases and purges |
//! | [`counts`] | counters, endpoint states, events for the operator |
//! | [`error`] | errors by their consequence |
//!
//! Deliberately absent: the circuit breaker (the engine has it; here each operation only has its
//! timeout), the use of leases and notices (also the engine's), and trust in stored data.

mod bus;
pub mod counts;
mod endpoint;
mod entry_writer;
pub mod envelope;
pub mod error;
mod generation;
mod lease;
mod link;
mod names;
pub mod pack;
mod pending_purges;
mod pending_removals;
mod purge_check;
mod read_connection;
mod scripts;
mod server_clock;
pub mod settings;
mod sharing;
mod target;
pub mod tier;
mod tombstones;
mod tracking;
mod wakeups;
mod watch;

pub use counts::{Counts, EndpointState, Notice, NoticeListener, SharingState};
pub use envelope::{SealKey, Sealing, Undecodable};
pub use error::Error;
pub use pack::{Codec, Packing};
pub use settings::{
    EndpointSettings, Login, Servers, Settings, SettingsError, TlsSettings, address_of,
    check_namespace,
};
pub use sharing::{LeaseTerms, SharingSettings};
pub use tier::Redis;

//! A tier in Redis or Valkey that several instances share. Its content is untrusted.
//!
//! | module | content | may import |
//! |---|---|---|
//! | [`tier`] | the tier: reads, writes and removals; read it first | bus, lease, state, connection, entry, settings |
//! | `lease` | leases: one instance at a time loads a key | bus, state, connection, entry, settings |
//! | `origin_budget` | budgets of origins: claims of all instances | state, connection, entry |
//! | `bus` | the stream of purges, detection of missed ones, checks of entries; changes by other programs | state, connection, purges, entry |
//! | `state` | state of one tier: endpoints, bus position, held leases, known stamps | connection, purges, entry, settings |
//! | `connection` | endpoints, their monitoring and connections, Lua scripts, wake-up messages | purges, entry, settings |
//! | `purges` | generations; removals and purges that an endpoint has not received; tombstones | entry |
//! | [`settings`] | settings of the tier, and of sharing with other instances | entry |
//! | `entry` | format of a value, compression and its bounds, names in Redis | |
//! | [`counts`] | counters, endpoint states, events for the operator | entry |
//! | [`error`] | errors by their consequence | |
//!
//! `cargo xtask tidy` checks that no cycle crosses these folders.
//!
//! Deliberately absent: the circuit breaker (the engine has it; here each operation only has its
//! timeout), the use of leases and notices (also the engine's), and trust in stored data.

mod bus;
mod connection;
pub mod counts;
mod entry;
pub mod error;
mod lease;
mod origin_budget;
mod purges;
pub mod settings;
mod state;
pub mod tier;

pub use counts::{Counts, EndpointState, Notice, NoticeListener, SharingState};
pub use entry::envelope::{self, SealKey, Sealing, Undecodable};
pub use entry::pack::{self, Codec, Packing};
pub use error::Error;
pub use settings::sharing::{LeaseTerms, SharingSettings};
pub use settings::{
    EndpointSettings, Login, Servers, Settings, SettingsError, TlsSettings, address_of,
    check_namespace,
};
pub use state::Redis;

//! A tier in Redis or Valkey: shared by machines, trusted by none.
//!
//! | file | holds |
//! |---|---|
//! | [`tier`] | the tier itself: reading, writing, removing; read it first |
//! | `link` | one connection, and the four things that are asked over it |
//! | `endpoint` | one endpoint: whether it answers, and operations within its time |
//! | `watch` | connecting, asking whether somebody is there, connecting again |
//! | `target` | a single server, a Cluster, or whom Sentinels name |
//! | [`settings`] | what a tier is told |
//! | [`envelope`] | the bytes of a value: length, digest, signature, packed frame |
//! | `server_clock` | what a server's clock shows, without asking it each time |
//! | [`pack`] | compression, and its bounds |
//! | `names` | what an entry is called in Redis |
//! | `debts` | what an endpoint must not have any more |
//! | [`counts`] | what is counted, and what an operator is told |
//! | [`trouble`] | what can be wrong, by what comes of it |
//!
//! Deliberately absent: the guard against a slow tier (the engine has it; here each operation has
//! its endpoint's time and no more), leases for loads and the bus between instances (the names of
//! leases are there, and claimed for each writing), and any trust in what is read.

pub mod counts;
mod debts;
mod endpoint;
pub mod envelope;
mod link;
mod names;
pub mod pack;
mod server_clock;
pub mod settings;
mod target;
pub mod tier;
pub mod trouble;
mod watch;

pub use counts::{Counts, EndpointState, Notice, Witness};
pub use envelope::{SealKey, Sealing, Undecodable};
pub use pack::{Codec, Packing};
pub use settings::{
    EndpointSettings, Login, Servers, Settings, SettingsError, TlsSettings, address_of,
    check_namespace,
};
pub use tier::Redis;
pub use trouble::Trouble;

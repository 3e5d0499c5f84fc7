//! A tier in Redis or Valkey: shared by machines, trusted by none.
//!
//! | file | holds |
//! |---|---|
//! | [`tier`] | the tier itself: reading, writing, removing; read it first |
//! | `filling` | an entry on its way into Redis |
//! | `link` | one connection, and the four things that are asked over it |
//! | `endpoint` | one endpoint: whether it answers, and operations within its time |
//! | `watch` | connecting, asking whether somebody is there, connecting again |
//! | `target` | a single server, a Cluster, or whom Sentinels name |
//! | [`settings`] | what a tier is told |
//! | [`envelope`] | the bytes of a value: length, digest, signature, packed frame |
//! | `server_clock` | what a server's clock shows, without asking it each time |
//! | [`pack`] | compression, and its bounds |
//! | `names` | what an entry is called in Redis |
//! | `debts`, `purge_debts` | what an endpoint must not have any more, and has not been told |
//! | `tombstones` | purges that a server which takes over may not know of |
//! | `lease` | the right to load, held by one instance at a time |
//! | `wakeups` | who waits here for another instance, and is woken |
//! | `bus` | purges: told, heard, and whether any may have been missed |
//! | `generation` | what purges end that name no single key |
//! | `vet` | what they make of an entry that is read, or to be stored |
//! | `tracking` | what other programs remove or write over, heard without a word of theirs |
//! | `scripts` | what Redis is asked to do in one step |
//! | `sharing` | what a tier has for all that |
//! | [`counts`] | what is counted, and what an operator is told |
//! | [`error`] | what can be wrong, by what comes of it |
//!
//! Deliberately absent: the guard against a slow tier (the engine has it; here each operation has
//! its endpoint's time and no more), what is done with a lease or a notice (the engine's, too), and
//! any bus_silence_max in what is read.

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

//! The tier against real servers.
//!
//! | module | claims |
//! |---|---|
//! | `entries` | entries go in and come out, for as long as they may, under their own names |
//! | `damaged` | whatever else stands there is a miss with a reason, and costs little |
//! | `writes` | no write becomes visible after its writer has given up, or after a removal |
//! | `trouble` | servers that are slow, frozen, gone, or of another mind |
//! | `modes` | sockets, users, TLS, a Cluster, Sentinels |
//! | `bus` | purges reach every instance, and who may have missed one knows it |
//! | `resume` | a process goes on where an earlier one has left the bus, or says that it cannot |
//! | `failover` | what was acknowledged survives a server that had not passed it on |
//! | `histories` | whatever fails, nobody is given what was purged longer ago than the bound |
//! | `tracking` | what other programs remove or write over is heard, where that is asked for |
//! | `leases` | one instance loads, the others are woken |
//! | `looks` | the first look of who may load is one exchange, whatever stands there |
//! | `read_connections` | a connection for readings costs nobody an answer, and nobody's memory |
//! | `engine` | below an engine: shared by instances, and never in anybody's way |
#![expect(clippy::print_stdout, reason = "the seed and the counts of a run")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bus;
mod damaged;
mod engine;
mod entries;
mod failover;
mod faults;
mod fixture;
mod histories;
mod leases;
mod lookups;
mod modes;
mod read_connections;
mod resume;
mod tracking;
mod writes;

//! The Redis tier against real servers.
//!
//! | module | claim |
//! |---|---|
//! | `entries` | entries are stored and read with metadata, TTL and age |
//! | `damaged` | other data is a miss with a counted reason, and costs little |
//! | `writes` | no write becomes visible after its writer gave up, or after a removal |
//! | `faults` | servers that are slow, frozen, gone or refusing |
//! | `modes` | sockets, users, TLS, a Cluster, Sentinels |
//! | `bus` | purges reach every instance, and a missed one is detected |
//! | `resume` | a process resumes at a saved bus position, or reports a gap |
//! | `failover` | an acknowledged purge survives a server that had not replicated it |
//! | `histories` | no purged entry is served for longer than the bound |
//! | `origin_budget` | the parts of a budget never exceed it |
//! | `tracking` | changes by other programs are received, if enabled |
//! | `leases` | one instance loads, the others are woken |
//! | `lookups` | a first lookup takes one round trip |
//! | `read_connections` | a failing read-only connection costs no reply and no memory |
//! | `engine` | shared by instances below their engines |

#![expect(clippy::print_stdout, reason = "the seed and the counts of a run")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bus;
mod conformance;
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
mod origin_budget;
mod read_connections;
mod resume;
mod tracking;
mod writes;

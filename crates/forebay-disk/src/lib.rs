//! The disk tier: entries survive the process, and large bodies are not held in memory.
//!
//! | module | content |
//! |---|---|
//! | `tier` | implementation of the engine's tier trait; read it first |
//! | `open` | opening and closing a directory, and their errors |
//! | `draft` | writer of one entry |
//! | `read`, `bodies` | lookup of an entry; separate body files |
//! | `buffers` | reusable read buffers |
//! | `index` | locations of all entries |
//! | `queue`, `writer` | queued operations, and the writing thread |
//! | `log`, `segment` | appending and removing records; the open segment |
//! | `batch` | group commit |
//! | `partial_bodies`, `eviction` | writing separate bodies; evicting segments |
//! | `load`, `scan` | loading segments of earlier sessions |
//! | `fuzz_support` | segments built from a script, for the fuzz target |
//! | `layout`, `root` | the file format |
//! | `purge_marks`, `prefixes` | purges that name no single key |
//! | `bookmark` | saved bus position |
//! | `residence` | residence time of entries |
//! | `counts` | counters and health |
//! | `pool`, `io` | threads for blocking reads; file system access |
//!
//! One thread writes and owns the state for writing; four threads read. No request's thread waits
//! for the disk: records in the page cache are read at once, others by those threads.
//! `docs/disk.md` states the assumptions about the file system.
//!
//! Deliberately absent: HTTP, and the engine's rules. Damaged data is a miss.

mod batch;
mod bodies;
mod bookmark;
mod buffers;
mod counts;
mod draft;
mod eviction;
#[cfg(test)]
mod fault_tests;
#[doc(hidden)]
pub mod fuzz_support;
mod index;
mod io;
mod layout;
mod load;
mod log;
mod open;
mod partial_bodies;
mod pool;
mod prefixes;
mod purge_marks;
mod queue;
mod read;
mod residence;
mod root;
mod scan;
mod segment;
mod shared;
mod tier;
mod writer;

pub use counts::{Condition, Counts};
pub use open::{Disk, Limits, OpenError};

//! The disk tier: what was stored outlives the process, and large bodies do not live in memory.
//!
//! | file | holds |
//! |---|---|
//! | `tier` | the tier as the engine sees it; read it first |
//! | `open` | opening and closing a directory; what can go wrong |
//! | `draft` | an entry on its way in |
//! | `read`, `bodies` | an entry on its way out; bodies in files of their own |
//! | `buffers` | memory for what is read, used again |
//! | `index` | where each entry stands |
//! | `queue`, `scribe` | what is to be written, and the one thread that writes |
//! | `log`, `segment` | appending and removing; the segment that is open |
//! | `batch` | entries that are written together |
//! | `parts`, `room` | bodies in files of their own, written; making room |
//! | `load`, `scan` | what earlier lives have left |
//! | `rehearse` | segments made of a script, for the fuzz target |
//! | `layout`, `root` | the bytes: the specification of the format |
//! | `marks`, `prefixes` | purges that name no single key |
//! | `bookmark` | how far the bus has been followed |
//! | `life` | how long an entry has lain here |
//! | `counts` | what has happened, and how the tier is |
//! | `pool`, `io` | threads that wait for the disk; the file system |
//!
//! One thread writes, and owns all that belongs to writing; a few read. Nobody who serves requests
//! waits for the disk: what is in memory already is read at once, the rest by those threads.
//! `docs/disk.md` says what is assumed of the file system.
//!
//! Deliberately absent: HTTP, and the engine's rules. Whatever is damaged here is a miss.

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

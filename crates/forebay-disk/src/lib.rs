//! The disk tier: entries survive the process, and large bodies are not held in memory.
//!
//! | module | content | may import |
//! |---|---|---|
//! | `tier` | implementation of the engine's tier trait; read it first | open, read, write, shared |
//! | `open` | opening and closing a directory | write, load, shared, index, format, files |
//! | `write` | drafts of entries; the thread that writes, commits and evicts | load, read, shared, format, files |
//! | `read` | lookup of an entry; files of separate bodies | shared, format, files |
//! | `load` | loading segments of earlier sessions | shared, format, files |
//! | `shared` | state of all threads; queued operations | index, format, files |
//! | `index` | locations of all entries; purges that name no single key; residence time | format |
//! | `format` | on-disk format | files |
//! | `files` | file system access, threads for blocking reads, read buffers | |
//! | `counts`, `error`, `limits` | counters and health, errors, size limits | |
//! | `fuzz_support` | segments built from a script, for the fuzz target | format, files |
//!
//! `cargo xtask tidy` checks that no cycle crosses these folders.
//!
//! One thread writes and owns the state for writing; four threads read. No request's thread waits
//! for the disk: records in the page cache are read at once, others by those threads.
//! `docs/disk.md` states the assumptions about the file system.
//!
//! Deliberately absent: HTTP, and the engine's rules. Damaged data is a miss.

mod counts;
mod error;
#[cfg(test)]
mod fault_tests;
mod files;
mod format;
#[doc(hidden)]
pub mod fuzz_support;
mod index;
mod limits;
mod load;
mod open;
mod read;
mod shared;
mod tier;
mod write;

pub use counts::{Condition, Counts};
pub use error::OpenError;
pub use limits::{INDEX_WAIT_MAX, Limits};
pub use open::Disk;

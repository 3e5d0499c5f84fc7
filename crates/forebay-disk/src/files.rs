//! Access to the file system: file operations, threads for blocking reads, and read buffers.
//!
//! File operations are a trait, so that tests replace them by faults. This folder uses `error`; it
//! never sees file names, formats, entries or the index.

pub(crate) mod buffers;
pub(crate) mod io;
pub(crate) mod pool;

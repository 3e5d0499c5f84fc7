//! Write path: drafts of entries, and the thread that appends records, commits and evicts.
//!
//! A draft collects one entry and queues it; [`writer`] takes operations from the queue and applies
//! them to the [`log`]. This folder uses `shared`, `read` (for files of separate bodies), `load`,
//! `format` and `files`; it never sees the tier trait's lookups.

pub(crate) mod draft;
pub(crate) mod log;
pub(crate) mod writer;

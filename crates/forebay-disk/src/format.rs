//! On-disk format: file names, records, segments, the root file and the saved bus position.
//!
//! This folder encodes and decodes. It uses `files`, and `error` for a directory of another version;
//! it never sees the index, the queue or the threads.

pub(crate) mod bookmark;
pub(crate) mod dir;
pub(crate) mod layout;
pub(crate) mod root;
pub(crate) mod scan;

//! Value of an entry in Redis: its name, its encoding as untrusted input, and its compression.
//!
//! This folder uses no other; it never sees a connection.

pub mod envelope;
pub(crate) mod names;
pub mod pack;

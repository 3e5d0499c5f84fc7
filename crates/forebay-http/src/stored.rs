//! Stored form of responses: status and fields as an entry's head, and parts of a body.
//!
//! This folder uses no other; it never sees requests or origins.

pub mod head;
pub(crate) mod partial;

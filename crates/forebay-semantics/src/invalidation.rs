//! Invalidation by POST, PUT and DELETE, and cache groups.
//!
//! This folder uses `message`, `directives` and `fields`; it never sees stored entries.

pub mod groups;
pub mod unsafe_methods;

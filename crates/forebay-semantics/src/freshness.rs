//! Freshness: lifetime and age of a response, and the requirements of a request.
//!
//! This folder uses `message`, `directives` and `fields`; it never sees stored entries.

pub mod demand;
pub mod lifetime;

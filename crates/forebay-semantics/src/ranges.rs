//! Byte ranges: requested, sent together, stored and combined.
//!
//! This folder uses `message`, `variants`, `validation`, `freshness` and `fields`.

pub mod multipart;
pub mod partial;
pub mod range;

//! Tiers of all sites or of one, and instances that share a tier: opening, health, metrics.
//!
//! This folder uses `config` and `settings`; it never sees listeners.

pub(crate) mod because;
pub(crate) mod cluster;
pub(crate) mod disk;
pub(crate) mod shared;

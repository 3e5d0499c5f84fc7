//! Tiers as the builder takes them: what they need and report, and the disk and Redis tiers.
//!
//! This folder uses no other; it never sees caches or values.

#[cfg(feature = "disk")]
pub(crate) mod disk;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod tier_config;

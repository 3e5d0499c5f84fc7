//! Generations of purges by tag, site or prefix, and removals and purges that an endpoint still needs.
//!
//! This folder uses `entry` (names); it never sees a connection.

pub(crate) mod generation;
pub(crate) mod pending_purges;
pub(crate) mod pending_removals;
pub(crate) mod tombstones;

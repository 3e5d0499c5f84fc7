//! Record of purges: those of this instance, those of others, and how far the record can be trusted.
//!
//! It answers one question about an entry: which purges have affected it. It uses `tiers` (bus,
//! bookmarks) and `runtime`; it never sees memory, flights or loads, and removes nothing itself.

pub(crate) mod bus_progress;
pub(crate) mod cluster;
pub(crate) mod watch;

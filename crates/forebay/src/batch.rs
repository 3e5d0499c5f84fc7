//! Calls for many keys: batch loads, batched reads of tiers, warm-up.
//!
//! This folder uses `cache`, `answer` and `error`.

pub(crate) mod batched_reads;
pub(crate) mod many;
pub(crate) mod warm;

//! Tests of the library through its public API, with counting loaders that wait at gates, a manual
//! clock, and seeded random numbers.
//!
//! | module | subject |
//! |---|---|
//! | `basics` | values, bounds, statistics |
//! | `ratio` | hit ratio of a cache smaller than its working set |
//! | `stampede` | request coalescing, with dropped callers, errors and panics |
//! | `answers` | answers of loaders, and the previous entry that they read |
//! | `options` | options of single calls |
//! | `stale` | lifetimes, refreshes, fallbacks, timeouts |
//! | `clocks` | a wall clock that jumps while entries are stored |
//! | `lifetimes` | adaptive, sliding and scheduled lifetimes |
//! | `early` | misses that early refresh avoids under load, and its probability |
//! | `invalidation` | removal, soft purge, and purge by tag |
//! | `versions` | versioned writes |
//! | `load_cycles` | cycles of loads that wait for other loads |
//! | `many`, `warming` | batches; cache warming |
//! | `shapes` | types that loaders may return, and types of their errors |
//! | `ends` | dropped caches and callers, runtimes that shut down, and calls without a runtime |
//! | `extremes` | longest durations, invalid numbers, keys of all lengths |
//! | `why` | reasons of misses, tier counters and explanations |
//! | `cached` | the attribute `#[forebay::cached]` |
//! | `real_tiers` | disk and Redis tiers |
//! | `cluster`, `processes` | caches that share a Redis, in one process and in several |
//! | `golden` | values that earlier versions have written |
//! | `tier_conformance` | conformance test of tiers |
//! | `tiers` | lower tiers, and the values in them |
//! | `once` | one copy in memory with tiers, and repeated writes to tiers |
//! | `flush` | `Cache::flush` |
//!
//! No test sleeps for a fixed time.

mod answers;
mod basics;
mod cached;
mod clocks;
mod cluster;
mod early;
mod ends;
mod extremes;
mod flush;
mod golden;
mod invalidation;
mod lifetimes;
mod load_cycles;
mod many;
mod once;
mod options;
mod processes;
mod ratio;
mod real_tiers;
mod shapes;
mod stale;
mod stampede;
mod tier_conformance;
mod tiers;
mod versions;
mod warming;
mod why;
mod world;

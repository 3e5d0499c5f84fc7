//! The library through its public door: loaders that count and wait at gates, a clock that is
//! moved by hand, and dice that are seeded.
//!
//! | module | claims |
//! |---|---|
//! | `basics` | values, bounds, statistics |
//! | `ratio` | what part of the calls are hits where not all fits |
//! | `stampede` | one load per key, whoever comes, goes, fails or panics |
//! | `answers` | what a loader can answer, and what it is told |
//! | `options` | what one call wants differently |
//! | `stale` | lifetimes, refreshes, fallbacks, timeouts |
//! | `clocks` | a date that jumps while entries are stored |
//! | `lifetimes` | lifetimes that grow, slide, or end at an hour of the day |
//! | `early` | what early refresh spares under load, and when it begins |
//! | `invalidation` | what was removed is not seen again |
//! | `versions` | the newest version stays, in whatever order they come |
//! | `nested` | loads that wait for loads |
//! | `many`, `warming` | batches; filling a cache before it is asked |
//! | `shapes` | loaders as users write them: what they bring, what they fail by |
//! | `ends` | caches, runtimes and callers that come to their end; no runtime at all |
//! | `extremes` | the longest spans, numbers that are none, keys of all lengths |
//! | `why` | why a call was no hit, in numbers and in words |
//! | `cached` | functions whose answers are cached |
//! | `real_tiers` | a directory and a Redis below memory |
//! | `cluster`, `processes` | caches that share a Redis: in one process, and in several |
//! | `golden` | what versions before this one have written |
//! | `tiers` | tiers below memory, and what is written in them |
//! | `once` | what memory holds of a value where there are tiers, and what is written anew |
//! | `flush` | waiting until nothing is under way |
//!
//! No test waits for time to pass.

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
mod tiers;
mod versions;
mod warming;
mod why;
mod world;

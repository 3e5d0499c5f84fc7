//! The engine through its public door: an origin that answers by script, a clock that moves only
//! when it is stepped, and counters for everything that is claimed.
//!
//! | module | claims |
//! |---|---|
//! | `stampede` | one load per key, whoever comes, goes, fails or panics |
//! | `demand` | what a caller requires is what it gets |
//! | `negative` | what is known to be absent |
//! | `stale` | stale answers, refreshes, fallbacks |
//! | `trouble` | an origin that is slow, gone, or failing all the time |
//! | `streaming` | bodies that still flow |
//! | `room` | room for bodies in flight: who waits, who is refused, who has to go |
//! | `variants` | one load per variant |
//! | `purge` | what is purged is not seen again |
//! | `pass` | what may not be shared is not waited for |
//! | `tiers` | what stands below memory, and can fail |
//! | `drafts` | large bodies, read from a tier while they are written there and afterwards |
//! | `guard` | a tier that fails is left alone, and taken back when it works again |
//! | `tier_purge` | what is purged is gone from there, too |
//! | `put` | what is stored without being asked for |
//! | `race` | the same with real threads, many times |
//!
//! No test waits for time to pass: it waits until everybody has asked, or until a gate is reached.
#![expect(clippy::print_stdout, reason = "the seed and the counts of a run")]

mod cluster;
mod crowd;
mod demand;
mod drafts;
mod guard;
mod negative;
mod origin;
mod pass;
mod purge;
mod put;
mod race;
mod room;
mod shelf;
mod stale;
mod stampede;
mod streaming;
mod tier_purge;
mod tiers;
mod trouble;
mod variants;
mod world;

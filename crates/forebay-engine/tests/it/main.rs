//! The engine through its public API: a scripted origin, a clock that moves only when it is
//! stepped, and a counter for each claim.
//!
//! | module | claims |
//! |---|---|
//! | `stampede` | one load per key, also if callers leave, fail or panic |
//! | `demand` | answers satisfy the requirements of the caller |
//! | `negative` | negative entries |
//! | `stale` | stale answers, refreshes, fallbacks |
//! | `trouble` | an origin that is slow, unreachable, or fails every time |
//! | `streaming` | streaming bodies |
//! | `bodies_in_flight` | memory for bodies in flight: waiting, refused and dropped ones |
//! | `variants` | one load per variant |
//! | `purge` | purged entries are not served again |
//! | `purge_check` | the self-check finds purged entries that came back |
//! | `pass` | requests whose answers may not be shared do not wait for each other |
//! | `tiers` | tiers below memory and their failures |
//! | `drafts` | large bodies, read from a tier while they are written there and afterwards |
//! | `guard` | circuit breaker of a tier |
//! | `tier_conformance` | the conformance test of tiers finds each defect |
//! | `tier_purge` | purged entries are removed from lower tiers |
//! | `put` | entries stored without a load |
//! | `forms` | derived forms of entries |
//! | `race` | the most important claims with real threads, many times |
//! | `cluster` | several engines that share a tier |
//!
//! No test waits for time to pass: it waits until all callers have asked, or for a gate.
#![expect(clippy::print_stdout, reason = "the seed and the counts of a run")]

mod bodies_in_flight;
mod cluster;
mod crowd;
mod demand;
mod drafts;
mod faulty_tier;
mod forms;
mod guard;
mod negative;
mod origin;
mod pass;
mod purge;
mod purge_check;
mod put;
mod race;
mod stale;
mod stampede;
mod streaming;
mod tier_conformance;
mod tier_purge;
mod tiers;
mod trouble;
mod variants;
mod world;

//! Fuzz tests of every parser of bytes from clients, origins and tiers.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@run`] | one run: samples first, then mutations until the time is over |
//! | [`mutate`] | mutations of a sample |
//! | [`sample`] | corpus files: bytes escaped as text that a reviewer can read |
//! | `caught` | panics of checks as text |
//! | `block` | parser of inputs that consist of header fields |
//! | [`targets`] | one file per target, with the properties that must hold |
//!
//! A target asserts properties of its results, and classifies each result as an [`Outcome`]. An
//! input with a new outcome joins the pool that further inputs are made from.
//!
//! Not used: coverage instrumentation, which needs a nightly toolchain
//! (`docs/adr/0012-fuzzing-on-stable.md`). Not fuzzed: the configuration, which is trusted.

mod block;
mod caught;
pub mod mutate;
pub mod run;
pub mod sample;
pub mod targets;

pub use run::{Found, Outcome, Plan, Report, Target, run};

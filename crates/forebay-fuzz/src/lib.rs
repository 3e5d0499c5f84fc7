//! Everything that parses a peer's bytes, fed with samples and with what can be made of them.
//!
//! | file | holds |
//! |---|---|
//! | [`mod@run`] | the story of one run: samples first, then mutations until the time is over |
//! | [`mutate`] | what is done to a sample |
//! | [`dice`] | the seeded generator that decides it |
//! | [`sample`] | files of the corpus: bytes written as text that a reviewer can read |
//! | `caught` | panics of checks, as words |
//! | `block` | field lines of a request and of an answer, as the HTTP rules want them |
//! | [`targets`] | one file for each thing that is fed, with the properties that must hold |
//!
//! A target does more than not to panic: it asserts what must be true of whatever came out, and
//! tells in an [`Outcome`] what kind of result that was. An input with an outcome that has not been
//! seen joins the pool that the next ones are made from.
//!
//! Deliberately absent: coverage instrumentation, and with it a toolchain other than the stable one
//! (`docs/adr/0012-fuzzing-on-stable.md`); the configuration, which comes from no peer.

mod block;
mod caught;
pub mod dice;
pub mod mutate;
pub mod run;
pub mod sample;
pub mod targets;

pub use run::{Found, Outcome, Plan, Report, Target, run};
pub use targets::TARGETS;

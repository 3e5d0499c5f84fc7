//! The disk tier from outside: over a real directory, and past the end of a process.
#![expect(clippy::print_stderr, reason = "the killed process reports to the test")]
#![expect(clippy::unwrap_used, reason = "a test may end where anything is missing")]

mod bookmark;
mod burst;
mod churn;
mod conformance;
mod fixture;
mod kill;
mod prefixes;
mod stored;

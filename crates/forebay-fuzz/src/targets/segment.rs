//! Target: segments of the disk tier after a crash or a disk error. Inputs are scripts, because the
//! checksum of a record cannot be found by mutation.

use crate::run::{Outcome, Target};

/// Fuzz target for segments of the disk tier after a crash or a disk error.
pub const TARGET: Target = Target { check, outcomes_min: 6 };

fn check(input: &[u8]) -> Outcome {
    Outcome::of(forebay_disk::fuzz_support::run_script(input))
}

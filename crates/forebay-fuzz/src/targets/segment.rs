//! Target: segments of the disk tier after a crash or a disk error. Inputs are scripts, because the
//! checksum of a record cannot be found by mutation.

use crate::run::{Outcome, Target};

/// Two bytes each: the kind of the next record, and its length or the bit to flip.
const WORDS: &[&str] = &[
    "\0\u{9}123456789",
    "\u{2}\0",
    "\u{3}\0",
    "\u{4}\u{8}FBR7FBR7",
    "\u{5}\u{7}",
    "\u{6}\0",
    "\u{7}\0",
    "FBSEG",
    "FBFOOT",
];

pub(crate) const TARGET: Target = Target { name: "segment", check, words: WORDS, outcomes_min: 6 };

fn check(input: &[u8]) -> Outcome {
    Outcome::of(forebay_disk::fuzz_support::run_script(input))
}

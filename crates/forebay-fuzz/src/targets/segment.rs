//! Segments of the disk tier, as a crash or a bad disk leaves them: made by a script, since the
//! checksum of a record cannot be guessed.

use crate::run::{Outcome, Target};

/// Two bytes each: what comes next, and its length or the bit that is flipped.
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

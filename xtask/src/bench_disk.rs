//! `cargo xtask bench-disk`: the disk tier beside bare files, after a restart, and under a crowd.
//!
//! The measurements themselves are the example `disk` of forebay-disk and, through the binary, the
//! example `crowd_on_disk` of forebay-cli. Both print what must hold beside what was measured.

use anyhow::{Result, ensure};

use crate::example;

/// Builds, measures, and prints two tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = example::flags("bench-disk", arguments)?;
    let binary = example::binary()?;
    let tier = example::run(("forebay-disk", "disk"), &flags);
    let binary = binary.to_string_lossy();
    let door = example::measure("crowd_on_disk", &[&["--binary", &*binary][..], &flags].concat());
    // What the second one has to say is of interest, whatever the first one said.
    ensure!(tier.is_ok(), "the tier alone misses a bound, or worse");
    door
}

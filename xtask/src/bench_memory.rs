//! `cargo xtask bench-memory`: how much memory a cache takes under what it is told to keep.
//!
//! The measurement itself is the example `memory` of forebay-cli, since it needs clients; here it
//! is given the binary, built as a release, and a file to write. It fails when a bound is missed.

use anyhow::Result;

use crate::example;

/// Builds, measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = example::flags("bench-memory", arguments)?;
    let binary = example::binary()?;
    example::measure("memory", &[&["--binary", &*binary.to_string_lossy()], &flags[..]].concat())
}

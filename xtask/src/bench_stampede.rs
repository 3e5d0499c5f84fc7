//! `cargo xtask bench-stampede`: what a crowd of 500 costs the origin, how long it waits, and what
//! it gets when the origin is broken.
//!
//! The measurement itself is the example `stampede` of forebay-cli; it is told where the binary
//! is.

use anyhow::Result;

use crate::example;

/// Builds, measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = example::flags("bench-stampede", arguments)?;
    let binary = example::binary()?;
    let told = ["--binary", &binary.to_string_lossy()];
    example::measure("stampede", &[&told, &flags[..]].concat())
}

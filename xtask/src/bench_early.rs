//! `cargo xtask bench-early`: what early refresh spares, against a cache that never does it.
//!
//! The measurement itself is the example `early` of forebay-cli.

use anyhow::Result;

use crate::example;

/// Builds, measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    example::measure("early", &example::flags("bench-early", arguments)?)
}

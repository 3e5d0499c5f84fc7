//! `cargo xtask bench-tier`: what a Redis that is slow, frozen, gone or full of lies costs, line by
//! line with its bound; and what a hit there costs beside the bare client.
//!
//! The measurements themselves are the example `tier` of forebay-cli, which is told where the
//! binary is, and the example `hits` of forebay-redis.

use anyhow::Result;

use crate::{example, needs};

/// Builds, measures, prints the tables, and writes the first one as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    needs::ensure_for("bench-tier")?;
    let flags = example::flags("bench-tier", arguments)?;
    let binary = example::binary()?;
    let told = ["--binary", &binary.to_string_lossy()];
    let table = example::measure("tier", &[&told, &flags[..]].concat());
    // Both are shown, whether the first holds or not.
    let hits = example::run(("forebay-redis", "hits"), &flags);
    table.and(hits)
}

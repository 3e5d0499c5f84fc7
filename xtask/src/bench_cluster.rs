//! `cargo xtask bench-cluster`: what several caches of one Redis cost an origin, and how long their
//! clients wait.
//!
//! The measurement itself is the example `cluster` of forebay-cli; it is told where the binary is.
//! Behind it come `processes` of forebay, the same through the library's door; and commands and
//! bytes to Redis, of a cold key, a hit, a purge and an idle second: the example `costs` of
//! forebay-redis.

use anyhow::Result;

use crate::example;

/// Builds, measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = example::flags("bench-cluster", arguments)?;
    let binary = example::binary()?;
    let told = ["--binary", &binary.to_string_lossy()];
    let proxy = example::measure("cluster", &[&told, &flags[..]].concat());
    // What the library does is worth knowing, too, where the proxy misses a bound.
    let library = example::measure_in(("forebay", "processes"), &flags);
    example::run(("forebay-redis", "costs"), &[])?;
    proxy.and(library)
}

//! `cargo xtask bench-library`: what a hit of the typed cache costs beside other libraries, and
//! what part of the calls are hits.
//!
//! The measurement is the crate `forebay-bench`. It stands outside of the workspace, with a lock
//! file and a target folder of its own: nobody who builds forebay builds its rivals.

use anyhow::{Context as _, Result, ensure};

use crate::{example, needs, process, workspace};

/// Builds, measures, prints tables, and writes the costs as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = example::flags("bench-library", arguments)?;
    needs::ensure_for("bench-library")?;
    let target = workspace::target_dir(&workspace::metadata()?)?;
    let json = target.join("bench-library.json");
    let build = target.join("bench-library");
    let build = build.to_string_lossy();
    let hits = measure(&build, &[&["hits", "--json", &json.to_string_lossy()], &flags[..]]);
    let ratios = measure(&build, &[&["ratios"], &flags[..]]);
    hits.and(ratios).context("a bound is missed, or worse")
}

fn measure(build: &str, told: &[&[&str]]) -> Result<()> {
    let manifest = workspace::root().join("crates/forebay-bench/Cargo.toml");
    let mut command = workspace::cargo();
    command.args(["run", "--release", "--locked", "--quiet", "--target-dir", build]);
    command.arg("--manifest-path").arg(manifest).arg("--").args(told.concat());
    let status = process::lines(&mut command, |line| println!("{line}"))?;
    ensure!(status.success(), "forebay-bench failed");
    Ok(())
}

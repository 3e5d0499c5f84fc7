//! `cargo xtask bench-library`: what a hit of the typed cache costs beside other libraries, and
//! what part of the calls are hits; what early refresh spares before a real database; then how long
//! the library takes to build from nothing.
//!
//! The measurement is the crate `forebay-bench`. It stands outside of the workspace, with a lock
//! file and a target folder of its own: nobody who builds forebay builds its rivals.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::{example, needs, outside, process, workspace};

/// How long the library may take to build with its default features, on two cores.
const BUILD_MAX_S: f64 = 60.0;

/// From how many crates it may be built then, ours included.
const CRATES_MAX: usize = 40;

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
    let early = measure(&build, &[&["early"], &flags[..]]);
    let built = from_nothing();
    hits.and(ratios).and(early).and(built).context("a bound is missed, or worse")
}

/// `cargo xtask build-time`: builds the library as those do who name it in a project of their own,
/// and nothing else of it is there yet.
pub(crate) fn build_time(arguments: &[String]) -> Result<()> {
    crate::no_arguments("build-time", arguments)?;
    from_nothing()
}

fn from_nothing() -> Result<()> {
    let target = workspace::target_dir(&workspace::metadata()?)?.join("build-time");
    // What an earlier one has left, if there was one.
    let _ = std::fs::remove_dir_all(&target);
    let folder = target.to_string_lossy();
    // What is wanted is the time to build, not the time to download.
    run_cargo(&["fetch", "--locked", "--quiet"])?;
    let begun = Instant::now();
    let build = ["build", "--package", "forebay", "--locked", "--offline", "--target-dir", &folder];
    let compiled = run_cargo(&build)?;
    let took = begun.elapsed().as_secs_f64();
    let cleared = std::fs::remove_dir_all(&target).context("the folder of the build");
    println!("built from nothing in {took:.1} s, at most {BUILD_MAX_S:.0}");
    println!("{compiled} crates, at most {CRATES_MAX}");
    ensure!(took <= BUILD_MAX_S && compiled <= CRATES_MAX, "the library takes too much to build");
    cleared
}

/// Runs cargo, and counts what it says that it compiles.
fn run_cargo(arguments: &[&str]) -> Result<usize> {
    let mut command = workspace::cargo();
    let (mut compiled, mut said) = (0, Vec::new());
    let status = process::lines(command.args(arguments), |line| {
        compiled += usize::from(line.trim_start().starts_with("Compiling "));
        said.push(line.to_owned());
    })?;
    ensure!(status.success(), "cargo {} failed:\n{}", arguments.join(" "), said.join("\n"));
    Ok(compiled)
}

fn measure(build: &str, told: &[&[&str]]) -> Result<()> {
    let manifest = workspace::root().join(outside::COMPARISON);
    let mut command = workspace::cargo();
    command.args(["run", "--release", "--locked", "--quiet", "--target-dir", build]);
    command.arg("--manifest-path").arg(manifest).arg("--").args(told.concat());
    let status = process::lines(&mut command, |line| println!("{line}"))?;
    ensure!(status.success(), "forebay-bench failed");
    Ok(())
}

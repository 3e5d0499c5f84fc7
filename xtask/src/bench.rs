//! `cargo xtask bench`: builds and runs the crate forebay-bench; `build-time`: builds the library.
//!
//! `--bless` publishes what was measured in docs/benchmarks.json, docs/benchmarks.md and README.md;
//! `--check` compares these pages with that record.
//!
//! forebay-bench is a workspace of its own: a build of forebay does not build its rivals.

mod page;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{needs, process, workspace};

/// Manifest of the benchmarks, from the root.
pub(crate) const MANIFEST: &str = "crates/forebay-bench/Cargo.toml";
/// Page that a run of benchmarks writes into the target folder.
pub(crate) const REPORT: &str = "benchmarks.html";

/// Time limit for a build of the library with default features on two cores.
const BUILD_MAX_S: f64 = 60.0;
/// Largest number of crates in that build, those of the workspace included.
const CRATES_MAX: usize = 40;

/// Arguments of `cargo xtask bench`, which forebay-bench reads.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds the benchmarks and runs those that the arguments name.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (blesses, checks) = (options.has("--bless"), options.has("--check"));
    let arguments: Vec<&String> = options
        .arguments
        .iter()
        .filter(|one| !matches!(one.as_str(), "--bless" | "--check"))
        .collect();
    if checks {
        return page::check();
    }
    if !(blesses && arguments.is_empty()) {
        measure(&arguments)?;
    }
    if blesses { page::bless() } else { Ok(()) }
}

impl Options {
    fn has(&self, flag: &str) -> bool {
        self.arguments.iter().any(|argument| argument == flag)
    }
}

fn measure(arguments: &[&String]) -> Result<()> {
    let only_lists = arguments.iter().any(|flag| *flag == "--list" || *flag == "--help");
    if !only_lists {
        needs::ensure_for("bench")?;
    }
    let target = workspace::target_dir()?.join("bench");
    let mut command = workspace::cargo();
    command.args(["run", "--release", "--locked", "--quiet", "--manifest-path", MANIFEST]);
    command.arg("--target-dir").arg(target).arg("--").args(arguments);
    let status = process::lines(&mut command, |line| println!("{line}"))?;
    ensure!(status.success(), "a benchmark missed a bound or failed");
    Ok(())
}

/// Builds the library in an empty folder, as a project that depends on it does.
pub(crate) fn build_time() -> Result<()> {
    let target = tempfile::tempdir_in(workspace::target_dir()?)?;
    let folder = target.path().to_string_lossy();
    // The build is measured, not the download.
    workspace::run_cargo(&["fetch", "--locked", "--quiet"])?;
    let begun = Instant::now();
    let build = ["build", "--package", "forebay", "--locked", "--offline", "--target-dir", &folder];
    let printed = workspace::run_cargo(&build).context("cannot build the library")?;
    let took = begun.elapsed().as_secs_f64();
    let is_crate = |line: &&str| line.trim_start().starts_with("Compiling ");
    let compiled = printed.lines().filter(is_crate).count();
    println!("built from nothing in {took:.1} s, at most {BUILD_MAX_S:.0}");
    println!("{compiled} crates, at most {CRATES_MAX}");
    ensure!(took <= BUILD_MAX_S && compiled <= CRATES_MAX, "the library takes too much to build");
    Ok(())
}

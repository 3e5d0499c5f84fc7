//! Paths of the checkout, and cargo commands in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process;

/// Root folder of the checkout that this program was built from.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is a folder below the workspace root")
}

/// A `cargo` command at the root of the checkout, by the cargo that started this program.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    process::forget_package(command.current_dir(root()));
    command
}

/// Runs cargo and returns its output; fails with that output if cargo fails.
pub(crate) fn run_cargo(arguments: &[&str]) -> Result<String> {
    let (status, printed) = process::run(cargo().args(arguments))?;
    ensure!(status.success(), "`cargo {}` failed:\n{printed}", arguments.join(" "));
    Ok(printed)
}

/// Output of `cargo metadata` for the members of the workspace.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let output = output.context("cannot start cargo metadata")?;
    serde_json::from_slice(&output.stdout).context("cannot read the output of cargo metadata")
}

/// Folder that cargo builds into.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).context("cargo metadata names no target directory")
}

/// Builds the binary `forebay` for tests and returns its path.
///
/// The example needs development dependencies. So cargo selects the features that it selects for
/// `cargo test --workspace`, and both share all artifacts.
pub(crate) fn build_forebay() -> Result<PathBuf> {
    let targets = ["--workspace", "--bin=forebay", "--example=directory_tier"];
    run_cargo(&[&["build", "--locked", "--quiet"], &targets[..]].concat())?;
    Ok(target_dir()?.join("debug/forebay"))
}

//! Where things lie: the root of the checkout, cargo's view of it, the folder it builds into.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The root of the checkout that this program was built from.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in a folder of the workspace root")
}

/// A `cargo` command at the root of the checkout; the same cargo that started this program.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// What `cargo metadata` says about the workspace itself, without its dependencies' own.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("start cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("read what cargo metadata printed")
}

/// The folder that cargo builds into, which need not be `target` below the root.
pub(crate) fn target_dir(metadata: &Value) -> Result<PathBuf> {
    let told = metadata["target_directory"].as_str();
    told.map(PathBuf::from).context("cargo metadata names no target directory")
}

/// The one binary that a bare `cargo run` at the root starts, if there is exactly one.
pub(crate) fn default_binary(metadata: &Value) -> Result<String> {
    let members = strings(&metadata["workspace_default_members"]);
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let binaries: Vec<&str> = packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| members.contains(&id)))
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| strings(&target["kind"]).contains(&"bin"))
        .filter_map(|target| target["name"].as_str())
        .collect();
    ensure!(
        binaries.len() == 1,
        "`cargo run` at the root must have one binary to start; default-members have {binaries:?}"
    );
    Ok(binaries[0].to_owned())
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata_with(binaries: &[&str]) -> Value {
        let mut targets = vec![json!({ "kind": ["lib"], "name": "shop" })];
        targets.extend(binaries.iter().map(|name| json!({ "kind": ["bin"], "name": name })));
        json!({
            "workspace_default_members": ["shop-id"],
            "packages": [
                { "id": "shop-id", "targets": targets },
                { "id": "tool-id", "targets": [{ "kind": ["bin"], "name": "tool" }] },
            ],
        })
    }

    #[test]
    fn the_default_binary_is_that_of_the_default_members_alone() {
        assert_eq!(default_binary(&metadata_with(&["shopd"])).unwrap(), "shopd");
    }

    #[test]
    fn none_or_two_binaries_are_no_default() {
        assert!(default_binary(&metadata_with(&[])).is_err());
        assert!(default_binary(&metadata_with(&["a", "b"])).is_err());
    }

    #[test]
    fn this_workspace_runs_forebay_by_default() {
        assert_eq!(default_binary(&metadata().unwrap()).unwrap(), "forebay");
    }
}

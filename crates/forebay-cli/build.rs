//! Finds the commit of the source, for `--version` and the metric `forebay_build_info`.
//!
//! In this order: the environment variable `FOREBAY_COMMIT`, the file that cargo adds to a packaged
//! crate, git. Without any of them, the commit is `unknown`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Length of an abbreviated commit.
const LENGTH: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=FOREBAY_COMMIT");
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let named = std::env::var("FOREBAY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(|| of_package(&folder)).or_else(|| of_git(&folder));
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FOREBAY_COMMIT={}", commit.get(..LENGTH).unwrap_or(&commit));
}

/// Commit in the file that `cargo package` writes: `{"git": {"sha1": "…"}}`.
fn of_package(folder: &Path) -> Option<String> {
    let file = folder.join(".cargo_vcs_info.json");
    println!("cargo::rerun-if-changed={}", file.display());
    let text = std::fs::read_to_string(file).ok()?;
    let commit = text.split_once("\"sha1\"")?.1.split('"').nth(1)?;
    Some(commit.to_owned())
}

fn of_git(folder: &Path) -> Option<String> {
    let commit = git(folder, &["rev-parse", "HEAD"])?;
    // The log of HEAD changes with each commit and checkout.
    for name in ["HEAD", "logs/HEAD"] {
        let path = folder.join(git(folder, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    Some(commit)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

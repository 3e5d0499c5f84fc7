//! `cargo xtask versions`: another version of forebay beside this one, over one Redis.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{needs, process, workspace};

/// Commits between this version and the other one, if no release is tagged.
const COMMITS_BACK: &str = "HEAD~50";

/// Builds the binary of `commit`, or else of the newest release before this one, and runs the test.
pub(crate) fn run(commit: Option<&str>) -> Result<()> {
    needs::ensure_for("versions")?;
    let other = match commit {
        Some(commit) => commit.to_owned(),
        None => newest_release().unwrap_or_else(|| COMMITS_BACK.to_owned()),
    };
    let commit = git(&["rev-parse", "--short=12", &format!("{other}^{{commit}}")])?;
    let folder = workspace::target_dir()?.join("versions");
    fs::create_dir_all(&folder)?;
    let source = tempfile::tempdir_in(&folder)?;
    let archive = source.path().join("source.tar");
    let archive_text = archive.to_string_lossy();
    git(&["archive", "--output", &archive_text, &commit])?;
    let mut tar = Command::new("tar");
    succeed(tar.arg("-xf").arg(&archive).arg("-C").arg(source.path()))?;
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--quiet", "--package", "forebay-cli", "--target-dir"]);
    cargo.arg(folder.join("target")).current_dir(source.path()).env("FOREBAY_COMMIT", &commit);
    succeed(&mut cargo).with_context(|| format!("the version {commit} cannot be built"))?;
    let mut test = workspace::cargo();
    test.args(["test", "--locked", "--package", "forebay-cli", "--test", "it", "versions::"]);
    test.args(["--", "--ignored", "--nocapture"]);
    test.env("FOREBAY_OTHER_BINARY", folder.join("target/debug/forebay"));
    let mut passed = false;
    let status = process::lines(&mut test, |line| {
        println!("{line}");
        passed |= line.starts_with("test result: ok. 1 passed");
    })?;
    ensure!(status.success() && passed, "this version and {commit} do not work together");
    println!("this version works beside {commit}");
    Ok(())
}

fn newest_release() -> Option<String> {
    git(&["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]).ok()
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    let printed = succeed(git.args(arguments).current_dir(workspace::root()))?;
    Ok(printed.trim().to_owned())
}

fn succeed(command: &mut Command) -> Result<String> {
    let (status, printed) = process::run(command)?;
    ensure!(status.success(), "{command:?} failed:\n{printed}");
    Ok(printed)
}

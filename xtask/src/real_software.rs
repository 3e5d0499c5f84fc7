//! `cargo xtask real-software`: the binary between other people's servers and clients.
//!
//! The cases are in `xtask/real-software`, in JavaScript, since two of the servers are. npm
//! installs what its lock file names, below the target folder.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::{needs, process, workspace};

const FILES: [&str; 7] = [
    "package.json",
    "package-lock.json",
    "app.py",
    "benchmarks.mjs",
    "dashboard.mjs",
    "lib.mjs",
    "run.mjs",
];

/// Maximum time for npm to install about 170 small packages over a slow connection.
const INSTALL_MAX: Duration = Duration::from_secs(300);

/// Runs all cases, or those that are named.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    needs::ensure_for("real-software")?;
    let folder = workspace::target_dir()?.join("real-software");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for file in FILES {
        let from = workspace::root().join("xtask/real-software").join(file);
        std::fs::copy(from, folder.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    let npm = process::capture(npm.current_dir(&folder), INSTALL_MAX)?;
    ensure!(npm.status.is_some_and(|status| status.success()), "npm ci failed:\n{}", npm.text);
    let binary = workspace::build_forebay()?;
    let mut node = Command::new("node");
    // Where servers are installed that an ordinary user's search path leaves out.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
    node.arg("run.mjs").args(arguments).current_dir(&folder);
    let report = workspace::target_dir()?.join(crate::bench::REPORT);
    node.env("FOREBAY", binary).env("PATH", path).env("REPORT", report);
    let played = process::lines(&mut node, |line| println!("{line}"))?;
    ensure!(played.success(), "a case failed");
    Ok(())
}

//! Installation of rivals below the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::catalog::Runs;
use crate::environment::{root, target_dir};

const NODE_FILES: [&str; 3] = ["package.json", "package-lock.json", "rival.mjs"];

/// Lock file of the installed packages: npm runs again if it is another one.
const INSTALLED: &str = "node_modules/.installed";

/// Installs a program and returns its command without arguments.
pub(super) fn command(runs: Runs) -> Result<Command> {
    match runs {
        Runs::Rust => Ok(Command::new(std::env::current_exe()?)),
        Runs::Node => {
            let mut node = Command::new("node");
            node.arg(install_node()?.join("rival.mjs"));
            Ok(node)
        }
        Runs::Go => Ok(Command::new(install_go()?)),
    }
}

fn source(name: &str) -> PathBuf {
    root().join("crates/forebay-bench/rivals").join(name)
}

/// Folder for a rival below the target folder.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    let folder = target_dir()?.join("bench-rivals").join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Installs Debian packages, one of which has this program, unless it is there.
pub(crate) fn debian(program: &str, packages: &[&str]) -> Result<()> {
    let found = Command::new(program).arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(" "));
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    run(apt.env("DEBIAN_FRONTEND", "noninteractive"), root())
}

fn install_node() -> Result<PathBuf> {
    let (from, folder) = (source("node"), folder("node")?);
    for file in NODE_FILES {
        std::fs::copy(from.join(file), folder.join(file)).with_context(|| file)?;
    }
    let lock = std::fs::read_to_string(folder.join("package-lock.json"))?;
    if std::fs::read_to_string(folder.join(INSTALLED)).is_ok_and(|installed| installed == lock) {
        return Ok(folder);
    }
    eprintln!("installing the rivals in Node.js");
    let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    run(Command::new("npm").args(arguments), &folder)?;
    std::fs::write(folder.join(INSTALLED), lock)?;
    Ok(folder)
}

fn install_go() -> Result<PathBuf> {
    let program = folder("go")?.join("rival");
    // Go itself knows whether the program is up to date.
    run(Command::new("go").args(["build", "-o"]).arg(&program).arg("."), &source("go"))?;
    Ok(program)
}

fn run(command: &mut Command, folder: &Path) -> Result<()> {
    let output =
        command.current_dir(folder).output().with_context(|| format!("run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    let last = error.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{:?} failed: {last}", command.get_program());
    Ok(())
}

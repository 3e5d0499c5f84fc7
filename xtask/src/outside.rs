//! `cargo xtask outside`: what stands outside of the workspace is formatted, locked and clean, too.
//!
//! The comparison with other libraries has a workspace of its own, so that nobody who builds
//! forebay builds its rivals. So nobody sees either that a change of the library, or of the
//! workspace's dependencies, has broken it, before somebody wants figures of it.
//!
//! It is checked in the folder that the workspace builds into. With nothing there it takes a minute
//! and a half of one core; where the workspace has been checked before, only its rivals are left.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::{process, workspace};

/// The comparison, from the root.
pub(crate) const COMPARISON: &str = "crates/forebay-bench/Cargo.toml";

/// Checks it as `cargo xtask ci` checks the workspace.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    crate::no_arguments("outside", arguments)?;
    let target = workspace::target_dir(&workspace::metadata()?)?;
    check(&workspace::root().join(COMPARISON), &target)
}

fn check(manifest: &Path, target: &Path) -> Result<()> {
    let (manifest, target) = (manifest.to_string_lossy(), target.to_string_lossy());
    cargo(&["fmt", "--check", "--manifest-path", &manifest])?;
    let linted = ["clippy", "--manifest-path", &manifest, "--target-dir", &target];
    let how = ["--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    cargo(&[&linted[..], &how].concat())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let mut said = Vec::new();
    let mut command = workspace::cargo();
    let status = process::lines(command.args(arguments), |line| said.push(line.to_owned()))?;
    ensure!(status.success(), "cargo {} failed:\n{}", arguments.join(" "), said.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::scratch::Scratch;

    use super::*;

    const MANIFEST: &str = "[package]\nname = \"alone\"\nedition = \"2024\"\n[workspace]\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"alone\"\nversion = \"0.0.0\"\n";

    /// What is said of a crate with this lock file and this code; nothing if it is as it should be.
    fn complaint(lock: &str, code: &str) -> Option<String> {
        let scratch = Scratch::new("outside").unwrap();
        let folder = scratch.path();
        std::fs::create_dir(folder.join("src")).unwrap();
        let files = [("Cargo.toml", MANIFEST), ("Cargo.lock", lock), ("src/main.rs", code)];
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
        let checked = check(&folder.join("Cargo.toml"), &folder.join("target"));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn what_is_formatted_locked_and_clean_is_as_it_should_be() {
        assert_eq!(complaint(LOCK, "fn main() {}\n"), None);
    }

    #[test]
    fn a_lock_that_is_stale_is_told() {
        let stale = LOCK.replace("alone", "other");
        let told = complaint(&stale, "fn main() {}\n").unwrap();
        assert!(told.contains("--locked"), "{told}");
    }

    #[test]
    fn so_is_code_that_is_out_of_form_or_warned_of_or_does_not_compile() {
        let out_of_form = complaint(LOCK, "fn main(){}\n").unwrap();
        assert!(out_of_form.starts_with("cargo fmt"), "{out_of_form}");
        let warned_of = complaint(LOCK, "fn main() {}\n\nfn unused() {}\n").unwrap();
        assert!(warned_of.contains("never used"), "{warned_of}");
        let broken = complaint(LOCK, "fn main() {\n    gone();\n}\n").unwrap();
        assert!(broken.contains("cannot find function"), "{broken}");
    }
}

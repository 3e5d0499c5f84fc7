//! `cargo xtask bench-memory`: how much memory a cache takes under what it is told to keep.
//!
//! The measurement itself is the example `memory` of forebay-cli, since it needs clients; here it
//! is given the binary, built as a release, and a file to write. It fails when a bound is missed.

use anyhow::{Context as _, Result, ensure};

use crate::{Usage, process, workspace};

/// Builds, measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = flags(arguments)?;
    let target = workspace::target_dir(&workspace::metadata()?)?;
    cargo(&["build", "--release", "--locked", "--quiet", "-p", "forebay-cli", "--bin", "forebay"])?;
    let example = ["run", "--release", "--locked", "--quiet", "-p", "forebay-cli", "--example"];
    let binary = target.join("release").join("forebay");
    let json = target.join("bench-memory.json");
    let (binary, json) = (binary.to_string_lossy(), json.to_string_lossy());
    let told = ["memory", "--", "--binary", &binary, "--json", &json];
    cargo(&[&example[..], &told, &flags].concat()).context("a bound is missed, or worse")
}

/// The flags that are passed on.
fn flags(arguments: &[String]) -> Result<Vec<&str>> {
    let known = |flag: &&String| flag.as_str() == "--quick";
    if let Some(unknown) = arguments.iter().find(|flag| !known(flag)) {
        return Err(Usage(format!("`bench-memory` knows no `{unknown}`")).into());
    }
    Ok(arguments.iter().map(String::as_str).collect())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = workspace::cargo();
    let status = process::lines(command.args(arguments), |line| println!("{line}"))?;
    ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn quick_is_passed_on_and_nothing_else_is_known() {
        assert_eq!(flags(&words("")).unwrap(), [""; 0]);
        assert_eq!(flags(&words("--quick")).unwrap(), ["--quick"]);
        assert!(flags(&words("--quick --slow")).unwrap_err().is::<Usage>());
    }
}

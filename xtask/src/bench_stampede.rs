//! `cargo xtask bench-stampede`: what a crowd of 500 costs the origin, and how long it waits.
//!
//! The measurement itself is the example `stampede` of forebay-cli, because it needs the crowd and
//! the scripted origin of the tests; here it is given the binary, built as a release, and a file
//! to write. It fails when one of its bounds is missed.

use anyhow::{Context as _, Result, ensure};

use crate::{Usage, process, workspace};

/// Builds, measures, prints a table, and writes the same as JSON.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = flags(arguments)?;
    let target = workspace::target_dir(&workspace::metadata()?)?;
    cargo(&["build", "--release", "--locked", "--quiet", "-p", "forebay-cli", "--bin", "forebay"])?;
    let example = ["run", "--release", "--locked", "--quiet", "-p", "forebay-cli", "--example"];
    let binary = target.join("release").join("forebay");
    let json = target.join("bench-stampede.json");
    let (binary, json) = (binary.to_string_lossy(), json.to_string_lossy());
    let told = ["stampede", "--", "--binary", &binary, "--json", &json];
    cargo(&[&example[..], &told, &flags].concat()).context("a bound is missed, or worse")
}

/// The flags that are passed on.
fn flags(arguments: &[String]) -> Result<Vec<&str>> {
    let known = |flag: &&String| flag.as_str() == "--quick";
    if let Some(unknown) = arguments.iter().find(|flag| !known(flag)) {
        return Err(Usage(format!("`bench-stampede` knows no `{unknown}`")).into());
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

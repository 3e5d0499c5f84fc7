//! Measurements that are examples of other crates, mostly of forebay-cli: they need the crowd and
//! the scripted origin of the tests, or the engine itself, which nothing here may import.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::{Usage, process, workspace};

/// Runs an example, built as a release, with the flags that are passed on. It prints a table,
/// writes the same as JSON into the target folder, and fails when one of its bounds is missed.
pub(crate) fn measure(name: &str, flags: &[&str]) -> Result<()> {
    measure_in(("forebay-cli", name), flags)
}

/// The same for an example of any package.
pub(crate) fn measure_in((package, name): (&str, &str), flags: &[&str]) -> Result<()> {
    let json = target()?.join(format!("bench-{name}.json"));
    run((package, name), &[&["--json", &*json.to_string_lossy()][..], flags].concat())
}

/// Runs an example of any package, built as a release. It fails when one of its bounds is missed.
pub(crate) fn run((package, name): (&str, &str), flags: &[&str]) -> Result<()> {
    let example = ["run", "--release", "--locked", "--quiet", "-p", package, "--example", name];
    cargo(&[&example[..], &["--"], flags].concat()).context("a bound is missed, or worse")
}

/// Builds the binary as a release.
pub(crate) fn binary() -> Result<PathBuf> {
    cargo(&["build", "--release", "--locked", "--quiet", "-p", "forebay-cli", "--bin", "forebay"])?;
    Ok(target()?.join("release").join("forebay"))
}

/// The flags of a command, of which there is one.
pub(crate) fn flags<'a>(command: &str, arguments: &'a [String]) -> Result<Vec<&'a str>> {
    let known = |flag: &&String| flag.as_str() == "--quick";
    if let Some(unknown) = arguments.iter().find(|flag| !known(flag)) {
        return Err(Usage(format!("`{command}` knows no `{unknown}`")).into());
    }
    Ok(arguments.iter().map(String::as_str).collect())
}

fn target() -> Result<PathBuf> {
    workspace::target_dir(&workspace::metadata()?)
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
        assert_eq!(flags("bench", &words("")).unwrap(), [""; 0]);
        assert_eq!(flags("bench", &words("--quick")).unwrap(), ["--quick"]);
        let error = flags("bench", &words("--quick --slow")).unwrap_err();
        assert!(error.is::<Usage>());
        assert_eq!(error.to_string(), "`bench` knows no `--slow`");
    }
}

//! `cargo xtask features`: the typed library compiles with each of its features alone, with none,
//! and with all of them. What is behind a feature is easily used without it, and nobody builds
//! such a library here but this.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{process, workspace};

/// The library whose features users choose.
const LIBRARY: &str = "forebay";

/// Checks every combination that is worth it: features that work alone and all together are
/// hardly ever at odds in pairs.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    crate::no_arguments("features", arguments)?;
    let features = features_of(&workspace::metadata()?)?;
    check(&["--no-default-features"])?;
    for feature in &features {
        check(&["--no-default-features", "--features", feature])?;
    }
    check(&["--all-features"])?;
    println!("{} features, each alone, none, and all", features.len());
    Ok(())
}

fn features_of(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo names packages")?;
    let library = packages.iter().find(|package| package["name"] == LIBRARY);
    let features = library.and_then(|library| library["features"].as_object());
    let features = features.with_context(|| format!("there is no package `{LIBRARY}`"))?;
    let named = features.keys().filter(|feature| *feature != "default").cloned();
    Ok(named.collect())
}

/// The library itself: its tests ask for all features, and would hide what one alone lacks.
fn check(chosen: &[&str]) -> Result<()> {
    let arguments = ["check", "--package", LIBRARY, "--lib", "--locked", "--quiet"];
    let mut command = workspace::cargo();
    command.args(arguments).args(chosen);
    let mut printed = Vec::new();
    let status = process::lines(&mut command, |line| printed.push(line.to_owned()))?;
    let chosen = chosen.join(" ");
    let is_clean = status.success() && printed.is_empty();
    ensure!(is_clean, "{}\n{LIBRARY} is not clean with {chosen}", printed.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_features_are_those_that_cargo_names() {
        let package = |name: &str| json!({ "name": name, "features": { "default": [], "a": [] } });
        let metadata = json!({ "packages": [package("other"), package("forebay")] });
        assert_eq!(features_of(&metadata).unwrap(), ["a"]);
        assert!(features_of(&json!({ "packages": [] })).is_err());
    }
}

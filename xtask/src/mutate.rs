//! `cargo xtask mutate [WORDS]`: removes rules of HTTP from a copy of the source, one by one; the
//! test that docs/http.md names beside the rule must fail.
//!
//! mutations.toml holds the changes. That each still fits the source is a test of this crate.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::{process, workspace};

const LIST: &str = "xtask/mutate/mutations.toml";
const PAGE: &str = "docs/http.md";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutation: Vec<Mutation>,
}

/// A change of the source that removes a rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    /// Sentence of the rule.
    rule: String,
    file: PathBuf,
    find: String,
    replace: String,
}

/// A unit test.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: &'static str,
    /// Last parts of the path of the test within the crate.
    path: String,
}

/// Tries each mutation whose rule contains `words`, and fails if a test misses one.
pub(crate) fn run(words: &str) -> Result<()> {
    let all = read()?;
    let chosen: Vec<_> = all.iter().filter(|(mutation, _)| mutation.rule.contains(words)).collect();
    ensure!(!chosen.is_empty(), "no rule in {LIST} contains \"{words}\"");
    let copy = Copy::new()?;
    // A test that fails without a mutation, or does not exist, would catch everything.
    for test in chosen.iter().map(|(_, test)| test).collect::<BTreeSet<_>>() {
        ensure!(copy.passes(test)?, "{} fails without a mutation", test.path);
    }
    let mut missed = Vec::new();
    for (mutation, test) in &chosen {
        let is_caught = copy.catches(mutation, test)?;
        let verdict = if is_caught { "caught" } else { "MISSED" };
        println!("{verdict} {} {}: {}", test.package, test.path, mutation.rule);
        missed.extend((!is_caught).then_some(mutation.rule.as_str()));
    }
    ensure!(missed.is_empty(), "no test failed without these rules:\n{}", missed.join("\n"));
    println!("{} rules removed, each caught by its test", chosen.len());
    Ok(())
}

/// Every mutation with the test of its rule.
fn read() -> Result<Vec<(Mutation, Test)>> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(workspace::root().join(name));
        text.with_context(|| format!("cannot read {name}"))
    };
    let page = read(PAGE)?;
    let list: List =
        toml::from_str(&read(LIST)?).with_context(|| format!("cannot parse {LIST}"))?;
    let with_test = |mutation: Mutation| {
        let test = test_of(&page, &mutation.rule);
        let test =
            test.with_context(|| format!("no unit test in {PAGE} for: {}", mutation.rule))?;
        Ok((mutation, test))
    };
    list.mutation.into_iter().map(with_test).collect()
}

/// Test in the last column of the row of this rule.
fn test_of(page: &str, rule: &str) -> Option<Test> {
    let cell = format!(" | {rule} | ");
    let row = page.lines().find(|line| line.contains(&cell))?;
    let (_, name) = row.trim_end_matches([' ', '|', '`']).rsplit_once('`')?;
    let (package, name) = match name.strip_prefix("core ") {
        Some(name) => ("forebay-core", name),
        None => ("forebay-semantics", name),
    };
    let (module, name) = name.split_once("::")?;
    Some(Test { package, path: format!("{module}::tests::{name}") })
}

impl Mutation {
    fn applied(&self, source: &str) -> Result<String> {
        let count = source.matches(&self.find).count();
        let (file, rule) = (self.file.display(), &self.rule);
        ensure!(count == 1, "{LIST}: `find` occurs {count} times in {file}, expected once: {rule}");
        Ok(source.replacen(&self.find, &self.replace, 1))
    }
}

/// A copy of the checkout; all copies share a target folder, so that dependencies are built once.
struct Copy {
    folder: tempfile::TempDir,
    target: PathBuf,
}

impl Copy {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Every file that git tracks or would track.
        let script = "git ls-files -z --cached --others --exclude-standard | \
                      xargs -0 cp --parents --target-directory \"$0\"";
        let mut copy = Command::new("sh");
        copy.args(["-c", script]).arg(folder.path()).current_dir(workspace::root());
        let (status, printed) = process::run(&mut copy)?;
        ensure!(status.success(), "the checkout cannot be copied:\n{printed}");
        Ok(Self { folder, target: workspace::target_dir()?.join("mutate") })
    }

    fn catches(&self, mutation: &Mutation, test: &Test) -> Result<bool> {
        let file = self.folder.path().join(&mutation.file);
        let source = std::fs::read_to_string(&file).context("cannot read a source file")?;
        std::fs::write(&file, mutation.applied(&source)?).context("cannot write a source file")?;
        let passes = self.passes(test).with_context(|| mutation.rule.clone());
        std::fs::write(&file, source).context("restore a source file")?;
        Ok(!passes?)
    }

    fn passes(&self, test: &Test) -> Result<bool> {
        let mut command = workspace::cargo();
        command.current_dir(self.folder.path()).env("CARGO_TARGET_DIR", &self.target);
        command.args(["test", "--locked", "--quiet", "--package", test.package, "--lib"]);
        // The page names a test by its module, whose folder may change.
        command.args(["--", &test.path]);
        let (_, printed) = process::run(&mut command)?;
        verdict(&printed).with_context(|| test.path.clone())
    }
}

/// Result of the one test. No test, and a program that does not compile, are errors.
fn verdict(printed: &str) -> Result<bool> {
    let result = printed.lines().find_map(|line| line.strip_prefix("test result: "));
    match result {
        Some(result) if result.contains(" 1 failed;") => Ok(false),
        Some(result) if result.contains(" 1 passed; 0 failed;") => Ok(true),
        _ => bail!("expected the result of one test:\n{printed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_fits_the_source() {
        let all = read().unwrap();
        let mut rules = BTreeSet::new();
        for (mutation, _) in &all {
            let file = workspace::root().join(&mutation.file);
            let source = std::fs::read_to_string(file).unwrap();
            assert_ne!(mutation.applied(&source).unwrap(), source, "{}", mutation.rule);
            assert!(rules.insert(&mutation.rule), "{} occurs twice", mutation.rule);
        }
        assert!(all.len() >= 10);
    }
}

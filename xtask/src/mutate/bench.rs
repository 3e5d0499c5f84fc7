//! A copy of the checkout in which mutations are tried.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::list::{Mutation, Test};
use crate::scratch::Scratch;
use crate::{process, workspace};

/// What no build needs of a checkout.
const LEFT_OUT: [&str; 2] = [".git", "target"];

/// The copy, and the folder that all copies are built into: what they depend on is built once.
pub(super) struct Bench {
    scratch: Scratch,
    target: PathBuf,
}

impl Bench {
    pub(super) fn new() -> Result<Self> {
        let target = workspace::target_dir(&workspace::metadata()?)?.join("mutate");
        let scratch = Scratch::new("mutate")?;
        copy(workspace::root(), scratch.path())?;
        Ok(Self { scratch, target })
    }

    /// Fails unless all of these tests pass as the source is.
    pub(super) fn sound(&self, mutations: &[&Mutation]) -> Result<()> {
        let tests: BTreeSet<&Test> = mutations.iter().map(|mutation| &mutation.test).collect();
        for test in tests {
            ensure!(self.passes(test)?, "{test} fails as it is");
        }
        Ok(())
    }

    /// Whether the test of a rule fails when the rule is gone.
    pub(super) fn kills(&self, mutation: &Mutation) -> Result<bool> {
        let file = self.scratch.path().join(&mutation.file);
        let name = mutation.file.display();
        let source = std::fs::read_to_string(&file).with_context(|| format!("read {name}"))?;
        let write =
            |text: &str| std::fs::write(&file, text).with_context(|| format!("write {name}"));
        write(&mutation.applied(&source)?)?;
        let passes = self.passes(&mutation.test).with_context(|| mutation.rule.clone());
        write(&source)?;
        Ok(!passes?)
    }

    fn passes(&self, test: &Test) -> Result<bool> {
        let mut command = workspace::cargo();
        command.current_dir(self.scratch.path()).env("CARGO_TARGET_DIR", &self.target);
        command.args(["test", "--locked", "--quiet", "--package", test.package, "--lib"]);
        command.args(["--", "--exact", &test.path]);
        let mut printed = String::new();
        process::lines(&mut command, |line| {
            printed.push_str(line);
            printed.push('\n');
        })?;
        verdict(&printed).with_context(|| test.to_string())
    }
}

/// Whether the one test passed. No test at all, or no program, is neither.
fn verdict(printed: &str) -> Result<bool> {
    let result = printed.lines().find_map(|line| line.strip_prefix("test result: "));
    let Some(result) = result else { bail!("there is no result:\n{printed}") };
    match result {
        _ if result.contains(" 1 failed;") => Ok(false),
        _ if result.contains(" 1 passed; 0 failed;") => Ok(true),
        _ => bail!("expected one test, and there was: {result}"),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for found in std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let found = found?;
        let name = found.file_name();
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        let (source, copied) = (found.path(), to.join(&name));
        if found.file_type()?.is_dir() {
            std::fs::create_dir(&copied)?;
            copy(&source, &copied)?;
        } else {
            std::fs::copy(&source, &copied)
                .with_context(|| format!("copy {}", source.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_test_has_a_verdict_and_anything_else_is_an_error() {
        let passed = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        let failed = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered";
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 10 filtered out";
        assert!(verdict(&format!("running 1 test\n{passed}\n")).unwrap());
        assert!(!verdict(&format!("running 1 test\n{failed}\n")).unwrap());
        assert!(verdict(none).unwrap_err().to_string().contains("expected one test"));
        assert!(verdict("error[E0308]: mismatched types").is_err());
    }

    #[test]
    fn a_copy_has_all_but_what_was_built() {
        let (from, to) = (Scratch::new("copied").unwrap(), Scratch::new("copy").unwrap());
        std::fs::create_dir_all(from.path().join("src/deep")).unwrap();
        std::fs::create_dir_all(from.path().join("target/debug")).unwrap();
        std::fs::write(from.path().join("src/deep/a.rs"), "a").unwrap();
        std::fs::write(from.path().join(".git"), "elsewhere").unwrap();
        copy(from.path(), to.path()).unwrap();
        assert_eq!(std::fs::read_to_string(to.path().join("src/deep/a.rs")).unwrap(), "a");
        assert!(!to.path().join("target").exists() && !to.path().join(".git").exists());
    }
}

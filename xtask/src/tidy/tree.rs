//! Which files there are: those that git tracks, and those that it would if they were added.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::source::Source;

/// One file, by its path from the root with `/` between folders.
pub(super) struct Text {
    pub(super) path: String,
    pub(super) text: String,
}

/// All the files that are text.
pub(super) struct Tree {
    texts: Vec<Text>,
}

impl Tree {
    /// Reads the checkout at `root`. What is not UTF-8 is no text and is left out.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut texts = Vec::new();
        for path in listed(root)? {
            // A file may be listed and yet gone: removed, but not from git's index so far.
            let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
            let Ok(text) = String::from_utf8(bytes) else { continue };
            texts.push(Text { path, text });
        }
        ensure!(!texts.is_empty(), "git lists no files in {}", root.display());
        Ok(Self { texts })
    }

    pub(super) fn texts(&self) -> &[Text] {
        &self.texts
    }

    /// The Rust files, read as Rust.
    pub(super) fn sources(&self) -> Vec<Source> {
        let rust = self.texts.iter().filter(|text| text.path.ends_with(".rs"));
        let mut sources: Vec<Source> =
            rust.map(|text| Source::parse(&text.path, &text.text)).collect();
        let of_tests: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
        for source in &mut sources {
            let below = |module: &String| {
                let rest = source.path.strip_prefix(module.as_str());
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            };
            if of_tests.iter().any(below) {
                source.set_test_file();
            }
        }
        sources
    }

    /// Whether there is a file of that path, or a folder with files in it.
    pub(super) fn holds(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.texts.iter().any(|text| text.path == path || text.path.starts_with(&folder))
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let text = |&(path, text): &(&str, &str)| Text { path: path.into(), text: text.into() };
        Self { texts: files.iter().map(text).collect() }
    }
}

fn listed(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("start git")?;
    ensure!(
        output.status.success(),
        "tidy needs a git checkout: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn this_checkout_has_this_file() {
        let tree = Tree::load(workspace::root()).unwrap();
        let this = tree.texts().iter().find(|text| text.path == "xtask/src/tidy/tree.rs");
        assert!(this.unwrap().text.contains("this_checkout_has"));
        assert!(tree.holds("xtask/src") && tree.holds("xtask/"));
        assert!(!tree.holds("target") && !tree.holds("xtask/sr"));
    }

    #[test]
    fn what_only_tests_declare_is_tests() {
        let tree = Tree::of(&[
            ("a/src/front.rs", "#[cfg(test)]\nmod samples;\nmod real;"),
            ("a/src/front/samples.rs", ""),
            ("a/src/front/samples/more.rs", ""),
            ("a/src/front/real.rs", ""),
        ]);
        let of_tests: Vec<bool> = tree.sources().iter().map(Source::is_test_file).collect();
        assert_eq!(of_tests, [false, true, true, false]);
    }

    #[test]
    fn only_rust_files_are_sources() {
        let tree = Tree::of(&[("a.rs", "fn a() {}"), ("b.md", "fn b() {}")]);
        assert_eq!(tree.sources().len(), 1);
    }
}

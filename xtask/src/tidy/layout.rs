//! Where things lie: crates in folders of their name, with a crate doc; decision records.

use super::{Finding, Text, Tree};

/// The parts that every decision record has.
const RECORD_PARTS: &[&str] = &["Context", "Decision", "Consequences"];
const RECORDS: &str = "docs/adr/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.texts().iter().flat_map(misnamed).collect();
    findings.extend(tree.texts().iter().flat_map(undocumented));
    findings.extend(records(tree));
    findings
}

/// A crate whose folder is not called as it is.
fn misnamed(manifest: &Text) -> Option<Finding> {
    let folder = manifest.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    let named = format!("name = \"{folder}\"");
    let line = manifest.text.lines().position(|line| line.trim_start().starts_with("name"))?;
    let is_named = manifest.text.lines().nth(line).map(str::trim_end) == Some(&named);
    let says = format!("the crate in `crates/{folder}` must be called `{folder}`");
    (!is_named).then(|| Finding::new(&manifest.path, line + 1, says))
}

/// A crate whose root does not begin with what it is.
fn undocumented(source: &Text) -> Option<Finding> {
    let parts: Vec<&str> = source.path.split('/').collect();
    let is_root = matches!(
        parts[..],
        ["crates", _, "src", "lib.rs" | "main.rs"] | ["xtask", "src", "main.rs"]
    );
    let is_told = source.text.trim_start().starts_with("//! ");
    let says = "begin with a crate doc (`//!`): a map, and what is deliberately absent";
    (is_root && !is_told).then(|| Finding::new(&source.path, 1, says))
}

/// Decision records: `NNNN-title.md`, numbered from 1 without gaps, with their three parts.
fn records(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbers = Vec::new();
    for text in tree.texts() {
        let Some(name) = text.path.strip_prefix(RECORDS) else { continue };
        match number_of(name) {
            Some(number) => numbers.push((number, text)),
            None if name == "README.md" => {}
            None => {
                let says = "call a decision record NNNN-title.md";
                findings.push(Finding::new(&text.path, 1, says));
            }
        }
    }
    numbers.sort_by_key(|(number, _)| *number);
    for ((number, text), expected) in numbers.into_iter().zip(1..) {
        if number != expected {
            let says = format!("the next decision record is {expected:04}, not {number:04}");
            findings.push(Finding::new(&text.path, 1, says));
        }
        findings.extend(missing_parts(text));
    }
    findings
}

fn number_of(name: &str) -> Option<u32> {
    let (digits, title) = name.strip_suffix(".md")?.split_once('-')?;
    let is_numbered = digits.len() == 4 && !title.is_empty() && !title.contains('/');
    digits.parse().ok().filter(|_| is_numbered)
}

fn missing_parts(record: &Text) -> impl Iterator<Item = Finding> {
    let headings: Vec<&str> = record
        .text
        .lines()
        .filter(|line| line.starts_with("##"))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    let missing = RECORD_PARTS.iter().filter(move |part| !headings.contains(part));
    missing.map(|part| Finding::new(&record.path, 1, format!("has no heading `## {part}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "# A\n\n## Context\n\n## Decision\n\n## Consequences\n";

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_is_called_as_its_folder() {
        let manifest = "[package]\nname = \"forebay-core\"\n[[bin]]\nname = \"x\"\n";
        assert_eq!(findings(&[("crates/forebay-core/Cargo.toml", manifest)]), [""; 0]);
        let found = findings(&[("crates/core/Cargo.toml", manifest)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/core/Cargo.toml:2: "), "{found:?}");
    }

    #[test]
    fn a_crate_says_what_it_is() {
        assert_eq!(findings(&[("crates/a/src/lib.rs", "//! A map.\n")]), [""; 0]);
        assert_eq!(findings(&[("crates/a/src/lib.rs", "// A map.\n")]).len(), 1);
        assert_eq!(findings(&[("crates/a/src/main.rs", "fn main() {}")]).len(), 1);
        assert_eq!(findings(&[("xtask/src/main.rs", "fn main() {}")]).len(), 1);
        assert_eq!(findings(&[("crates/a/src/b.rs", "fn b() {}")]), [""; 0]);
        assert_eq!(findings(&[("crates/a/src/b/lib.rs", "fn b() {}")]), [""; 0]);
    }

    #[test]
    fn records_are_numbered_without_gaps() {
        let both = [("docs/adr/0002-b.md", RECORD), ("docs/adr/0001-a.md", RECORD)];
        assert_eq!(findings(&both), [""; 0]);
        let gap = [("docs/adr/0001-a.md", RECORD), ("docs/adr/0003-c.md", RECORD)];
        let found = findings(&gap);
        assert_eq!(found, ["docs/adr/0003-c.md:1: the next decision record is 0002, not 0003"]);
        let twice = [("docs/adr/0001-a.md", RECORD), ("docs/adr/0001-b.md", RECORD)];
        assert_eq!(findings(&twice).len(), 1);
    }

    #[test]
    fn records_are_named_by_the_pattern() {
        for name in ["docs/adr/1-a.md", "docs/adr/0001.md", "docs/adr/notes.md"] {
            assert_eq!(findings(&[(name, RECORD)]).len(), 1, "{name}");
        }
        assert_eq!(findings(&[("docs/adr/README.md", "# Records\n")]), [""; 0]);
    }

    #[test]
    fn records_have_their_three_parts() {
        let found = findings(&[("docs/adr/0001-a.md", "# A\n\n## Context\n\n### Decision\n")]);
        assert_eq!(found, ["docs/adr/0001-a.md:1: has no heading `## Consequences`"]);
    }
}

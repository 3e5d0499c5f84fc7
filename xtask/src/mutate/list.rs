//! The list of mutations, with the test that docs/http.md names for each.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

const LIST: &str = "xtask/mutate/mutations.toml";
const PAGE: &str = "docs/http.md";

/// One change of the source that takes a rule out.
#[derive(Debug)]
pub(super) struct Mutation {
    /// The rule's sentence.
    pub(super) rule: String,
    pub(super) file: PathBuf,
    find: String,
    replace: String,
    pub(super) test: Test,
}

/// A test of a library, as docs/http.md names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) package: &'static str,
    /// Its path within the crate.
    pub(super) path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mutation: Vec<Typed>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    rule: String,
    file: PathBuf,
    find: String,
    replace: String,
}

/// Reads the list of a checkout; each of its rules must have a test of a library.
pub(super) fn read(root: &Path) -> Result<Vec<Mutation>> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).with_context(|| format!("read {name}"))
    };
    let page = read(PAGE)?;
    let file: File = toml::from_str(&read(LIST)?).with_context(|| format!("understand {LIST}"))?;
    let mutation = |typed: Typed| {
        let Typed { rule, file, find, replace } = typed;
        let test = test_of(&page, &rule).with_context(|| format!("{LIST}: {rule}"))?;
        Ok(Mutation { rule, file, find, replace, test })
    };
    file.mutation.into_iter().map(mutation).collect()
}

/// What the row of this rule says in its last column.
fn test_of(page: &str, rule: &str) -> Result<Test> {
    let cell = format!(" | {rule} | ");
    let row = page.lines().find(|line| line.contains(&cell));
    let row = row.with_context(|| format!("{PAGE} has no such rule"))?;
    let name = row.trim_end_matches([' ', '|', '`']).rsplit_once('`').map(|(_, name)| name);
    let name = name.with_context(|| format!("its row in {PAGE} ends without a test"))?;
    Test::named(name).with_context(|| format!("`{name}` is no test of a library alone"))
}

impl Test {
    fn named(name: &str) -> Option<Self> {
        let (package, name) = match name.strip_prefix("core ") {
            Some(name) => ("forebay-core", name),
            None => ("forebay-semantics", name),
        };
        let (room, name) = name.split_once("::")?;
        Some(Self { package, path: format!("{room}::tests::{name}") })
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.package, self.path)
    }
}

impl Mutation {
    /// The file without the rule.
    pub(super) fn applied(&self, source: &str) -> Result<String> {
        let count = source.matches(&self.find).count();
        let file = self.file.display();
        ensure!(
            count == 1,
            "{LIST}: what takes out \"{}\" stands {count} times in {file}, not once; \
             write down how the rule looks there now",
            self.rule
        );
        Ok(source.replacen(&self.find, &self.replace, 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace;

    #[test]
    fn every_mutation_still_fits_the_source() {
        let root = workspace::root();
        let all = read(root).unwrap();
        let mut rules = BTreeSet::new();
        for mutation in &all {
            let source = std::fs::read_to_string(root.join(&mutation.file)).unwrap();
            assert_ne!(mutation.applied(&source).unwrap(), source, "{}", mutation.rule);
            assert!(rules.insert(&mutation.rule), "{} stands twice", mutation.rule);
        }
        let files: BTreeSet<_> = all.iter().map(|mutation| &mutation.file).collect();
        assert!(all.len() >= 10 && files.len() >= 10, "rules of many rooms");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let mutation = |find: &str| Mutation {
            rule: "A rule.".to_owned(),
            file: "a.rs".into(),
            find: find.to_owned(),
            replace: "c".to_owned(),
            test: Test::named("a::b").unwrap(),
        };
        assert_eq!(mutation("b").applied("abd").unwrap(), "acd");
        for (find, count) in [("x", "0 times"), ("a", "2 times")] {
            let error = mutation(find).applied("aba").unwrap_err().to_string();
            assert!(error.contains(count) && error.contains("A rule."), "{error}");
        }
    }

    #[test]
    fn a_rule_is_found_by_its_sentence_and_has_a_test_of_a_library() {
        let page = "| 1 | One. | Yes. |  | `vary::a` |\n| 2 | Two. | No. |  | `core judge::b` |\n\
                    | 3 | Three. | No. |  | `scenario a01-c` |\n";
        assert_eq!(test_of(page, "One.").unwrap().to_string(), "forebay-semantics vary::tests::a");
        assert_eq!(test_of(page, "Two.").unwrap().to_string(), "forebay-core judge::tests::b");
        assert!(test_of(page, "Three.").unwrap_err().to_string().contains("scenario a01-c"));
        assert!(test_of(page, "Four.").unwrap_err().to_string().contains("no such rule"));
    }
}

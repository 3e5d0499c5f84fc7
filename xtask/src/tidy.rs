//! `cargo xtask tidy`: the project's own rules, which no compiler or linter knows.
//!
//! Each rule is one file: [`edges`] who may depend on whom, [`shape`] lengths, [`words`] names,
//! [`calls`] what code may not call, [`delegates`] what has to be handed on, [`layout`] folders,
//! crates and decision records, [`text`] every line of every file, [`links`] Markdown. [`source`]
//! is how Rust text is read, [`tree`] which files there are, [`figures`] what the code measures.
//!
//! A rule is a function from texts to findings, so its tests are small texts that must trip it.

use anyhow::{Result, bail};

use crate::{Usage, needs, workspace};

mod calls;
mod delegates;
mod edges;
mod figures;
mod layout;
mod links;
mod shape;
mod source;
mod text;
mod tree;
mod words;

use source::Source;
use tree::{Text, Tree};

/// A rule broken at a place, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    says: String,
}

impl Finding {
    fn new(path: &str, line: usize, says: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, says: says.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.says)
    }
}

/// Prints what breaks a rule, one line each, and fails if anything does.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wants_figures = match arguments {
        [] => false,
        [flag] if flag == "--figures" => true,
        _ => return Err(Usage("`tidy` takes only --figures".to_owned()).into()),
    };
    needs::ensure_for("tidy")?;
    let tree = Tree::load(workspace::root())?;
    let sources = tree.sources();
    if wants_figures {
        print!("{}", figures::table(&sources));
    }
    let mut findings = broken(&tree, &sources);
    findings.extend(edges::check(&workspace::metadata()?));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} to mend in {} files", findings.len(), tree.texts().len());
    }
    println!("tidy: {} files", tree.texts().len());
    Ok(())
}

/// Everything that the texts alone show.
fn broken(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let mut findings = layout::check(tree);
    findings.extend(links::check(tree));
    for text in tree.texts() {
        findings.extend(text::check(text));
        findings.extend(words::check_path(&text.path));
    }
    findings.extend(delegates::check(sources));
    for source in sources {
        findings.extend(shape::check(source));
        findings.extend(words::check_names(source));
        findings.extend(calls::check(source));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_the_place_first() {
        let finding = Finding::new("crates/a/src/lib.rs", 7, "too long; split it");
        assert_eq!(finding.to_string(), "crates/a/src/lib.rs:7: too long; split it");
    }

    #[test]
    fn every_rule_on_texts_is_asked() {
        let long = format!("/// {}\nfn do_it() {{ todo!() }} \n", "x".repeat(100));
        let tree = Tree::of(&[("crates/util/src/lib.rs", &long), ("README.md", "[a](gone.md)")]);
        let findings = broken(&tree, &tree.sources());
        let says: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        let told = ["gone.md", "crate doc", "white space", "`util`", "100", "`do_`", "todo!"];
        for part in told {
            assert!(says.contains(part), "{part} is missing in:\n{says}");
        }
    }

    #[test]
    fn wrong_arguments_are_wrong_usage() {
        assert!(run(&["--fast".to_owned()]).unwrap_err().is::<Usage>());
    }
}

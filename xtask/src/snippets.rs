//! `cargo xtask snippets`: runs what README.md and docs/*.md print, so that it stays true.
//!
//! [`markdown`] finds the fenced blocks and says what each asks for, [`compare`] holds what a
//! page prints against what came, [`page`] runs one page from top to bottom in a folder of its
//! own. The rules for authors stand in CONTRIBUTING.md.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{needs, process, workspace};

mod compare;
mod markdown;
mod page;

use markdown::Block;
use page::Stage;

/// Runs the named files, or README.md and docs/*.md, and fails at the first untrue line.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    needs::ensure_for("snippets")?;
    let files = match arguments {
        [] => pages(workspace::root())?,
        named => named.iter().map(PathBuf::from).collect(),
    };
    let pages = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    let stage = built_stage()?;
    let mut commands = 0;
    for (name, blocks) in &pages {
        commands += page::play(name, blocks, &stage)?;
    }
    println!("snippets: {commands} commands true in {} files", pages.len());
    Ok(())
}

/// README.md and what lies directly in docs; not the decision records, which tell of the past.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let readme = root.join("README.md");
    ensure!(readme.is_file(), "there is no README.md to check");
    let mut found = Vec::new();
    if let Ok(folder) = std::fs::read_dir(root.join("docs")) {
        for entry in folder {
            found.push(entry.context("list docs")?.path());
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found.insert(0, readme);
    Ok(found)
}

fn read(file: &Path) -> Result<(String, Vec<Block>)> {
    let name = file.strip_prefix(workspace::root()).unwrap_or(file).display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("read {name}"))?;
    match markdown::blocks(&text) {
        Ok(blocks) => Ok((name, blocks)),
        Err(problem) => bail!("{name}:{}: {}", problem.line, problem.says),
    }
}

/// Builds the release binary, which the snippets then find first in their search path.
fn built_stage() -> Result<Stage> {
    let mut printed = String::new();
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--locked", "--quiet"]);
    let status = process::lines(&mut command, |line| {
        printed.push_str(line);
        printed.push('\n');
    })?;
    ensure!(status.success(), "the release build failed:\n{printed}");
    let metadata = workspace::metadata()?;
    let programs = workspace::target_dir(&metadata)?.join("release");
    Ok(Stage { programs, binary: workspace::default_binary(&metadata)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn pages_are_the_readme_and_what_lies_directly_in_docs() {
        let scratch = Scratch::new("pages").unwrap();
        std::fs::create_dir_all(scratch.path().join("docs/adr")).unwrap();
        assert!(pages(scratch.path()).is_err());
        for name in ["README.md", "docs/b.md", "docs/a.md", "docs/plot.svg", "docs/adr/0001-x.md"] {
            std::fs::write(scratch.path().join(name), "").unwrap();
        }
        let found = pages(scratch.path()).unwrap();
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(scratch.path()).unwrap()).collect();
        assert_eq!(names, ["README.md", "docs/a.md", "docs/b.md"].map(Path::new));
    }

    #[test]
    fn a_malformed_page_is_reported_with_its_line() {
        let scratch = Scratch::new("pages").unwrap();
        let file = scratch.path().join("a.md");
        std::fs::write(&file, "\n```bash\n$ ls\n```\n").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("a.md:2: "), "{error}");
    }
}

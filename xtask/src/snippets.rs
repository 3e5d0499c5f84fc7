//! `cargo xtask snippets`: runs the commands that README.md and docs/*.md print.
//!
//! [`markdown`] reads the fenced blocks, [`compare`] compares the printed with the real output,
//! [`page`] runs one page. CONTRIBUTING.md has the rules for authors.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::{needs, workspace};

mod compare;
mod markdown;
mod page;

use markdown::Block;

/// Runs the named files, or README.md and docs/*.md, and fails at the first untrue line.
pub(crate) fn run(named: &[PathBuf]) -> Result<()> {
    needs::ensure_for("snippets")?;
    let files = if named.is_empty() { pages(workspace::root())? } else { named.to_vec() };
    let pages = files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    // The tests build this binary too; pages print `cargo run --release`, which takes longer.
    let binary = workspace::build_forebay()?;
    let mut commands = 0;
    for (name, blocks) in &pages {
        commands += page::play(name, blocks, &binary)?;
    }
    println!("snippets: {commands} commands true in {} files", pages.len());
    Ok(())
}

/// README.md and the pages of docs, without the folders below: decision records are history.
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
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let blocks = markdown::blocks(&text).with_context(|| name.clone())?;
    Ok((name, blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell script in place of `forebay`: `serve` runs until SIGTERM, `check` rejects `bad`.
    const PROGRAM: &str = "#!/bin/sh\ncase $1 in\n\
        serve) trap 'exit 0' TERM; echo 'forebay ready: http://here:1'; touch served; echo try;\n\
        \twhile :; do sleep 0.01; done;;\n\
        check) ! grep bad \"$2\";;\n\
        *) echo \"forebay $*\";;\nesac\n";

    fn play(text: &str) -> Result<usize> {
        let folder = tempfile::tempdir()?;
        let (script, program) = (folder.path().join("script"), folder.path().join("forebay"));
        std::fs::write(&script, PROGRAM)?;
        // `install` is another process: a child of a parallel test may hold a file of this one open
        // for writing, and an open file cannot be executed.
        let mut install = std::process::Command::new("install");
        ensure!(install.args(["-m", "755"]).arg(script).arg(&program).status()?.success());
        page::play("a.md", &markdown::blocks(text).expect("valid blocks"), &program)
    }

    #[test]
    fn untrue_pages_fail_with_the_line() {
        for (text, says) in [
            ("\n```sh\n$ true\n$ echo one\ntwo\n```\n", "line 4: `echo one` should print\ntwo\n"),
            ("```sh\n$ false\n```\n", "line 2"),
            ("```sh background\n$ echo no\n```\n", "ended"),
            ("```sh background\n$ echo forebay ready\n```\n", "line 2"),
            ("```toml\n# forebay.toml\nbad = 1\n```\n", "line 1"),
        ] {
            let error = format!("{:#}", play(text).unwrap_err());
            assert!(error.starts_with("a.md: ") && error.contains(says), "{error}");
        }
    }
}

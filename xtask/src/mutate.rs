//! `cargo xtask mutate [WORDS]`: takes rules of HTTP out of a copy of the source, one by one, and
//! demands that the test notices which stands beside the rule in docs/http.md.
//!
//! With words, only rules whose sentence holds them. It gates nothing: it shows what the tests are
//! worth, and takes a build of one or two crates for each rule. That every change still fits the
//! source is a test of this crate.
//!
//! [`list`] is the list of changes, `bench` is where they are tried.

use anyhow::{Result, ensure};

use crate::{Usage, workspace};

mod bench;
mod list;

use bench::Bench;
use list::Mutation;

/// Tries the mutations of the list, prints a line for each, and fails if one of them lives.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words = arguments.join(" ");
    let all = list::read(workspace::root())?;
    let chosen: Vec<&Mutation> = all.iter().filter(|one| one.rule.contains(&words)).collect();
    if chosen.is_empty() {
        return Err(Usage(format!("no rule of the list holds \"{words}\"")).into());
    }
    let bench = Bench::new()?;
    // A test that fails anyway, or that does not exist, would notice everything.
    bench.sound(&chosen)?;
    let mut living = Vec::new();
    for mutation in &chosen {
        let killed = bench.kills(mutation)?;
        println!(
            "{} {}: {}",
            if killed { "killed" } else { "LIVES " },
            mutation.test,
            mutation.rule
        );
        if !killed {
            living.push(mutation.rule.as_str());
        }
    }
    ensure!(living.is_empty(), "no test noticed that these are gone:\n{}", living.join("\n"));
    println!("{} rules taken out, each noticed by its test", chosen.len());
    Ok(())
}

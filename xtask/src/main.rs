//! Automation of the project: `cargo xtask COMMAND`.
//!
//! [`checks`] holds the lists of steps behind `quick`, `ci`, `nightly`, `test` and `soak`. Each other
//! command has a module of its name. [`workspace`] runs cargo, [`process`] runs other programs,
//! [`background`] keeps servers running, [`needs`] installs tools.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod background;
mod bench;
mod checks;
mod conformance;
mod imports;
mod instructions;
mod mutate;
mod needs;
mod package;
mod process;
mod real_software;
mod snippets;
mod tidy;
mod versions;
mod workspace;

/// Automation of forebay.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks format and lints and runs unit and paused-time tests; for every edit.
    Quick,
    /// Runs everything that gates a change.
    Ci,
    /// Runs long searches: fuzzing, histories, schedules, mutations, feature combinations.
    Nightly,
    /// Installs what the tests need and runs every suite that gates a change.
    Test,
    /// Runs one long search of `nightly`.
    Soak(checks::Soak),
    /// Checks links, decision records and the patterns that no linter knows.
    Tidy,
    /// Runs the commands that README.md and docs/*.md print.
    Snippets {
        /// Pages to run instead of all.
        files: Vec<PathBuf>,
    },
    /// Runs the public suite for HTTP caches against the binary.
    Conformance(conformance::Options),
    /// Runs Express, Flask, nginx, HAProxy and Chromium with the binary between them.
    RealSoftware {
        /// Cases to run instead of all.
        cases: Vec<String>,
    },
    /// Compares the instructions of a cache hit with docs/instructions.json.
    Instructions(instructions::Options),
    /// Removes rules of docs/http.md from the source; the test beside each rule must fail.
    Mutate {
        /// Only rules whose sentence contains these words.
        words: Vec<String>,
    },
    /// Runs benchmarks: `cargo xtask bench --list`.
    Bench(bench::Options),
    /// Builds and checks what users install: binary, image, units, configurations.
    Package(package::Options),
    /// Measures the build of the library from an empty folder.
    BuildTime,
    /// Runs another version beside this one, with one Redis for both.
    Versions {
        /// Commit or tag to build, instead of the newest release.
        commit: Option<String>,
    },
}

fn main() -> ExitCode {
    let result = run(Cli::parse().command);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Quick => checks::quick(),
        Command::Ci => checks::ci(),
        Command::Nightly => checks::nightly(),
        Command::Test => checks::test(),
        Command::Soak(soak) => checks::soak(&soak),
        Command::Tidy => tidy::run(),
        Command::Snippets { files } => snippets::run(&files),
        Command::Conformance(options) => conformance::run(&options),
        Command::RealSoftware { cases } => real_software::run(&cases),
        Command::Instructions(options) => instructions::run(options),
        Command::Mutate { words } => mutate::run(&words.join(" ")),
        Command::Bench(options) => bench::run(&options),
        Command::Package(options) => package::run(options),
        Command::BuildTime => bench::build_time(),
        Command::Versions { commit } => versions::run(commit.as_deref()),
    }
}

//! The `forebay` command.
//!
//! | file | holds |
//! |---|---|
//! | `args` | the command line |
//! | `serve` | the story of a running cache: plan, listen, ready, drain |
//! | `reload` | the configuration, read again while the cache runs |
//! | `workers` | the threads that serve connections |
//! | `admin` | the second listener: health, metrics, purges, the first page |
//! | `config` | what was typed, and what it means |
//! | `settings` | what the plan means for the HTTP door |
//! | `disk` | the disk tier: opened, told about, counted |
//! | `shared` | the tier that several caches share: connected, told about, counted |
//! | `origin` | the sample origin |
//! | `purge` | the command that asks a running cache to forget |
//! | `log` | where messages go |
//! | `socket` | listening sockets |
//! | `stop` | signals, and the limit of open files |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod admin;
mod args;
mod cluster;
mod config;
mod disk;
mod log;
mod origin;
mod purge;
mod reload;
mod serve;
mod settings;
mod shared;
mod socket;
mod stop;
mod workers;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// A stated failure.
const FAILED: u8 = 1;

/// Wrong usage, which is also what the parser of arguments exits with.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let code = match Args::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check(&args.file),
        Command::Origin(args) => origin::command::run(&args),
        Command::Purge(args) => purge::run(&args),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        eprintln!("forebay: {error:#}");
        FAILED
    }))
}

fn check(file: &std::path::Path) -> anyhow::Result<u8> {
    Ok(config::check::check(file, &mut std::io::stdout().lock(), &mut std::io::stderr().lock())?)
}

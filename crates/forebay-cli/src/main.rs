//! The `forebay` command.
//!
//! | file | holds |
//! |---|---|
//! | `args` | command line arguments |
//! | `serve` | `forebay serve`: resolve the configuration, listen, report ready, drain |
//! | `reload` | configuration reload while the cache runs |
//! | `workers` | threads that serve connections |
//! | `admin` | admin listener: health, metrics, purges, dashboard |
//! | `config` | configuration file: parsing, defaults, validation |
//! | `settings` | conversion of the resolved configuration to settings of the HTTP and Redis crates |
//! | `disk` | disk tier: opening, health, metrics |
//! | `shared` | shared Redis tiers: connecting, health, metrics |
//! | `cluster` | leases and the invalidation bus over all shared tiers |
//! | `origin` | sample origin |
//! | `probe` | probe listener: readiness without a token |
//! | `probe_command` | `forebay probe`: readiness as an exit code |
//! | `purge` | `forebay purge`: sends a purge to a running cache |
//! | `log` | log output |
//! | `output` | lines on stdout and stderr, and the text of an error |
//! | `small_server` | HTTP servers for operators |
//! | `socket` | listening sockets |
//! | `stop` | signals and the limit on open files |

mod admin;
mod args;
mod cluster;
mod config;
mod disk;
mod listener;
mod log;
mod origin;
mod output;
mod probe;
mod probe_command;
mod purge;
mod reload;
mod serve;
mod settings;
mod shared;
mod small_server;
mod socket;
mod stop;
mod tls;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use output::{describe, print_error};

/// Exit code for a failure with a message.
const FAILED: u8 = 1;

/// Exit code for wrong usage; clap exits with it too.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let code = match Args::parse_from(arguments(std::env::args_os())).command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check(&args.file),
        Command::Origin(args) => origin::command::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Probe(args) => probe_command::run(&args.url),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        print_error(format_args!("forebay: {}", describe(&error)));
        FAILED
    }))
}

/// Arguments for clap. The subcommand `help` has no flags in clap, so `--help` behind it is dropped.
fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = given.collect();
    if arguments.get(1).is_some_and(|command| command == "help") {
        arguments.retain(|argument| argument != "--help" && argument != "-h");
    }
    arguments
}

fn check(file: &std::path::Path) -> anyhow::Result<u8> {
    Ok(config::check::check(file, &mut std::io::stdout().lock(), &mut std::io::stderr().lock())?)
}

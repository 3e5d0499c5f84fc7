//! The `forebay` command.
//!
//! | file | holds |
//! |---|---|
//! | `args` | command line arguments |
//! | `serve` | `forebay serve`: resolve the configuration, listen, report ready, drain |
//! | `reload`, `admin_token` | configuration reload while the cache runs |
//! | `listener` | listening sockets, TLS, threads that serve connections |
//! | `admin` | admin listener: health, metrics, purges, dashboard |
//! | `config` | configuration file: parsing, defaults, validation |
//! | `settings` | conversion of the resolved configuration to settings of the HTTP and Redis crates |
//! | `tiers` | disk and Redis tiers: opening, health, metrics; leases and the invalidation bus |
//! | `origin` | sample origin |
//! | `probe` | probe listener: readiness without a token |
//! | `probe_command` | `forebay probe`: readiness as an exit code |
//! | `purge` | `forebay purge`: sends a purge to a running cache |
//! | `explain_command` | `forebay explain`: asks a running cache about a request |
//! | `live` | live views of the responses: expressions, tails, most frequent URLs |
//! | `tail_command`, `top_command` | `forebay tail` and `forebay top` |
//! | `admin_client` | client of the admin listener of a running cache |
//! | `warm` | `forebay warm`, and the warm-up before the readiness |
//! | `log` | log output |
//! | `output` | lines on stdout and stderr, the text of an error, exit codes |
//! | `small_server` | HTTP servers for operators |
//! | `stop` | signals and the limit on open files |
//! | `machine`, `sanity` | limits of the machine, and the configuration checked against them |
//! | `service_manager` | notifications to the service manager |
//! | `manual` | completions of shells and manual pages |
//!
//! `cargo xtask tidy` checks that no cycle crosses these folders.

mod admin;
mod admin_client;
mod admin_token;
mod args;
mod config;
mod explain_command;
mod listener;
mod live;
mod log;
mod log_line;
mod machine;
mod manual;
mod origin;
mod otlp;
mod output;
mod plan;
mod probe;
mod probe_command;
mod purge;
mod reload;
mod sanity;
mod serve;
mod service_manager;
mod settings;
mod small_server;
mod stop;
mod tail_command;
mod tiers;
mod top_command;
mod warm;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use args::{Args, CheckArgs, Command};
use config::explain::Explained;
use config::resolved::{Overrides, ResolvedConfig};
use output::{FAILED, describe, print_error};

/// Allocator of the server: with the one of the GNU C library, a small object takes twice the memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    use_small_pages();
    let code = match Args::parse_from(arguments(std::env::args_os())).command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check(&args),
        Command::Origin(args) => origin::command::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Explain(args) => explain_command::run(&args),
        Command::Tail(args) => tail_command::run(&args),
        Command::Top(args) => top_command::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Warm(args) => warm::run(&args),
        Command::Probe(args) => probe_command::run(&args.url),
        Command::Completions { shell } => manual::completions(shell),
        Command::Manual { folder } => manual::write_pages(&folder),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        print_error(format_args!("forebay: {}", describe(&error)));
        FAILED
    }))
}

/// Lets memory become resident in pages of 4 KiB. The allocator asks for huge pages, in which every
/// buffer is resident as a whole, however little of it was written.
fn use_small_pages() {
    // A kernel that refuses this costs memory, and nothing else.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Arguments for clap. The subcommand `help` has no flags in clap, so `--help` behind it is dropped.
fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = given.collect();
    if arguments.get(1).is_some_and(|command| command == "help") {
        arguments.retain(|argument| argument != "--help" && argument != "-h");
    }
    arguments
}

fn check(args: &CheckArgs) -> anyhow::Result<u8> {
    if let Some(url) = &args.explain {
        return explain(url, args);
    }
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    Ok(config::check::check(&args.file, args.strict, &mut out, &mut err)?)
}

fn explain(url: &str, args: &CheckArgs) -> anyhow::Result<u8> {
    let request = &args.request;
    let config = match ResolvedConfig::load(Some(&args.file), &Overrides::default()) {
        Ok(config) => config,
        Err(problems) => {
            problems.lines().for_each(|line| print_error(format_args!("{line}")));
            return Ok(FAILED);
        }
    };
    let explained = Explained {
        url: url.to_owned(),
        fields: request.fields.clone(),
        method: request.method.clone(),
        client: request.client,
        response: request.response.clone(),
    };
    let explanation = explained.by(&config)?;
    let mut text = explanation.text();
    if request.json {
        text = serde_json::to_string_pretty(&explanation)? + "\n";
    }
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(0)
}

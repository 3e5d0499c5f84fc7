//! The project's own automation: `cargo xtask COMMAND`.
//!
//! One file per command, named as the command is; beside them the rooms they share:
//! [`workspace`] (where things lie), [`process`] (children run to the end), [`background`]
//! (children that stay), [`example`] (measurements in the other crates), [`scratch`] (folders that
//! go away), [`needs`] (outside tools).
//!
//! Deliberately absent: a shell, a task framework, an argument parser, anything asynchronous.
//! Each command is a plain function over `std::process`.

use std::process::ExitCode;

use anyhow::Result;

mod background;
mod bench_cluster;
mod bench_disk;
mod bench_early;
mod bench_hit;
mod bench_library;
mod bench_memory;
mod bench_stampede;
mod bench_tier;
mod ci;
mod conformance;
mod example;
mod features;
mod instructions;
mod mutate;
mod needs;
mod outside;
mod process;
mod real_software;
mod scratch;
mod snippets;
mod soak;
mod test;
mod tidy;
mod workspace;

struct Command {
    name: &'static str,
    does: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const COMMANDS: &[Command] = &[
    Command { name: "ci", does: "everything that gates a change, step by step", run: ci::run },
    Command { name: "test", does: "install what the tests need, run every suite", run: test::run },
    Command { name: "tidy", does: "the project's own rules [--figures]", run: tidy::run },
    Command {
        name: "features",
        does: "the library with each of its features alone, with none, and with all",
        run: features::run,
    },
    Command {
        name: "outside",
        does: "the comparison with other libraries: its form, its lock, its warnings",
        run: outside::run,
    },
    Command {
        name: "snippets",
        does: "run what README.md and docs/*.md print [FILE...]",
        run: snippets::run,
    },
    Command {
        name: "bench-hit",
        does: "a hit against bare hyper and nginx [--quick] [--rounds N] [--seconds N] \
               [--without-forebay]",
        run: bench_hit::run,
    },
    Command {
        name: "bench-library",
        does: "a hit of the typed cache beside other libraries, hit ratios, and what early refresh \
               spares before SQLite [--quick]",
        run: bench_library::run,
    },
    Command {
        name: "build-time",
        does: "how long the typed library takes to build from nothing, and from how many crates",
        run: bench_library::build_time,
    },
    Command {
        name: "bench-memory",
        does: "resident memory under churn, idle and stalled clients [--quick]",
        run: bench_memory::run,
    },
    Command {
        name: "bench-stampede",
        does: "what a crowd of 500 costs, and what a broken origin leaves it [--quick]",
        run: bench_stampede::run,
    },
    Command {
        name: "bench-cluster",
        does: "what several caches of one Redis cost an origin, and their clients [--quick]",
        run: bench_cluster::run,
    },
    Command {
        name: "bench-early",
        does: "what early refresh spares, beside a cache without it [--quick]",
        run: bench_early::run,
    },
    Command {
        name: "bench-disk",
        does: "the disk tier beside bare files, after a restart, under a crowd [--quick]",
        run: bench_disk::run,
    },
    Command {
        name: "bench-tier",
        does: "what a Redis costs that fails, and a hit in one that works [--quick]",
        run: bench_tier::run,
    },
    Command {
        name: "conformance",
        does: "the public suite for HTTP caches against the binary [--redis] [--twice] [--bless] \
               [--only ID] [--suite DIR] [--binary FILE] [--store-set-cookie]",
        run: conformance::run,
    },
    Command {
        name: "real-software",
        does: "Express, Flask, nginx, HAProxy and Chromium with the binary [CASE...]",
        run: real_software::run,
    },
    Command {
        name: "instructions",
        does: "what a hit costs in instructions, against the record [--record] [--if-possible]",
        run: instructions::run,
    },
    Command {
        name: "mutate",
        does: "rules of HTTP taken out one by one: does their test notice? [WORDS]",
        run: mutate::run,
    },
    Command {
        name: "soak",
        does: "one suite with many more rounds: NAME [MINUTES]",
        run: soak::run,
    },
];

/// The command line itself was wrong, as opposed to something it asked for: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for Usage {}

/// What a command that takes no arguments says when it gets some.
pub(crate) fn no_arguments(command: &str, arguments: &[String]) -> Result<()> {
    match arguments.first() {
        None => Ok(()),
        Some(first) => Err(Usage(format!("`{command}` takes no argument `{first}`")).into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Usage(format!("name a command\n{}", listing())).into());
    };
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        print!("{}", listing());
        return Ok(());
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(rest),
        None => Err(Usage(format!("there is no command `{name}`\n{}", listing())).into()),
    }
}

fn listing() -> String {
    let rows = COMMANDS.iter().map(|command| format!("  {:<14} {}\n", command.name, command.does));
    std::iter::once("cargo xtask COMMAND\n".to_owned()).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_unknown_command_is_wrong_usage_and_lists_the_known_ones() {
        let error = dispatch(&words("frobnicate")).unwrap_err();
        assert!(error.is::<Usage>());
        let text = error.to_string();
        assert!(COMMANDS.iter().all(|command| text.contains(command.name)), "{text}");
    }

    #[test]
    fn no_command_is_wrong_usage() {
        assert!(dispatch(&[]).unwrap_err().is::<Usage>());
    }

    #[test]
    fn a_stray_argument_is_wrong_usage() {
        assert!(dispatch(&words("ci --fast")).unwrap_err().is::<Usage>());
        assert!(no_arguments("ci", &[]).is_ok());
    }
}

//! Benchmarks of forebay: `cargo xtask bench NAME…`.
//!
//! A benchmark returns [`report::Table`]s: rows with figures and bounds. This program prints them,
//! writes them as JSON, and ends with status 1 if a bound is missed. [`environment`] has what the
//! benchmarks share: the command line, built programs, pinned servers, statistics.
//!
//! This crate is a workspace of its own: its rivals are no dependencies of forebay.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod cluster;
mod disk;
mod early;
mod edge;
mod environment;
mod http;
mod library;
mod memory;
mod proxy;
mod report;
mod stampede;
mod tier;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use environment::Options;
use report::Table;

/// Name, content and function of a benchmark.
type Benchmark = (&'static str, &'static str, fn(&Options) -> Result<Vec<Table>>);

const BENCHMARKS: &[Benchmark] = &[
    ("hit", "CPU time of an HTTP hit beside other servers and caches", proxy::hit::run),
    ("pass", "CPU time of a response that is not stored", proxy::pass::run),
    ("miss", "CPU time of a response that is stored for the first time", proxy::pass::run_misses),
    ("memory-per-object", "resident memory of small objects, and of churns", proxy::objects::run),
    ("stampede", "500 clients at once, and 50 in front of a broken origin", stampede::run),
    ("edge", "CPU time over TLS and HTTP/2 beside nginx and HAProxy", edge::run),
    ("early", "loads that early refresh prevents, beside a cache without it", early::run),
    ("tier", "a Redis that is slow, frozen, gone or damaged, and a hit in it", tier::run),
    ("cluster", "several caches with one Redis: loads, waits, commands", cluster::run),
    ("disk", "the disk tier beside plain files, after a restart, with a crowd", disk::run),
    ("memory", "resident memory with churn, stalled clients, idle connections", memory::run),
    ("library", "a typed hit beside other libraries, hit ratios, SQLite", library::run),
];

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // This program is also its own child process.
    match words[..] {
        [proxy::raw::CHILD] => {
            proxy::raw::serve()?;
            return Ok(ExitCode::SUCCESS);
        }
        [library::hits::CHILD, subject, times] => {
            library::hits::run_subject(subject, times)?;
            return Ok(ExitCode::SUCCESS);
        }
        [cluster::library::PEER, redis] => {
            cluster::library::run_peer(redis)?;
            return Ok(ExitCode::SUCCESS);
        }
        [cluster::floor::LISTENER, redis] => {
            cluster::floor::listen(redis)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let options = Options::parse();
    if options.list {
        BENCHMARKS.iter().for_each(|(name, shows, _)| println!("{name:<18} {shows}"));
        return Ok(ExitCode::SUCCESS);
    }
    environment::raise_open_files();
    let mut holds = true;
    for (name, _, run) in BENCHMARKS.iter().filter(|(name, ..)| options.names(name)) {
        eprintln!("benchmark {name}");
        let tables = run(&options).with_context(|| format!("benchmark {name}"))?;
        tables.iter().for_each(|table| println!("{table}"));
        holds &= tables.iter().all(Table::holds);
        let file = options.report_dir()?.join(format!("bench-{name}.json"));
        let json: Vec<_> = tables.iter().map(Table::json).collect();
        std::fs::write(&file, format!("{:#}\n", serde_json::json!(json)))?;
        println!("written to {}", file.display());
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

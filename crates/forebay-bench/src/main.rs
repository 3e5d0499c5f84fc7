//! Benchmarks of forebay: `cargo xtask bench NAME…`.
//!
//! A benchmark returns [`report::Table`]s: rows with figures and bounds. This program prints them,
//! writes them as JSON, and ends with status 1 if a bound is missed. [`environment`] has what the
//! benchmarks share: the command line, built programs, pinned servers, statistics.
//!
//! This crate is a workspace of its own: its rivals are no dependencies of forebay.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod cluster;
mod coalescing;
mod codecs;
mod disk;
mod early;
mod edge;
mod environment;
mod failing;
mod http;
mod layers;
mod library;
mod memory;
mod observe;
mod origins;
mod proxy;
mod report;
mod rivals;
mod rules;
mod stampede;
mod start_up;
mod tier;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use environment::Options;
use report::Table;
use report::record::{Record, Run};

/// Name, content and function of a benchmark.
type Benchmark = (&'static str, &'static str, fn(&Options) -> Result<Vec<Table>>);

/// Tables of published texts, and those that compare the first costs of a cache.
const PUBLISHED: &[Benchmark] = &[
    (
        "stampede",
        "simultaneous callers and clients, beside rivals and a broken origin",
        stampede::run,
    ),
    ("tiers", "reads from memory, Redis and both, beside other libraries", layers::run_tiers),
    ("http", "three routes at 40 connections beside other HTTP caches", proxy::routes::run),
    ("payload", "hits by size in memory and Redis", layers::run_payload),
    ("slow-redis", "libraries and the server with a slow Redis", tier::run_slow),
    ("dead-redis", "the same with a Redis that is gone in three ways", tier::run_dead),
    ("memory-pressure", "more values than fit into the bound", layers::run_pressure),
    ("invalidation", "removals in another process, and tags", layers::run_invalidation),
    ("restart", "entries on disk after a restart and after a kill", disk::run_restart),
    ("coalescing", "two instances, three modes, a published load in real time", coalescing::run),
    ("codecs", "formats and compressions beside those of Rails and Node.js", codecs::run),
    ("early-refresh", "loads that early refresh prevents, beside other methods", early::run),
    ("hit", "CPU time of an HTTP hit beside other servers and caches", proxy::hit::run),
    ("library-hit", "a typed hit beside other libraries", library::hits::run),
    ("memory-per-entry", "heap of an entry beside other libraries", library::entries::run),
    ("start-up", "time to the first response beside other HTTP caches", start_up::run),
];

/// Benchmarks of single parts.
const FURTHER: &[Benchmark] = &[
    ("pass", "CPU time of a response that is not stored", proxy::pass::run),
    ("miss", "CPU time of a response that is stored for the first time", proxy::pass::run_misses),
    ("memory-per-object", "resident memory of small objects, and of churns", proxy::objects::run),
    ("edge", "CPU time over TLS and HTTP/2 beside nginx and HAProxy", edge::run),
    ("origins", "failing, slow and limited origins, budgets, restarts, compression", origins::run),
    ("tier", "a hit in Redis beside the bare client, and foreign values", tier::run),
    ("cluster", "several caches with one Redis: loads, waits, commands", cluster::run),
    ("disk", "the disk tier beside plain files, with a crowd", disk::run),
    ("memory", "resident memory with churn, stalled clients, idle connections", memory::run),
    ("observe", "cost and exactness of metrics, logs, live views and tracing", observe::run),
    ("hit-ratios", "hits by policy and library, and early refresh over SQLite", library::run),
    ("rules", "time of matching and of loading rules", rules::run),
    ("library", "a typed hit beside other libraries, hit ratios, SQLite", library::run),
];

/// All benchmarks.
pub(crate) fn all() -> impl Iterator<Item = &'static Benchmark> {
    PUBLISHED.iter().chain(FURTHER)
}

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
        [rivals::own::CHILD, ref words @ ..] => {
            rivals::own::run(words)?;
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
        for (title, group) in [("tables", PUBLISHED), ("further benchmarks", FURTHER)] {
            println!("{title}:");
            group.iter().for_each(|(name, shows, _)| println!("  {name:<18} {shows}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    environment::raise_open_files();
    let mut record = Record::open(&options.report_dir()?)?;
    let mut holds = true;
    let named: Vec<_> = match options.benchmarks[..] {
        [] => PUBLISHED.iter().collect(),
        ref names => all().filter(|(name, ..)| names.iter().any(|one| one == name)).collect(),
    };
    for (number, &&(name, shows, run)) in (1..).zip(&named) {
        eprintln!("benchmark {number} of {}: {name}", named.len());
        let began = Instant::now();
        let tables = run(&options).with_context(|| format!("benchmark {name}"))?;
        // Those in which a rival is ahead are printed first.
        let (lost, others): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.is_lost());
        lost.into_iter().chain(others).for_each(|table| println!("{table}"));
        holds &= tables.iter().all(Table::holds);
        let quick = options.quick;
        record.add(&Run { name, shows, arguments: &arguments, quick, began }, &tables)?;
        println!("written to {}", record.page().display());
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

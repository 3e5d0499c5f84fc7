//! Lists of steps: `quick`, `ci`, `nightly`, `test`, and the long searches of `soak`.
//!
//! A green step prints one line. A red step prints its whole output and the command that runs it
//! alone. `quick` and `ci` end at the first red step; `nightly` and `test` run all steps.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::{needs, process, workspace};

/// Variables that make a gating run repeatable: it judges the change, not the luck of the draw.
/// `nightly` draws new seeds.
const SEEDS: &[(&str, &str)] =
    &[("PROPTEST_RNG_SEED", "1"), ("FOREBAY_FUZZ_SEED", "1"), ("SHUTTLE_RANDOM_SEED", "1")];

/// Time limit of the optional `MINUTES` of a soak.
const MINUTES: &str = "FOREBAY_SOAK_MINUTES";

/// Marks a step whose tests use the programs of `needs::tools_folder`, in `FOREBAY_TOOLS`.
const NEEDS_TOOLS: &str = "FOREBAY_NEEDS_TOOLS";

/// A question and the cargo command whose exit status answers it.
struct Step {
    question: &'static str,
    /// Arguments of cargo, separated by spaces.
    cargo: &'static str,
    environment: &'static [(&'static str, &'static str)],
    shows: Shows,
}

/// Output that a green step adds to its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Nothing,
    /// The last line of the output.
    LastLine,
    /// The number of passed tests. A run without any test proves nothing and is red.
    Tests,
}

impl Step {
    const fn new(question: &'static str, cargo: &'static str) -> Self {
        Self { question, cargo, environment: &[], shows: Shows::Nothing }
    }

    const fn with(mut self, environment: &'static [(&'static str, &'static str)]) -> Self {
        self.environment = environment;
        self
    }

    const fn shows(mut self, shows: Shows) -> Self {
        self.shows = shows;
        self
    }
}

const FORMAT: Step = Step::new("formatted?", "fmt --all --check");
const LINTS: Step =
    Step::new("lints?", "clippy --workspace --all-targets --locked --quiet -- -D warnings");
const TIDY: Step = Step::new("links, records and patterns?", "xtask tidy");

const QUICK: &[Step] = &[
    FORMAT,
    LINTS,
    Step::new("unit tests?", "test --workspace --exclude xtask --lib --bins --locked")
        .with(SEEDS)
        .shows(Shows::Tests),
    Step::new("paused-time tests of the engine?", "test -p forebay-engine --test it --locked")
        .with(&[("FOREBAY_SOAK_ROUNDS", "1")])
        .shows(Shows::Tests),
];

/// Cheap steps first. The tests build what `snippets` runs.
const CI: &[Step] = &[
    FORMAT,
    TIDY,
    LINTS,
    Step::new(
        "lints with the interleaving scheduler?",
        "clippy -p forebay-engine --features interleavings --all-targets --locked --quiet -- -D \
         warnings",
    ),
    // The lints above build the library with all features.
    Step::new(
        "library without features?",
        "check -p forebay --lib --no-default-features --locked --quiet",
    ),
    Step::new(
        "format of the benchmarks?",
        "fmt --check --manifest-path crates/forebay-bench/Cargo.toml",
    ),
    Step::new("API documentation?", "doc --workspace --no-deps --locked --quiet")
        .with(&[("RUSTDOCFLAGS", "-D warnings")]),
    Step::new("commands in the documents?", "xtask snippets").shows(Shows::LastLine),
    Step::new("instructions of a hit?", "xtask instructions --if-possible").shows(Shows::LastLine),
    Step::new("tests?", "xtask test").shows(Shows::LastLine),
];

const TEST: &[Step] = &[
    Step::new("every crate", "test --workspace --locked --no-fail-fast")
        .with(SEEDS)
        .shows(Shows::Tests),
    // The name of the module selects the tests: no others run under this scheduler.
    Step::new("interleavings of the engine", INTERLEAVINGS).with(SEEDS).shows(Shows::Tests),
    Step::new("public suite for HTTP caches", "xtask conformance").shows(Shows::LastLine),
];

const INTERLEAVINGS: &str =
    "test -p forebay-engine --features interleavings --lib --locked interleavings";

/// Steps of `nightly` beside [`SOAKS`].
const NIGHTLY: &[Step] = &[
    Step::new(
        "licences, sources and dependency edges?",
        "deny --locked check licenses bans sources",
    ),
    Step::new(
        "each library feature alone, and pairs?",
        "hack check -p forebay --lib --feature-powerset --depth 2 --locked --quiet",
    ),
    Step::new("each HTTP rule tested?", "xtask mutate").shows(Shows::LastLine),
    Step::new("public suite with Redis?", "xtask conformance --redis").shows(Shows::LastLine),
    Step::new("real servers and clients?", "xtask real-software").shows(Shows::LastLine),
    Step::new("build time of the library?", "xtask build-time").shows(Shows::LastLine),
    Step::new(
        "lints of the benchmarks?",
        "clippy --manifest-path crates/forebay-bench/Cargo.toml --target-dir target \
         --all-targets --locked --quiet -- -D warnings",
    ),
    Step::new("benchmarks?", "xtask bench --quick"),
];

/// Long searches, by name. They draw new seeds.
const SOAKS: &[(&str, Step)] = &[
    (
        "fuzz",
        Step::new("fuzz targets, 600 s each", "test -p forebay-fuzz --locked")
            .with(&[("FOREBAY_FUZZ_SECONDS", "600")]),
    ),
    (
        "flights",
        Step::new("request coalescing, 100 rounds", "test -p forebay-engine race")
            .with(&[("FOREBAY_SOAK_ROUNDS", "100")]),
    ),
    (
        // Installs pebble, the test server of Let's Encrypt.
        "certificates",
        Step::new(
            "automatic certificates",
            "test -p forebay-cli --test it --locked acme:: -- --ignored",
        )
        .with(&[(NEEDS_TOOLS, "yes")]),
    ),
    (
        "parsers",
        Step::new(
            "100,000 forwarded requests, read by the parser of Node",
            "test -p forebay-cli --release --test it --locked second_parser::",
        )
        .with(&[("FOREBAY_FORWARDED", "100000")]),
    ),
    (
        "variants",
        // 100,000 histories of one instance, and 4,000 over disks and a Redis.
        Step::new(
            "clients with different variants, 104,000 histories",
            "test -p forebay-http -p forebay-cli --release --no-fail-fast --test it apart::",
        )
        .with(&[("FOREBAY_SOAK_ROUNDS", "100")]),
    ),
    (
        "interleavings",
        Step::new("interleavings, 20 rounds", INTERLEAVINGS).with(&[("FOREBAY_SOAK_ROUNDS", "20")]),
    ),
    (
        "cluster",
        Step::new(
            "100,000 histories of several instances",
            "test -p forebay-engine --release --test it cluster::",
        )
        .with(&[("FOREBAY_SOAK_ROUNDS", "10")]),
    ),
    (
        "cluster-redis",
        Step::new(
            "histories over Redis, a million operations",
            "test -p forebay-redis --release --test it histories",
        )
        .with(&[
            ("FOREBAY_HISTORY_OPERATIONS", "1000000"),
            // With the 4 callers of the tests a run takes half an hour on an idle machine.
            ("FOREBAY_HISTORY_CALLERS", "48"),
            // The five histories wait for their servers, so they run at once on any machine.
            ("RUST_TEST_THREADS", "5"),
            ("FOREBAY_HISTORY_CUTS", "1000"),
            ("FOREBAY_TEST_WRITES", "100000"),
            ("FOREBAY_TEST_MEMBERS", "1000000"),
        ]),
    ),
    (
        "disk",
        // Killed processes, and a failure at every single call of the file system.
        Step::new("faults of the disk tier, 1,000 rounds", "test -p forebay-disk wrong")
            .with(&[("FOREBAY_SOAK_ROUNDS", "1000")]),
    ),
    (
        "disk-churn",
        Step::new("eviction in the disk tier, 30 minutes", "test -p forebay-disk --test it churn")
            .with(&[(MINUTES, "30")]),
    ),
];

/// Arguments of `cargo xtask soak`.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// Name of the search.
    #[arg(value_parser = SOAKS.iter().map(|(name, _)| *name).collect::<Vec<_>>())]
    name: String,
    /// Duration of `disk-churn` instead of 30 minutes.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    minutes: Option<u32>,
}

/// Checks format and lints and runs the tests that need no server.
pub(crate) fn quick() -> Result<()> {
    run_until_red("quick", QUICK)
}

/// Runs everything that gates a change.
pub(crate) fn ci() -> Result<()> {
    needs::ensure_for("ci")?;
    run_until_red("ci", CI)
}

/// Runs all steps and all soaks, then lists the red ones.
pub(crate) fn nightly() -> Result<()> {
    needs::ensure_for("nightly")?;
    run_all("nightly", NIGHTLY.iter().chain(SOAKS.iter().map(|(_, step)| step)))
}

/// Installs the tools of the tests and runs all suites, also after a red one.
pub(crate) fn test() -> Result<()> {
    needs::ensure_for("test")?;
    run_all("test", TEST)
}

/// Runs one long search.
pub(crate) fn soak(soak: &Soak) -> Result<()> {
    let found = SOAKS.iter().find(|(name, _)| *name == soak.name);
    let Some((_, step)) = found else { bail!("there is no soak named `{}`", soak.name) };
    let takes_minutes = step.environment.iter().any(|(name, _)| *name == MINUTES);
    ensure!(
        soak.minutes.is_none() || takes_minutes,
        "the soak `{}` takes no number of minutes",
        soak.name
    );
    needs::ensure_for(&soak.name)?;
    let mut command = command(step)?;
    command.envs(soak.minutes.map(|minutes| (MINUTES, minutes.to_string())));
    let mut passed = 0;
    let status = process::lines(&mut command, |line| {
        println!("{line}");
        passed += passed_in(line);
    })?;
    ensure!(status.success() && passed > 0, "the soak `{}` failed, or ran no test", soak.name);
    Ok(())
}

fn run_until_red(name: &str, steps: &[Step]) -> Result<()> {
    let started = Instant::now();
    for step in steps {
        ask(step)?;
    }
    println!("{name}: {} steps green in {:.1} s", steps.len(), started.elapsed().as_secs_f64());
    Ok(())
}

fn run_all(name: &str, steps: impl IntoIterator<Item = &'static Step>) -> Result<()> {
    let (mut green, mut red, mut tests) = (0, Vec::new(), 0);
    for step in steps {
        match ask(step) {
            Ok(passed) => (green, tests) = (green + 1, tests + passed),
            Err(error) => red.push(format!("{error:#}")),
        }
    }
    println!("{name}: {tests} tests passed, {green} suites green, {} red", red.len());
    ensure!(red.is_empty(), "{}", red.join("\n"));
    Ok(())
}

/// Runs a step and returns the number of tests that passed.
fn ask(step: &Step) -> Result<u64> {
    print!("== {} == ", step.question);
    std::io::stdout().flush()?;
    let started = Instant::now();
    let (mut printed, mut passed) = (Vec::new(), 0);
    let status = process::lines(&mut command(step)?, |line| {
        passed += passed_in(line);
        printed.push(line.to_owned());
    })?;
    let took = started.elapsed();
    let is_empty = step.shows == Shows::Tests && passed == 0;
    if !status.success() || is_empty {
        println!("no ({})\n{}", seconds(took), printed.join("\n"));
        let why = if is_empty { "; no test ran" } else { "" };
        bail!("red: {}{why}. Alone: {}", step.question, alone(step));
    }
    let more = match step.shows {
        Shows::Nothing => String::new(),
        Shows::LastLine => format!(", {}", printed.last().map_or("", String::as_str)),
        Shows::Tests => format!(", {passed} tests"),
    };
    println!("yes ({}){more}", seconds(took));
    Ok(passed)
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn command(step: &Step) -> Result<Command> {
    let mut command = workspace::cargo();
    command.args(step.cargo.split(' '));
    // A variable that the caller has set wins: it repeats a run with another seed.
    let unset = step.environment.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    command.envs(unset.copied());
    if step.environment.iter().any(|(name, _)| *name == NEEDS_TOOLS) {
        command.env("FOREBAY_TOOLS", needs::tools_folder()?);
    }
    Ok(command)
}

/// Command line that runs this step alone.
fn alone(step: &Step) -> String {
    let environment = step.environment.iter().map(|(name, value)| format!("{name}='{value}' "));
    format!("{}cargo {}", environment.collect::<String>(), step.cargo)
}

/// Number of passed tests in a line `test result: ok. 5 passed; 0 failed; ...`, else 0.
fn passed_in(line: &str) -> u64 {
    let counts = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
    let passed = counts.and_then(|(_, counts)| counts.split_once(" passed"));
    passed.and_then(|(passed, _)| passed.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_red_when_its_command_fails_or_no_test_runs() {
        let fails = Step::new("there?", "no-such-command").with(&[("WITH", "a value")]);
        let error = ask(&fails).unwrap_err().to_string();
        assert_eq!(error, "red: there?. Alone: WITH='a value' cargo no-such-command");
        assert!(ask(&Step::new("there?", "--version")).is_ok());
        assert!(ask(&Step::new("there?", "--version").shows(Shows::Tests)).is_err());
    }
}

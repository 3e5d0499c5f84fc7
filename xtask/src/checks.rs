//! Lists of steps: `quick`, `ci`, `nightly`, `test`, and the long searches of `soak`.
//!
//! A green step prints one line. A red step prints its whole output and the command that runs it
//! alone. `quick` and `ci` end at the first red step; `nightly` and `test` run all steps.

mod second_run;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::{needs, process, workspace};

/// Variables of the steps that gate a change: clippy compiles the crates of the workspace, so that
/// one build serves lints and tests.
const LINTED: &[(&str, &str)] = &[COMPILER, LINTS];
const COMPILER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
const LINTS: (&str, &str) = ("CLIPPY_ARGS", "-Dwarnings");

/// Variables of gating tests. With fixed seeds a run is repeatable: it judges the change, not the
/// luck of the draw. `nightly` draws new seeds.
const LINTED_TESTS: &[(&str, &str)] = &[
    COMPILER,
    LINTS,
    ("PROPTEST_RNG_SEED", "1"),
    ("FOREBAY_FUZZ_SEED", "1"),
    ("SHUTTLE_RANDOM_SEED", "1"),
];

/// Time limit of the optional `MINUTES` of a soak.
const MINUTES: &str = "FOREBAY_SOAK_MINUTES";

/// Number of tests that run at once; a step or the caller may set it.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Value of [`TEST_THREADS`] for each core.
const TESTS_PER_CORE: usize = 2;

/// Marks a step whose tests use the programs of `needs::tools_folder`, in `FOREBAY_TOOLS`.
const NEEDS_TOOLS: &str = "FOREBAY_NEEDS_TOOLS";

/// A question and the cargo command whose exit status answers it.
struct Step {
    question: &'static str,
    /// Arguments of cargo, separated by spaces.
    cargo: &'static str,
    environment: &'static [(&'static str, &'static str)],
    shows: Shows,
    /// Runs with a lower priority: it computes beside tests that have time limits.
    is_background: bool,
    /// Failed tests, or the whole step if it is no test, are run once more.
    second_run: bool,
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

/// Steps that run one after another.
type Lane = Vec<&'static Step>;

/// Effect of a red step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reds {
    /// Ends the run.
    End,
    /// Is listed at the end of the run.
    Collect,
}

impl Step {
    const fn new(question: &'static str, cargo: &'static str) -> Self {
        Self {
            question,
            cargo,
            environment: &[],
            shows: Shows::Nothing,
            is_background: false,
            second_run: false,
        }
    }

    const fn with(mut self, environment: &'static [(&'static str, &'static str)]) -> Self {
        self.environment = environment;
        self
    }

    const fn in_background(mut self) -> Self {
        self.is_background = true;
        self
    }

    const fn with_second_run(mut self) -> Self {
        self.second_run = true;
        self
    }

    const fn shows(mut self, shows: Shows) -> Self {
        self.shows = shows;
        self
    }
}

const FORMAT: Step = Step::new("formatted?", "fmt --all --check");
// A step of its own: later ones wait for each other's builds, and start with this one's.
const BUILD: Step =
    Step::new("lints, and builds?", "test --workspace --all-targets --locked --no-run --quiet")
        .with(LINTED);
const TIDY: Step = Step::new("links, records and patterns?", "xtask tidy");

const QUICK: &[Step] = &[
    FORMAT,
    BUILD,
    Step::new("unit tests?", "test --workspace --lib --bins --locked")
        .with(LINTED_TESTS)
        .shows(Shows::Tests),
    Step::new("paused-time tests of the engine?", "test -p forebay-engine --test it --locked")
        .with(&[("FOREBAY_SOAK_ROUNDS", "1")])
        .shows(Shows::Tests),
];

/// Steps of `ci` before all others.
const FIRST: &[Step] = &[
    FORMAT,
    Step::new(
        "format of the benchmarks?",
        "fmt --check --manifest-path crates/forebay-bench/Cargo.toml",
    ),
    TIDY,
    BUILD,
];

/// Steps of `ci` beside [`CRATES`]: they compute while those tests wait. The commands in the documents
/// wait too, and some expect a server to be ready or a body to be stored after part of a second.
const BESIDE_TESTS: &[Step] = &[
    Step::new("commands in the documents?", "xtask snippets")
        .with(LINTED)
        .shows(Shows::LastLine)
        .with_second_run(),
    // The build above has all features.
    Step::new(
        "library without features?",
        "check -p forebay --lib --no-default-features --locked --quiet",
    )
    .in_background(),
    Step::new("API documentation?", "doc --workspace --no-deps --locked --quiet")
        .with(&[("RUSTDOCFLAGS", "-D warnings")])
        .in_background(),
];

const CRATES: &[Step] =
    &[Step::new("tests of every crate?", "test --workspace --locked --no-fail-fast")
        .with(LINTED_TESTS)
        .shows(Shows::Tests)
        .with_second_run()];

const OTHER_SUITES: &[Step] = &[
    // The name of the module selects the tests: no others run under this scheduler.
    Step::new("interleavings of the engine?", INTERLEAVINGS)
        .with(LINTED_TESTS)
        .shows(Shows::Tests)
        .in_background(),
    Step::new("public suite for HTTP caches?", "xtask conformance")
        .with(LINTED)
        .shows(Shows::LastLine)
        .in_background(),
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
    Step::new("instructions of a hit?", "xtask instructions --if-possible").shows(Shows::LastLine),
    Step::new("each HTTP rule tested?", "xtask mutate").shows(Shows::LastLine),
    Step::new("public suite with Redis?", "xtask conformance --redis").shows(Shows::LastLine),
    Step::new("public suite with 100 rules?", "xtask conformance --rules").shows(Shows::LastLine),
    Step::new("previous version beside this one?", "xtask versions").shows(Shows::LastLine),
    Step::new("each alert fires?", "test -p forebay-cli --test it --locked alerts:: -- --ignored")
        .shows(Shows::Tests),
    Step::new("build time of the library?", "xtask build-time").shows(Shows::LastLine),
    Step::new(
        "lints of the benchmarks?",
        "clippy --manifest-path crates/forebay-bench/Cargo.toml --target-dir target \
         --all-targets --locked --quiet -- -D warnings",
    ),
    Step::new("tables?", "xtask bench --quick"),
    Step::new(
        "further benchmarks?",
        "xtask bench --quick pass miss memory-per-object edge origins tier cluster disk memory observe \
         hit-ratios rules",
    ),
    // One of its cases opens the page that the benchmarks have written.
    Step::new("real servers and clients?", "xtask real-software").shows(Shows::LastLine),
    Step::new("pages of the benchmarks?", "xtask bench --check").shows(Shows::LastLine),
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
        // One after another: they measure time, and need a rate of requests.
        "lifecycle",
        Step::new(
            "stops, restarts and log rotations under load",
            "test -p forebay-cli --test it --locked lifecycle:: -- --include-ignored --nocapture \
             --test-threads=1",
        ),
    ),
    (
        // Installs h2spec.
        "h2spec",
        Step::new(
            "conformance of HTTP/2, three runs",
            "test -p forebay-cli --test it --locked h2spec:: -- --ignored",
        )
        .with(&[(NEEDS_TOOLS, "yes")]),
    ),
    (
        "explain",
        Step::new(
            "explanations before each request of 10,000 generated histories",
            "test -p forebay-http --release --test it --locked explain::histories::",
        )
        .with(&[("FOREBAY_EXPLAIN_HISTORIES", "10000")]),
    ),
    (
        "plan",
        Step::new(
            "estimates of the memory size, 2,400,000 requests",
            "test -p forebay-cli --release --test it --locked plan:: -- --ignored --nocapture",
        ),
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
        "rules",
        Step::new(
            "properties of rules, 100,000 cases each",
            "test -p forebay-rules --release --lib --locked",
        )
        .with(&[("FOREBAY_RULE_CASES", "100000")]),
    ),
    (
        "rules-explain",
        Step::new(
            "1,000 requests, explained and sent",
            "test -p forebay-cli --test it --locked rules_explain::",
        )
        .with(&[("FOREBAY_EXPLAIN_CASES", "1000")]),
    ),
    (
        "variants",
        // 100,000 histories of one instance, and 8,000 over disks and a Redis.
        Step::new(
            "clients with different variants, 108,000 histories",
            "test -p forebay-http -p forebay-cli --release --no-fail-fast --test it apart::",
        )
        .with(&[("FOREBAY_SOAK_ROUNDS", "500")]),
    ),
    (
        "interleavings",
        Step::new("interleavings, 100 rounds", INTERLEAVINGS)
            .with(&[("FOREBAY_SOAK_ROUNDS", "100")]),
    ),
    (
        "cluster",
        Step::new(
            "100,000 histories of several instances",
            "test -p forebay-engine --release --test it cluster::",
        )
        .with(&[("FOREBAY_SOAK_ROUNDS", "100")]),
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
            (TEST_THREADS, "5"),
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
    run("quick", Reds::End, vec![vec![QUICK.iter().collect()]])
}

/// Runs everything that gates a change.
pub(crate) fn ci() -> Result<()> {
    // Before the lanes: two installations at once would wait for each other's lock.
    ["test", "snippets", "conformance"].into_iter().try_for_each(needs::ensure_for)?;
    let beside_tests = BESIDE_TESTS.iter().chain(OTHER_SUITES).collect();
    let stages = vec![vec![FIRST.iter().collect()], vec![CRATES.iter().collect(), beside_tests]];
    run("ci", Reds::End, stages)
}

/// Runs all steps and all soaks, then lists the red ones.
pub(crate) fn nightly() -> Result<()> {
    needs::ensure_for("nightly")?;
    let soaks = SOAKS.iter().map(|(_, step)| step);
    run("nightly", Reds::Collect, vec![vec![NIGHTLY.iter().chain(soaks).collect()]])
}

/// Installs the tools of the tests and runs all suites, also after a red one.
pub(crate) fn test() -> Result<()> {
    ["test", "conformance"].into_iter().try_for_each(needs::ensure_for)?;
    let lanes = vec![CRATES.iter().collect(), OTHER_SUITES.iter().collect()];
    run("test", Reds::Collect, vec![lanes])
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

/// Runs stages one after another, the lanes of a stage at once, and the steps of a lane in order.
fn run(name: &str, reds: Reds, stages: Vec<Vec<Lane>>) -> Result<()> {
    let started = Instant::now();
    let (mut green, mut tests, mut red) = (0, 0, Vec::new());
    for lanes in stages {
        // Other lanes end after their present step.
        let has_red = AtomicBool::new(false);
        let run_lane = |steps: Lane| {
            let ends = || reds == Reds::End && has_red.load(Ordering::Relaxed);
            let results = steps
                .into_iter()
                .take_while(|_| !ends())
                .map(|step| ask(step).inspect_err(|_| has_red.store(true, Ordering::Relaxed)));
            results.collect::<Vec<_>>()
        };
        let results = thread::scope(|scope| {
            let running = lanes.into_iter().map(|lane| scope.spawn(|| run_lane(lane)));
            let running: Vec<_> = running.collect();
            running
                .into_iter()
                .flat_map(|lane| lane.join().expect("no step panics"))
                .collect::<Vec<_>>()
        });
        for result in results {
            match result {
                Ok(passed) => (green, tests) = (green + 1, tests + passed),
                Err(error) => red.push(format!("{error:#}")),
            }
        }
        if reds == Reds::End && !red.is_empty() {
            break;
        }
    }
    let took = seconds(started.elapsed());
    println!("{name}: {tests} tests passed, {green} steps green, {} red in {took}", red.len());
    ensure!(red.is_empty(), "{}", red.join("\n"));
    Ok(())
}

/// Runs a step, prints its line, and returns the number of tests that passed.
fn ask(step: &Step) -> Result<u64> {
    let started = Instant::now();
    let (mut printed, mut passed) = (Vec::new(), 0);
    let status = process::lines(&mut command(step)?, |line| {
        passed += passed_in(line);
        printed.push(line.to_owned());
    })?;
    let took = seconds(started.elapsed());
    let is_empty = step.shows == Shows::Tests && passed == 0;
    if !status.success() || is_empty {
        println!("== {} == no ({took})\n{}", step.question, printed.join("\n"));
        if step.second_run
            && let Some(names) = second_run::passes(step, &printed)?
        {
            println!("== unreliable: failed beside other suites and passed alone == {names}");
            return Ok(passed);
        }
        let why = if is_empty { "; no test ran" } else { "" };
        bail!("red: {}{why}. Alone: {}", step.question, alone(step));
    }
    let more = match step.shows {
        Shows::Nothing => String::new(),
        Shows::LastLine => format!(", {}", printed.last().map_or("", String::as_str)),
        Shows::Tests => format!(", {passed} tests"),
    };
    println!("== {} == yes ({took}){more}", step.question);
    Ok(passed)
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn command(step: &Step) -> Result<Command> {
    let mut arguments = step.cargo.split(' ').peekable();
    // `cargo xtask` would wait for the build of another lane.
    let program = match arguments.next_if_eq(&"xtask") {
        Some(_) => std::env::current_exe()?.into_os_string(),
        None => workspace::cargo().get_program().to_owned(),
    };
    let mut command = match step.is_background {
        true => Command::new("nice"),
        false => Command::new(&program),
    };
    command.args(step.is_background.then_some(program)).args(arguments);
    process::forget_package(command.current_dir(workspace::root()));
    if step.shows == Shows::Tests && std::env::var_os(TEST_THREADS).is_none() {
        // Most tests wait for servers, so a core can run several.
        let threads = TESTS_PER_CORE * thread::available_parallelism().map_or(1, usize::from);
        command.env(TEST_THREADS, threads.to_string());
    }
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

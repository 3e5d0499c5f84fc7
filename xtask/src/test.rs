//! `cargo xtask test`: installs what the tests need, then runs every suite that gates a change.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::{conformance, needs, process, workspace};

/// A name and the arguments that make cargo run it.
struct Suite {
    name: &'static str,
    cargo: &'static [&'static str],
}

const SUITES: &[Suite] = &[
    Suite {
        name: "every crate, and the examples in its documentation",
        cargo: &["test", "--workspace", "--locked", "--no-fail-fast"],
    },
    Suite {
        name: "the engine's interleavings",
        // By the name of their module: no other test runs under their scheduler.
        cargo: &[
            "test",
            "--package",
            "forebay-engine",
            "--features",
            "interleavings",
            "--lib",
            "--locked",
            "interleavings",
        ],
    },
];

/// It counts cases of its own, and holds them against its own record.
const CONFORMANCE: &str = "the public suite for HTTP caches";

/// What gates a change tells of the change, not of luck: the same inputs each time, unless
/// somebody names others. To search for new ones is what a soak is for.
const SEEDS: &[(&str, &str)] =
    &[("PROPTEST_RNG_SEED", "1"), ("FOREBAY_FUZZ_SEED", "1"), ("SHUTTLE_RANDOM_SEED", "1")];

/// Runs all suites, also after a red one, and sums what they say.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    crate::no_arguments("test", arguments)?;
    needs::ensure_for("test")?;
    let mut sum = Tally::default();
    let mut red = Vec::new();
    for suite in SUITES {
        println!("== {} ==", suite.name);
        let mut command = workspace::cargo();
        command.args(suite.cargo);
        command.envs(SEEDS.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied());
        let outcome = counted(&mut command)?;
        sum.add(outcome.tally);
        if !outcome.green() {
            red.push(suite.name);
        }
    }
    println!("== {CONFORMANCE} ==");
    if let Err(error) = conformance::run(&[]) {
        eprintln!("{error:#}");
        red.push(CONFORMANCE);
    }
    println!("{sum}");
    ensure!(red.is_empty(), "not green: {}", red.join("; "));
    Ok(())
}

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tests: {} passed, {} failed", self.passed, self.failed)
    }
}

/// What one run of `cargo test` came to.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    success: bool,
}

impl Outcome {
    /// A run in which no test ran proves nothing, so it is not green.
    pub(crate) fn green(&self) -> bool {
        self.success && self.tally.failed == 0 && self.tally.passed > 0
    }
}

/// Runs a `cargo test`, passes on what it prints, and counts.
pub(crate) fn counted(command: &mut Command) -> Result<Outcome> {
    let mut tally = Tally::default();
    let status = process::lines(command, |line| {
        println!("{line}");
        tally.add(result_of(line).unwrap_or_default());
    })?;
    Ok(Outcome { tally, success: status.success() })
}

/// Reads `test result: ok. 5 passed; 0 failed; 0 ignored; ...`.
fn result_of(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok())
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printing(script: &str) -> Outcome {
        let mut command = Command::new("sh");
        counted(command.args(["-c", script])).unwrap()
    }

    #[test]
    fn a_result_line_is_read() {
        let line = "test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 2 filtered out; \
                    finished in 0.03s";
        assert_eq!(result_of(line), Some(Tally { passed: 12, failed: 3 }));
        assert_eq!(result_of("test result: FAILED. 0 passed; 1 failed; x").unwrap().failed, 1);
    }

    #[test]
    fn other_lines_are_not_results() {
        assert_eq!(result_of("test flights::one ... ok"), None);
        assert_eq!(result_of("test result: ok. many passed; 0 failed"), None);
    }

    #[test]
    fn suites_are_summed() {
        let outcome = printing(
            "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; echo between; \
             echo 'test result: ok. 3 passed; 0 failed; 0 ignored'",
        );
        assert_eq!(outcome.tally.to_string(), "tests: 5 passed, 0 failed");
        assert!(outcome.green());
    }

    #[test]
    fn a_failure_of_any_kind_is_red() {
        assert!(!printing("echo 'test result: ok. 2 passed; 1 failed; x'").green());
        assert!(!printing("echo 'test result: ok. 2 passed; 0 failed; x'; exit 101").green());
    }

    #[test]
    fn no_test_at_all_is_red() {
        assert!(!printing("echo 'test result: ok. 0 passed; 0 failed; x'").green());
    }
}

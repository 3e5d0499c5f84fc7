//! Second run of what failed while other suites took the processor: of a few tests, or of the commands in
//! the documents.
//!
//! A test that passes alone has failed by chance: it is printed as unreliable, as a defect of the
//! test or a rare one of the product, and does not stop the change under test.

use anyhow::Result;

use super::{LINTED_TESTS, Shows, Step, command, passed_in};
use crate::{process, workspace};

/// Failed tests that are run once more: a larger number is no chance.
const TESTS_MAX: usize = 3;

/// Runs what failed of a step once more. Returns its names if all of it passes then.
pub(super) fn passes(step: &Step, printed: &[String]) -> Result<Option<String>> {
    if step.shows == Shows::Tests {
        let Some(failures) = Failures::find(printed) else { return Ok(None) };
        return Ok(failures.pass_alone()?.then(|| failures.names.join(", ")));
    }
    let status = process::lines(&mut command(step)?, |line| println!("{line}"))?;
    Ok(status.success().then(|| step.question.to_owned()))
}

/// Failures in the output of `cargo test --no-fail-fast`.
struct Failures {
    names: Vec<String>,
    /// Kind and name of each failed test binary, as arguments of cargo.
    binaries: Vec<String>,
}

impl Failures {
    /// `None` if something other than a few tests of test binaries has failed: the compiler, a
    /// process that ended early, an example in the documentation.
    fn find(printed: &[String]) -> Option<Self> {
        let within = |before: &str, after: &str| {
            let found = printed.iter().filter_map(|line| {
                line.strip_prefix(before)?.strip_suffix(after).map(str::to_owned)
            });
            found.collect::<Vec<_>>()
        };
        let names = within("test ", " ... FAILED");
        // Without the package that cargo prints: of one package alone it would build the
        // dependencies again, with other features.
        let binaries = within("error: test failed, to rerun pass `", "`");
        let binaries: Vec<String> = binaries
            .iter()
            .filter_map(|arguments| Some(arguments.split_once(" --")?.1))
            .map(|target| format!("--{target}"))
            .collect();
        let ended = printed.iter().filter(|line| line.starts_with("test result: FAILED. ")).count();
        let are_few = (1..=TESTS_MAX).contains(&names.len());
        let are_all = ended == binaries.len() && names.iter().all(|name| !name.contains(' '));
        (are_few && are_all).then_some(Self { names, binaries })
    }

    /// Runs these tests alone. True if all of them pass.
    fn pass_alone(&self) -> Result<bool> {
        let mut passed = 0;
        for binary in &self.binaries {
            let mut command = workspace::cargo();
            command.args(["test", "--workspace", "--locked"]).args(binary.split(' '));
            command.args(["--", "--exact"]).args(&self.names);
            command.envs(LINTED_TESTS.iter().copied()).current_dir(workspace::root());
            let status = process::lines(&mut command, |line| {
                println!("{line}");
                passed += passed_in(line);
            })?;
            if !status.success() {
                return Ok(false);
            }
        }
        Ok(passed >= self.names.len() as u64)
    }
}

//! Second run of the few tests that failed while other suites took the processor.
//!
//! A test that passes alone has failed by chance: it is printed as unreliable, as a defect of the
//! test or a rare one of the product, and does not stop the change under test.

use anyhow::Result;

use super::{SEEDS, passed_in};
use crate::{process, workspace};

/// Failed tests that are run once more: a larger number is no chance.
const TESTS_MAX: usize = 3;

/// Failures in the output of `cargo test --no-fail-fast`.
pub(super) struct Failures {
    names: Vec<String>,
    /// Arguments that cargo prints for the repetition of each failed test binary.
    binaries: Vec<String>,
}

impl Failures {
    /// `None` if something other than a few tests of test binaries has failed: the compiler, a
    /// process that ended early, an example in the documentation.
    pub(super) fn find(printed: &[String]) -> Option<Self> {
        let within = |before: &str, after: &str| {
            let found = printed.iter().filter_map(|line| {
                line.strip_prefix(before)?.strip_suffix(after).map(str::to_owned)
            });
            found.collect::<Vec<_>>()
        };
        let names = within("test ", " ... FAILED");
        let binaries = within("error: test failed, to rerun pass `", "`");
        let ended = printed.iter().filter(|line| line.starts_with("test result: FAILED. ")).count();
        let are_few = (1..=TESTS_MAX).contains(&names.len());
        let are_all = ended == binaries.len() && names.iter().all(|name| !name.contains(' '));
        (are_few && are_all).then_some(Self { names, binaries })
    }

    /// Runs these tests alone. True if all of them pass.
    pub(super) fn pass_alone(&self) -> Result<bool> {
        let mut passed = 0;
        for binary in &self.binaries {
            let mut command = workspace::cargo();
            command.args(["test", "--locked"]).args(binary.split(' '));
            command.args(["--", "--exact"]).args(&self.names);
            command.envs(SEEDS.iter().copied()).current_dir(workspace::root());
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

    pub(super) fn names(&self) -> String {
        self.names.join(", ")
    }
}

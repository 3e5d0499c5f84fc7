//! How a scenario fails.

use std::fmt;
use std::path::{Path, PathBuf};

/// One thing that is wrong, at a line of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1; 0 when it is the file as a whole.
    pub line: usize,
    /// What was expected and what came.
    pub what: String,
}

impl Fault {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// A scenario that failed. It shows itself as `file:line: what`, a line for each fault.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// The scenario.
    pub file: PathBuf,
    /// What is wrong, at least one thing, the likely cause first.
    pub faults: Vec<Fault>,
}

impl Failure {
    pub(super) fn new(file: &Path, faults: Vec<Fault>) -> Self {
        Self { file: file.to_owned(), faults }
    }

    pub(super) fn of_file(file: &Path, error: &std::io::Error) -> Self {
        Self::new(file, vec![Fault::new(0, error.to_string())])
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for (number, Fault { line, what }) in self.faults.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            match line {
                0 => write!(f, "{separator}{file}: {what}")?,
                line => write!(f, "{separator}{file}:{line}: {what}")?,
            }
        }
        Ok(())
    }
}

/// Tests that return a failure print it with `Debug`, which therefore is the readable form too.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// Every scenario of a folder that failed.
#[derive(Clone, PartialEq, Eq)]
pub struct Failures(pub Vec<Failure>);

impl Failures {
    pub(super) fn of_folder(folder: &Path, error: &std::io::Error) -> Self {
        Self(vec![Failure::of_file(folder, error)])
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} scenarios failed:", self.0.len())?;
        self.0.iter().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failures {}

//! Failures of a scenario.

use std::fmt;
use std::path::{Path, PathBuf};

/// Failed expectation or syntax error at a line of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line number from 1; 0 for the file as a whole.
    pub line: usize,
    /// Expected and actual value.
    pub what: String,
}

impl Fault {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// Failed scenario, printed as `file:line: what`, one line per fault.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// Path of the scenario.
    pub file: PathBuf,
    /// Faults, at least one, the most likely cause first.
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

/// Prints like `Display`, because tests print a returned failure with `Debug`.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// Failed scenarios of a directory.
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

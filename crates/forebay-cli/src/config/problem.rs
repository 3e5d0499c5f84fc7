//! Errors of a configuration with their positions, collected.

use std::fmt;
use std::path::Path;

/// Position of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A flag or its environment variable; the path is the flag's name.
    Flag,
    /// The file as a whole, or no file at all.
    Whole,
    /// Line and column of the file, from 1; the column counts characters.
    File { line: usize, column: usize },
    /// A default.
    Default,
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Position of the error.
    pub(crate) place: Place,
    /// Full path of the option, such as `site[0].hosts[1]`; empty for the file as a whole.
    pub(crate) path: String,
    /// Error and remedy, as the rest of a sentence that begins with the path.
    pub(crate) message: String,
}

/// All errors of one configuration, in the order of their positions.
///
/// Printed one per line; never empty when it is returned as an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problems {
    source: Option<String>,
    list: Vec<Problem>,
    /// Lines that the parser could not read.
    broken_lines: Vec<usize>,
}

impl Problems {
    /// Empty list for a file, or for flags alone.
    pub(crate) fn new(source: Option<&Path>) -> Self {
        let source = source.map(|path| path.display().to_string());
        Self { source, list: Vec::new(), broken_lines: Vec::new() }
    }

    /// Adds an error in an option. Equal errors, as of a table that several sites inherit, count once.
    ///
    /// An error on a broken line is dropped: the parser substitutes values there in order to
    /// continue.
    pub(crate) fn report(&mut self, place: Place, path: &str, message: impl Into<String>) {
        let broken = |line| self.broken_lines.contains(&line);
        let problem = Problem { place, path: path.to_owned(), message: message.into() };
        let is_broken = matches!(place, Place::File { line, .. } if broken(line));
        if !is_broken && !self.list.contains(&problem) {
            self.list.push(problem);
        }
    }

    /// Adds a syntax error, which marks its line as broken.
    pub(super) fn report_syntax(&mut self, place: Place, message: impl Into<String>) {
        if let Place::File { line, .. } = place {
            self.broken_lines.push(line);
        }
        self.list.push(Problem { place, path: String::new(), message: message.into() });
    }

    /// Number of errors.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether every error is in a flag; then the exit code is that of wrong usage.
    pub(crate) fn are_of_flags(&self) -> bool {
        self.source.is_none() || self.list.iter().all(|problem| problem.place == Place::Flag)
    }

    /// Returns whether there is no error.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether an error with exactly this path was reported.
    pub(super) fn names(&self, path: &str) -> bool {
        self.list.iter().any(|problem| problem.path == path)
    }

    /// `value` if there are no errors, otherwise the errors in the order of their positions.
    ///
    /// # Errors
    /// Every error that was reported.
    pub(super) fn into_result<T>(mut self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.list.is_empty() => Ok(value),
            _ => {
                debug_assert!(!self.list.is_empty(), "no configuration, and no error reported");
                // The sort is stable: errors of one position keep the order in which they were found.
                self.list.sort_by_key(|problem| problem.place);
                Err(self)
            }
        }
    }

    /// Errors as they are printed, one line each.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(|problem| self.line(problem))
    }

    fn line(&self, problem: &Problem) -> String {
        let Problem { place, path, message } = problem;
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        match (place, &self.source) {
            (Place::File { line, column }, Some(source)) => {
                format!("{source}:{line}:{column}: {path}{message}")
            }
            (Place::Whole, Some(source)) => format!("{source}: {path}{message}"),
            _ => format!("{path}{message}"),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines().collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

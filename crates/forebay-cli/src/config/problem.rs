//! A mistake in a configuration, its place, and the list of all of them.

use std::fmt;
use std::path::Path;

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A flag of the command line (or its environment twin); the path is the flag's name.
    Flag,
    /// No place of its own: the file as a whole, or no file at all.
    Whole,
    /// A line and a column of the file, both counted from 1, the column in characters.
    File { line: usize, column: usize },
    /// Nobody wrote it.
    Default,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where it stands.
    pub(crate) place: Place,
    /// The field's full path, such as `site[0].hosts[1]`; empty for the file as a whole.
    pub(crate) path: String,
    /// What is wrong and what to do, as the rest of a sentence that begins with the path.
    pub(crate) message: String,
}

/// All mistakes of one configuration, in the order of their places.
///
/// Shown one per line; never empty when it is returned as an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problems {
    source: Option<String>,
    list: Vec<Problem>,
    /// Lines that the parser could not read.
    broken_lines: Vec<usize>,
}

impl Problems {
    /// An empty list for a file, or for flags alone.
    pub(crate) fn new(source: Option<&Path>) -> Self {
        let source = source.map(|path| path.display().to_string());
        Self { source, list: Vec::new(), broken_lines: Vec::new() }
    }

    /// Adds one mistake in a field. One that several sites take over from one place counts once.
    ///
    /// On a broken line it is dropped: what the parser made up there, to be able to go on, is no
    /// second mistake.
    pub(crate) fn report(&mut self, place: Place, path: &str, message: impl Into<String>) {
        let broken = |line| self.broken_lines.contains(&line);
        let problem = Problem { place, path: path.to_owned(), message: message.into() };
        let is_broken = matches!(place, Place::File { line, .. } if broken(line));
        if !is_broken && !self.list.contains(&problem) {
            self.list.push(problem);
        }
    }

    /// Adds one mistake in the syntax, which breaks its line.
    pub(super) fn report_syntax(&mut self, place: Place, message: impl Into<String>) {
        if let Place::File { line, .. } = place {
            self.broken_lines.push(line);
        }
        self.list.push(Problem { place, path: String::new(), message: message.into() });
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the command line alone is to blame: then it is wrong usage, not a wrong file.
    pub(crate) fn are_of_flags(&self) -> bool {
        self.source.is_none() || self.list.iter().all(|problem| problem.place == Place::Flag)
    }

    /// Whether nothing is wrong.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a mistake with exactly this path was reported.
    pub(super) fn names(&self, path: &str) -> bool {
        self.list.iter().any(|problem| problem.path == path)
    }

    /// `value` if nothing was wrong, or else the mistakes in the order of their places.
    pub(super) fn into_result<T>(mut self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.list.is_empty() => Ok(value),
            _ => {
                debug_assert!(!self.list.is_empty(), "no config, and nobody said why");
                // Stable: mistakes of one place stay in the order in which they were found.
                self.list.sort_by_key(|problem| problem.place);
                Err(self)
            }
        }
    }

    /// The mistakes as they are shown, one line each.
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

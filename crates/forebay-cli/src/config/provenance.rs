//! Value of every option and its source: the table that `forebay check` prints.

use super::file::{File, Section};
use super::options::{Field, Preset};
use super::problem::{Place, Problems};
use super::typed::Typed;
use std::cmp::Ordering;
use std::fmt;

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    /// The file, at this line.
    Line(usize),
    /// A flag or its environment variable.
    Flag,
    /// The default.
    Default,
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Flag => f.write_str("flag"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One row of the table of `forebay check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) path: String,
    pub(crate) value: String,
    pub(crate) decided: Decided,
}

/// Reads options from file sections and records the value and source of each.
#[derive(Debug)]
pub(crate) struct Provenance<'a> {
    pub(crate) problems: &'a mut Problems,
    pub(crate) rows: Vec<Row>,
    /// True if an absent option is an error; not if the parser lost a part of the file.
    absence_counts: bool,
}

impl<'a> Provenance<'a> {
    pub(crate) fn new(file: &File, problems: &'a mut Problems) -> Self {
        Self { problems, rows: Vec::new(), absence_counts: file.whole }
    }

    /// Value typed for an option, or its default.
    ///
    /// `None` if the value is invalid or a required one is absent, which is reported, or if nothing
    /// was typed and the caller derives the default.
    pub(crate) fn read<T>(&mut self, section: &Section, field: &Field<T>) -> Option<T> {
        let path = section.path_of(field.spec.name);
        let preset;
        let typed = match (section.value(field.spec.name), field.spec.preset) {
            (Some(typed), _) => typed,
            (None, Preset::Value(text)) => {
                preset = Typed::from_default(path.clone(), text)?;
                &preset
            }
            (None, Preset::Derived(_)) => return None,
            (None, Preset::Required) => {
                self.absent(section, &path, "is required");
                return None;
            }
        };
        let value = (field.reader.read)(typed, self.problems)?;
        self.within_bounds(typed, field, &value)?;
        let decided = match typed.place {
            Place::File { line, .. } => Decided::Line(line),
            Place::Flag => Decided::Flag,
            Place::Whole | Place::Default => Decided::Default,
        };
        self.rows.push(Row { path, value: (field.reader.show)(&value), decided });
        Some(value)
    }

    /// Records a default that was derived from other values.
    pub(crate) fn derived(&mut self, path: String, value: impl Into<String>) {
        self.rows.push(Row { path, value: value.into(), decided: Decided::Default });
    }

    /// Adds a note to the value that was recorded last.
    pub(crate) fn amend(&mut self, note: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.value = format!("{} ({note})", row.value);
        }
    }

    /// Reports that a required option is absent.
    pub(crate) fn absent(&mut self, section: &Section, path: &str, message: &str) {
        if self.absence_counts {
            self.problems.report(section.place, path, message);
        }
    }

    /// Reports an error in the value of an option, at the position of the value.
    pub(crate) fn refuse(&mut self, section: &Section, name: &str, message: impl Into<String>) {
        let typed = section.value(name);
        let place = typed.map_or(section.place, |typed| typed.place);
        let path = typed.map_or_else(|| section.path_of(name), |typed| typed.path.clone());
        self.problems.report(place, &path, message);
    }

    fn within_bounds<T>(&mut self, typed: &Typed, field: &Field<T>, value: &T) -> Option<()> {
        let (Some((low, high)), Some(order)) = (field.spec.bounds, field.reader.order) else {
            return Some(());
        };
        let mut bound = |text| {
            let typed = Typed::from_default(field.spec.path(), text)?;
            (field.reader.read)(&typed, self.problems)
        };
        let (at_least, at_most) = (bound(low)?, bound(high)?);
        if order(value, &at_least) != Ordering::Less && order(value, &at_most) != Ordering::Greater
        {
            return Some(());
        }
        let shown = (field.reader.show)(value);
        let message = format!("{shown} must be at least {low} and at most {high}");
        self.problems.report(typed.place, &typed.path, message);
        None
    }
}

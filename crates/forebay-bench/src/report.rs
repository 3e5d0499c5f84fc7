//! Tables: text for people, JSON for programs, and an HTML page with plots.
//!
//! | file | contents |
//! |---|---|
//! | `comparison.rs` | a row that compares published, rival and own figures; units |
//! | `record.rs` | the JSON file of all benchmarks, and the machine |
//! | `page.rs` | the HTML page |
//! | `plot.rs` | plots as inline SVG |

pub(crate) mod comparison;
mod page;
mod plot;
pub(crate) mod record;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use comparison::{Better, Comparison, Unit};

use crate::environment::{cores, millis};
use crate::rivals::Rival;

/// Rows with figures; a row may have a bound.
pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Row>,
    note: String,
    rivals: Vec<Rival>,
    series: Vec<Series>,
}

struct Row {
    cells: Vec<String>,
    bound: String,
    verdict: Verdict,
    comparison: Option<Comparison>,
}

/// Values over time, in seconds.
pub(crate) struct Series {
    pub(crate) subject: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Result of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The row has no bound.
    Shown,
    Holds,
    Missed,
    /// A process had time left, so that its CPU time says little.
    NotBusy,
    /// The bound is missed, but it holds only for a machine with a core per process.
    TooFewCores,
}

impl Verdict {
    pub(crate) const fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Missed }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Shown => "",
            Self::Holds => "yes",
            Self::Missed => "NO",
            Self::NotBusy => "not judged: not busy",
            Self::TooFewCores => "missed: too few cores",
        }
    }
}

/// Bound of a number.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    None,
}

impl Bound {
    fn text(self, show: impl Fn(f64) -> String) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {}", show(most)),
            Self::AtLeast(least) => format!("≥ {}", show(least)),
            Self::None => String::new(),
        }
    }

    fn verdict(self, figure: f64) -> Verdict {
        match self {
            Self::AtMost(most) => Verdict::of(figure <= most),
            Self::AtLeast(least) => Verdict::of(figure >= least),
            Self::None => Verdict::Shown,
        }
    }
}

impl Table {
    /// A table with these columns; the first one holds names.
    pub(crate) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        let (rows, rivals, series) = (Vec::new(), Vec::new(), Vec::new());
        Self { title: title.into(), columns, rows, note: String::new(), rivals, series }
    }

    /// A table of single numbers.
    pub(crate) fn figures(title: impl Into<String>) -> Self {
        Self::new(title, &["", "figure"])
    }

    /// A table of [`Comparison`]s.
    pub(crate) fn comparisons(title: impl Into<String>) -> Self {
        Self::new(title, &["", "published", "rivals measured here", "forebay here"])
    }

    /// Text below the table.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Adds the rivals that the table measures, or the reasons why it does not.
    pub(crate) fn with_rivals(mut self, rivals: impl IntoIterator<Item = Rival>) -> Self {
        self.rivals.extend(rivals);
        self
    }

    /// Adds values over time, which the page plots.
    pub(crate) fn series(&mut self, subject: &str, points: Vec<(f64, f64)>) {
        self.series.push(Series { subject: subject.to_owned(), points });
    }

    /// Returns true if every row holds its bound.
    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Missed)
    }

    /// Returns true if a rival has a better figure in some row.
    pub(crate) fn is_lost(&self) -> bool {
        self.rows.iter().any(|row| row.comparison.as_ref().is_some_and(Comparison::is_lost))
    }

    pub(crate) fn row(&mut self, cells: Vec<String>, bound: impl Into<String>, verdict: Verdict) {
        self.rows.push(Row { cells, bound: bound.into(), verdict, comparison: None });
    }

    /// A row of a table of comparisons.
    pub(crate) fn compare(&mut self, comparison: Comparison) {
        let bound = comparison.bound.text(|number| comparison.unit.show(number));
        let verdict = comparison.verdict();
        let cells = comparison.cells();
        self.rows.push(Row { cells, bound, verdict, comparison: Some(comparison) });
    }

    /// A row with one number.
    pub(crate) fn figure(
        &mut self,
        name: impl Into<String>,
        figure: f64,
        unit: &str,
        bound: Bound,
    ) {
        let more = digits_for(figure, bound, number_text);
        let shown = |number: f64, more: usize| {
            format!("{} {unit}", number_text(number, more)).trim_end().to_owned()
        };
        let cells = vec![name.into(), shown(figure, more)];
        self.row(cells, bound.text(|limit| shown(limit, 0)), bound.verdict(figure));
    }

    /// A row with a number that is at most `most`.
    pub(crate) fn count(&mut self, name: impl Into<String>, measured: f64, most: f64) {
        self.figure(name, measured, "", Bound::AtMost(most));
    }

    /// A row with a time that is at most `most` on a machine with a core for each of the processes.
    pub(crate) fn time(
        &mut self,
        name: impl Into<String>,
        took: Duration,
        most: Duration,
        processes: usize,
    ) {
        let verdict = match took <= most {
            true => Verdict::Holds,
            false if processes > cores() => Verdict::TooFewCores,
            false => Verdict::Missed,
        };
        self.row(vec![name.into(), millis(took)], format!("≤ {}", millis(most)), verdict);
    }

    /// A row with a time without a bound.
    pub(crate) fn shown(&mut self, name: impl Into<String>, took: Duration) {
        self.row(vec![name.into(), millis(took)], "", Verdict::Shown);
    }

    pub(crate) fn json(&self) -> Value {
        let row = |row: &Row| {
            let comparison = row.comparison.as_ref().map(Comparison::json);
            json!({
                "cells": row.cells,
                "bound": row.bound,
                "holds": row.verdict.text(),
                "comparison": comparison,
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        let rivals: Vec<Value> = self.rivals.iter().map(Rival::json).collect();
        let series = self.series.iter();
        let series: Vec<Value> = series
            .map(|series| json!({ "subject": series.subject, "points": series.points }))
            .collect();
        json!({
            "title": self.title,
            "columns": self.columns,
            "rows": rows,
            "note": self.note,
            "lost": self.is_lost(),
            "rivals": rivals,
            "series": series,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        let bound = self.rows.iter().any(|row| !row.bound.is_empty()).then_some("bound");
        let holds = bound.map(|_| "holds");
        table.set_header(self.columns.iter().map(String::as_str).chain(bound).chain(holds));
        for row in &self.rows {
            let last = [&*row.bound, row.verdict.text()];
            table.add_row(row.cells.iter().map(String::as_str).chain(last));
        }
        for column in table.column_iter_mut().skip(1).take(self.columns.len() - 1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        writeln!(f, "\n{}\n\n{}", self.title, table.trim_fmt())?;
        if !self.note.is_empty() {
            writeln!(f, "\n{}", self.note)?;
        }
        self.rivals.iter().try_for_each(|rival| writeln!(f, "{rival}"))
    }
}

fn number_text(number: f64, more: usize) -> String {
    let digits = if number.fract() == 0.0 { 0 } else { 2 + more };
    format!("{number:.digits$}")
}

/// Number of digits to add to a figure that misses its bound, so that it is written differently.
fn digits_for(figure: f64, bound: Bound, show: impl Fn(f64, usize) -> String) -> usize {
    const MORE_MAX: usize = 4;
    let (Bound::AtMost(limit) | Bound::AtLeast(limit)) = bound else { return 0 };
    let is_missed = bound.verdict(figure) == Verdict::Missed;
    // Not as 1 beside 1.00, and the unit of the limit does not matter.
    let is_same = |more: &usize| {
        let [one, other] = [figure, limit].map(|number| show(number, *more));
        let number = |text: &str| text.split(' ').next().and_then(|it| it.parse::<f64>().ok());
        one == other || number(&one).is_some_and(|one| number(&other) == Some(one))
    };
    (0..MORE_MAX).find(|more| !(is_missed && is_same(more))).unwrap_or(MORE_MAX)
}

//! Tables: text for people, JSON for programs.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::environment::{cores, millis};

/// Rows with figures; a row may have a bound.
pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<Row>,
    note: String,
}

struct Row {
    cells: Vec<String>,
    bound: String,
    verdict: Verdict,
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
}

/// Bound of a number.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    None,
}

impl Table {
    /// A table with these columns; the first one holds names.
    pub(crate) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { title: title.into(), columns, rows: Vec::new(), note: String::new() }
    }

    /// A table of single numbers.
    pub(crate) fn figures(title: impl Into<String>) -> Self {
        Self::new(title, &["", "figure"])
    }

    /// Text below the table.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Returns true if every row holds its bound.
    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Missed)
    }

    pub(crate) fn row(&mut self, cells: Vec<String>, bound: impl Into<String>, verdict: Verdict) {
        self.rows.push(Row { cells, bound: bound.into(), verdict });
    }

    /// A row with one number.
    pub(crate) fn figure(
        &mut self,
        name: impl Into<String>,
        figure: f64,
        unit: &str,
        bound: Bound,
    ) {
        let shown = |number: f64| format!("{} {unit}", number_text(number)).trim_end().to_owned();
        let (text, verdict) = match bound {
            Bound::AtMost(most) => (format!("≤ {}", shown(most)), Verdict::of(figure <= most)),
            Bound::AtLeast(least) => (format!("≥ {}", shown(least)), Verdict::of(figure >= least)),
            Bound::None => (String::new(), Verdict::Shown),
        };
        self.row(vec![name.into(), shown(figure)], text, verdict);
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
            let cells = self.columns.iter().zip(&row.cells);
            let cells = cells.map(|(column, cell)| {
                let column = if column.is_empty() { "name" } else { column };
                (column.to_owned(), json!(cell))
            });
            let mut object: serde_json::Map<String, Value> = cells.collect();
            if !row.bound.is_empty() {
                object.insert("bound".to_owned(), json!(row.bound));
            }
            if !matches!(row.verdict, Verdict::Shown | Verdict::NotBusy) {
                object.insert("holds".to_owned(), json!(row.verdict == Verdict::Holds));
            }
            Value::Object(object)
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        json!({ "title": self.title, "cores": cores(), "rows": rows, "note": self.note })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        let bound = self.rows.iter().any(|row| !row.bound.is_empty()).then_some("bound");
        table.set_header(self.columns.iter().map(String::as_str).chain(bound));
        for row in &self.rows {
            let verdict = match row.verdict {
                Verdict::Shown => "",
                Verdict::Holds => "yes",
                Verdict::Missed => "NO",
                Verdict::NotBusy => "not judged: not busy",
                Verdict::TooFewCores => "missed: too few cores",
            };
            table.add_row(row.cells.iter().map(String::as_str).chain([&*row.bound, verdict]));
        }
        for column in table.column_iter_mut().skip(1).take(self.columns.len() - 1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        writeln!(f, "\n{}\n\n{}", self.title, table.trim_fmt())?;
        if self.note.is_empty() { Ok(()) } else { writeln!(f, "\n{}", self.note) }
    }
}

fn number_text(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

//! What came out, held against what must hold.

use std::fmt;

use anyhow::Context as _;
use serde_json::json;

/// All that was measured.
#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

struct Row {
    what: String,
    figure: f64,
    unit: &'static str,
    bound: Bound,
}

/// What a figure must be.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Told, and not held against anything.
    None,
}

impl Report {
    pub(crate) fn add(&mut self, what: &str, (figure, unit): (f64, &'static str), bound: Bound) {
        self.0.push(Row { what: what.to_owned(), figure, unit, bound });
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(Row::holds)
    }

    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let row = |row: &Row| {
            let (what, unit) = (&row.what, row.unit);
            json!({ "what": what, "figure": row.figure, "unit": unit, "holds": row.holds() })
        };
        let rows: Vec<_> = self.0.iter().map(row).collect();
        serde_json::to_string_pretty(&rows).context("write JSON")
    }
}

impl Row {
    fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.figure <= most,
            Bound::AtLeast(least) => self.figure >= least,
            Bound::None => true,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<60}{:>12}  bound", "", "figure")?;
        self.0.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = format!("{:.1} {}", self.figure, self.unit);
        write!(f, "{:<60}{figure:>12}  ", self.what)?;
        match self.bound {
            Bound::AtMost(most) => write!(f, "at most {most} {}", self.unit)?,
            Bound::AtLeast(least) => write!(f, "at least {least} {}", self.unit)?,
            Bound::None => {}
        }
        f.write_str(if self.holds() { "" } else { "  MISSED" })
    }
}

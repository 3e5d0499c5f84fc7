//! Bounds, and what was measured.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// All of it.
#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

struct Row {
    case: String,
    bound: String,
    measured: String,
    holds: bool,
    /// How many processes run at once where a time is measured; 0 for what takes no time.
    processes: usize,
}

impl Row {
    /// Whether the bound is that of a machine with more cores.
    fn is_crowded(&self) -> bool {
        self.processes > cores()
    }

    fn verdict(&self) -> String {
        match (self.holds, self.is_crowded()) {
            (true, _) => String::new(),
            (false, true) => format!("  missed: {} processes", self.processes),
            (false, false) => "  MISSED".to_owned(),
        }
    }
}

impl Report {
    /// A number that is at most so large.
    pub(crate) fn count(&mut self, case: impl Into<String>, (measured, most): (f64, f64)) {
        self.0.push(Row {
            case: case.into(),
            bound: format!("≤ {}", number(most)),
            measured: number(measured),
            holds: measured <= most,
            processes: 0,
        });
    }

    /// A time that is at most so long, where each of so many processes has a core.
    pub(crate) fn time(
        &mut self,
        case: impl Into<String>,
        (took, most): (Duration, Duration),
        processes: usize,
    ) {
        self.0.push(Row {
            case: case.into(),
            bound: format!("≤ {}", millis(most)),
            measured: millis(took),
            holds: took <= most,
            processes,
        });
    }

    /// A time that nothing is promised of.
    pub(crate) fn shown(&mut self, case: impl Into<String>, took: Duration) {
        self.0.push(Row {
            case: case.into(),
            bound: String::new(),
            measured: millis(took),
            holds: true,
            processes: 0,
        });
    }

    pub(crate) fn holds(&self) -> bool {
        self.0.iter().all(|row| row.holds || row.is_crowded())
    }

    pub(crate) fn json(&self) -> Value {
        let row = |row: &Row| {
            let Row { case, bound, measured, holds, processes } = row;
            json!({
                "case": case,
                "bound": bound,
                "measured": measured,
                "holds": holds,
                "processes": processes,
            })
        };
        json!({ "cores": cores(), "rows": self.0.iter().map(row).collect::<Value>() })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn number(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

fn millis(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1e3)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |cell: fn(&Row) -> &str| {
            self.0.iter().map(|row| cell(row).chars().count()).max().unwrap_or_default()
        };
        let case = width(|row| &row.case);
        let bound = width(|row| &row.bound);
        let measured = width(|row| &row.measured);
        writeln!(
            f,
            "Caches, Redis, origin and clients share {} cores; times are theirs together.\n",
            cores()
        )?;
        for row in &self.0 {
            let Row { case: name, bound: most, measured: got, .. } = row;
            let verdict = row.verdict();
            writeln!(f, "{name:case$}  {most:>bound$}  {got:>measured$}{verdict}")?;
        }
        Ok(())
    }
}

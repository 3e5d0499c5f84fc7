//! What came out, held against what must hold.

use std::fmt;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::load::Answers;
use crate::process::Seen;

/// What the process may take beside the bound, the tenth of it for fragmentation not counted.
const BESIDE: u64 = 64 << 20;

/// What one connection may cost.
const PER_CONNECTION: u64 = 20 << 10;

/// What the cache was put under.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Churn,
    Hits,
    Misses,
    Idle,
}

pub(crate) struct Report {
    memory: u64,
    rows: Vec<Row>,
}

struct Row {
    phase: Phase,
    seen: Seen,
    answers: Answers,
    bound: u64,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Churn => "churn, 1 B to 4 MiB",
            Self::Hits => "hits that nobody reads",
            Self::Misses => "misses, the same",
            Self::Idle => "idle connections",
        }
    }
}

impl Report {
    pub(crate) const fn new(memory: u64) -> Self {
        Self { memory, rows: Vec::new() }
    }

    /// What was seen in one phase, and how many connections stood idle in it.
    pub(crate) fn add(&mut self, phase: Phase, (seen, answers, idle): (Seen, Answers, usize)) {
        let bound = self.memory + self.memory / 10 + BESIDE + idle as u64 * PER_CONNECTION;
        self.rows.push(Row { phase, seen, answers, bound });
    }

    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(Row::holds)
    }

    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let report = json!({ "memory": self.memory, "phases": rows, "holds": self.holds() });
        serde_json::to_string_pretty(&report).context("write JSON")
    }
}

impl Row {
    const fn holds(&self) -> bool {
        self.seen.most <= self.bound && self.answers.whole > 0
    }

    fn json(&self) -> Value {
        json!({
            "phase": self.phase.name(),
            "resident_most": self.seen.most,
            "resident_last": self.seen.last,
            "resident_peak_since_start": self.seen.peak,
            "bound": self.bound,
            "answers": self.answers.whole,
            "answer_bytes": self.answers.bytes,
            "refused": self.answers.refused,
            "broken": self.answers.broken,
            "slowest_ms": u64::try_from(self.answers.slowest.as_millis()).unwrap_or(u64::MAX),
            "holds": self.holds(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "resident memory of a cache of {:.0} MiB, in MiB", mib(self.memory))?;
        let title = ["most", "at end", "peak", "bound", "answers", "GiB", "refused", "broken"];
        write!(f, "{:<24}", "")?;
        title.iter().try_for_each(|name| write!(f, "{name:>9}"))?;
        writeln!(f, "{:>12}", "slowest")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { most, last, peak } = self.seen;
        let answers = &self.answers;
        write!(f, "{:<24}", self.phase.name())?;
        [most, last, peak, self.bound].iter().try_for_each(|b| write!(f, "{:>9.1}", mib(*b)))?;
        write!(f, "{:>9}{:>9.1}", answers.whole, mib(answers.bytes) / 1024.0)?;
        write!(f, "{:>9}{:>9}", answers.refused, answers.broken)?;
        write!(f, "{:>9} ms", answers.slowest.as_millis())?;
        f.write_str(if self.holds() { "" } else { "  MISSED" })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people, who read one decimal")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

//! The figures in a table, and held against what must hold.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use forebay_testkit::traffic::{LIFETIME, RATE};

use super::database::Database;
use super::{Outcome, Tally};

/// What part of the requests must be hits.
const HIT_RATIO_MIN: f64 = 0.996;

/// How many misses there may be for each one without early refresh.
const MISSES_MAX: f64 = 0.1;

/// How many foreground loads there may be for each one without early refresh.
const FOREGROUND_MAX: f64 = 0.4;

/// What was measured, and on what ground.
pub(super) struct Report {
    pub(super) requests: usize,
    /// What a listing takes while nothing else runs.
    pub(super) alone: Duration,
    pub(super) database: Database,
    pub(super) outcome: Outcome,
}

struct Bound {
    name: &'static str,
    came: f64,
    /// The bound, in words.
    wanted: String,
    holds: bool,
}

type Figure = fn(&Tally) -> String;

const FIGURES: [(&str, Figure); 7] = [
    ("hits", |tally| format!("{:.3} %", 100.0 * tally.hit_ratio())),
    ("misses", |tally| tally.misses.to_string()),
    ("foreground loads: misses that began one", |tally| tally.foreground.to_string()),
    ("refreshes behind an answer", |tally| (tally.loads - tally.foreground).to_string()),
    ("loads in all", |tally| tally.loads.to_string()),
    ("what a query took, median", |tally| millis(tally.query(0.5))),
    ("what a query took, nine of ten", |tally| millis(tally.query(0.9))),
];

impl Report {
    pub(super) fn holds(&self) -> bool {
        self.bounds().iter().all(|bound| bound.holds)
    }

    fn bounds(&self) -> [Bound; 3] {
        let Outcome { early, never, .. } = &self.outcome;
        let misses = part(early.misses, never.misses);
        let foreground = part(early.foreground, never.foreground);
        let most = |name, came, most| Bound {
            name,
            came,
            wanted: format!("at most {most}"),
            holds: came <= most,
        };
        let hits = early.hit_ratio();
        let wanted = format!("at least {HIT_RATIO_MIN}");
        [
            Bound { name: "hits", came: hits, wanted, holds: hits >= HIT_RATIO_MIN },
            most("misses, to those without", misses, MISSES_MAX),
            most("foreground loads, to those without", foreground, FOREGROUND_MAX),
        ]
    }

    pub(super) fn text(&self) -> Result<String> {
        let Outcome { early, never, late_max } = &self.outcome;
        let mut text = String::new();
        writeln!(
            text,
            "{} requests, {RATE} a second, for pages from N(50, 2), fresh for {} s\n\
             SQLite: {} articles, {:.0} MiB; a listing takes {} while nothing else runs\n",
            self.requests,
            LIFETIME.as_secs(),
            self.database.articles(),
            self.database.bytes()? as f64 / f64::from(1 << 20),
            millis(self.alone),
        )?;
        writeln!(text, "{:<42}{:>12}{:>12}", "", "beta 1", "beta 0")?;
        for (name, figure) in FIGURES {
            writeln!(text, "{name:<42}{:>12}{:>12}", figure(early), figure(never))?;
        }
        writeln!(text, "\nthe latest request left {} behind its time\n", millis(*late_max))?;
        for Bound { name, came, wanted, holds } in self.bounds() {
            let holds = if holds { "yes" } else { "NO" };
            writeln!(text, "{name:<42}{came:>12.4}  {wanted:<14}{holds:>4}")?;
        }
        Ok(text)
    }
}

impl Tally {
    fn hit_ratio(&self) -> f64 {
        part(self.hits, self.hits + self.misses)
    }

    fn query(&self, at: f64) -> Duration {
        let last = self.queries.len().saturating_sub(1);
        self.queries.get((last as f64 * at).round() as usize).copied().unwrap_or_default()
    }
}

fn part(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

fn millis(span: Duration) -> String {
    format!("{:.1} ms", 1e3 * span.as_secs_f64())
}

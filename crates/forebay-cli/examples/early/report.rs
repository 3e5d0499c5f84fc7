//! What came out, held against what must hold: a table for people, the same as JSON.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use forebay_testkit::traffic::{LIFETIME, LOAD, RATE};
use serde_json::{Value, json};

use super::Plan;
use super::experiment::{Outcome, Tally};

/// What part of the requests must be answered with what is fresh.
pub(crate) const HIT_RATIO_MIN: f64 = 0.996;

/// How many foreground loads there may be for each one without early refresh.
pub(crate) const RATIO_MAX: f64 = 0.4;

/// The figures of one experiment.
pub(crate) struct Report {
    seed: u64,
    measured: Duration,
    outcome: Outcome,
}

impl Report {
    pub(crate) fn new(plan: &Plan, outcome: Outcome) -> Self {
        Self { seed: plan.seed, measured: plan.measured, outcome }
    }

    /// Whether every bound holds.
    pub(crate) fn holds(&self) -> bool {
        self.bounds().iter().all(|bound| bound.holds)
    }

    /// What must hold. With early refresh and without, nobody may wait where something is fresh.
    fn bounds(&self) -> [Bound; 5] {
        let Outcome { early, never, .. } = &self.outcome;
        let of = |name, came: String, holds| Bound { name, came, holds };
        let waited = early.fresh_that_waited + never.fresh_that_waited;
        let other = early.other + never.other;
        let together = early.loads_of_one_key.max(never.loads_of_one_key);
        [
            of(
                "hit ratio >= 99.6 %",
                percent(early.hit_ratio()),
                early.hit_ratio() >= HIT_RATIO_MIN,
            ),
            of(
                "foreground loads <= 0.4 x those without",
                format!("{:.3} x", self.outcome.ratio()),
                never.foreground() > 0 && self.outcome.ratio() <= RATIO_MAX,
            ),
            of("nobody waits where something is fresh", waited.to_string(), waited == 0),
            of("one load of a key at a time", together.to_string(), together == 1),
            of("neither an error nor anything stale", other.to_string(), other == 0),
        ]
    }

    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let bound = |bound: &Bound| {
            let Bound { name, came, holds } = bound;
            json!({ "bound": name, "came": came, "holds": holds })
        };
        let report = json!({
            "requests_per_second": RATE, "keys": "N(50, 2)", "seed": self.seed,
            "lifetime_s": LIFETIME.as_secs_f64(), "load_s": LOAD.as_secs_f64(),
            "measured_s": self.measured.as_secs_f64(),
            "late_max_s": self.outcome.late_max.as_secs_f64(),
            "beta_1": tally_json(&self.outcome.early), "beta_0": tally_json(&self.outcome.never),
            "foreground_ratio": self.outcome.ratio(),
            "bounds": self.bounds().iter().map(bound).collect::<Vec<_>>(),
            "holds": self.holds(),
        });
        serde_json::to_string_pretty(&report).context("write the report")
    }
}

/// One thing that must hold.
struct Bound {
    name: &'static str,
    came: String,
    holds: bool,
}

fn tally_json(tally: &Tally) -> Value {
    let learnt = tally.learnt.map(|(least, most)| [least.as_secs_f64(), most.as_secs_f64()]);
    json!({
        "requests": tally.requests, "hit_ratio": tally.hit_ratio(), "fresh": tally.fresh,
        "refreshing": tally.refreshing, "fresh_that_waited": tally.fresh_that_waited,
        "fresh_max_s": tally.fresh_max.as_secs_f64(), "foreground": tally.foreground(),
        "led": tally.led, "followed": tally.followed, "joined": tally.joined,
        "joined_wait_mean_s": joined_mean(tally).as_secs_f64(),
        "joined_wait_max_s": tally.joined_wait_max.as_secs_f64(),
        "loads": tally.loads, "loads_of_one_key": tally.loads_of_one_key,
        "learnt_cost_s": learnt, "other": tally.other,
    })
}

fn joined_mean(tally: &Tally) -> Duration {
    let joined = u32::try_from(tally.joined).unwrap_or(u32::MAX);
    tally.joined_wait.checked_div(joined).unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{RATE} requests/s for {} s, keys from N(50, 2), fresh for {} s, loads of {} ms; \
             both caches at once, seed {}\n",
            self.measured.as_secs(),
            LIFETIME.as_secs(),
            LOAD.as_millis(),
            self.seed
        )?;
        let Outcome { early, never, late_max } = &self.outcome;
        writeln!(f, "{:<44} {:>18} {:>18}", "", "beta 1", "beta 0")?;
        for (name, figure) in FIGURES {
            writeln!(f, "{name:<44} {:>18} {:>18}", figure(early), figure(never))?;
        }
        writeln!(f, "\n{:<44} {:>18}  holds", "bound", "came")?;
        for Bound { name, came, holds } in self.bounds() {
            writeln!(f, "{name:<44} {came:>18}  {}", if holds { "yes" } else { "NO" })?;
        }
        writeln!(f, "\nthe latest request left {} behind its time", millis(*late_max))
    }
}

type Figure = fn(&Tally) -> String;

/// The rows of the table.
const FIGURES: [(&str, Figure); 11] = [
    ("requests", |tally| tally.requests.to_string()),
    ("answered with what was fresh", |tally| percent(tally.hit_ratio())),
    ("  with a refresh behind the answer", |tally| tally.refreshing.to_string()),
    ("  longest of these answers", |tally| millis(tally.fresh_max)),
    ("foreground loads", |tally| tally.foreground().to_string()),
    ("  had to load", |tally| tally.led.to_string()),
    ("  waited for another's load", |tally| tally.followed.to_string()),
    ("  joined a refresh that was late", |tally| tally.joined.to_string()),
    ("    and waited for it (mean, longest)", |tally| {
        format!("{}, {}", millis(joined_mean(tally)), millis(tally.joined_wait_max))
    }),
    ("loads in all", |tally| tally.loads.to_string()),
    ("cost of a load as learnt", |tally| {
        tally.learnt.map_or_else(String::new, |(least, most)| {
            format!("{} .. {}", millis(least), millis(most))
        })
    }),
];

fn percent(part: f64) -> String {
    format!("{:.3} %", 100.0 * part)
}

fn millis(span: Duration) -> String {
    format!("{:.1} ms", 1e3 * span.as_secs_f64())
}

//! What is on record, and how far a count may be from it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::ground::Ground;
use crate::workspace;

/// Where the record stands.
pub(super) const FILE: &str = "docs/instructions.json";

/// What to do when counts have changed for a reason.
pub(super) const AGAIN: &str =
    "if that is meant, `cargo xtask instructions --record`, and say why in the commit";

/// How many percent a count may be from its record. Runs of one build differ by less than 0.2 %;
/// the rest is for the compiler, which lays out code anew when code elsewhere changes.
const TOLERANCE_PERCENT: u64 = 3;

/// Instructions by piece, and what they hold for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) ground: Ground,
    pub(super) instructions: BTreeMap<String, u64>,
}

pub(super) fn file() -> PathBuf {
    workspace::root().join(FILE)
}

impl Record {
    pub(super) fn new(
        ground: Ground,
        instructions: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        Self { ground, instructions: instructions.into_iter().collect() }
    }

    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("read {FILE}"))?;
        Self::parse(&text).with_context(|| format!("in {FILE}"))
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(&self.json())?;
        text.push('\n');
        std::fs::write(file, text).with_context(|| format!("write {FILE}"))
    }

    fn json(&self) -> Value {
        json!({ "ground": self.ground.json(), "instructions": self.instructions })
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let json: Value = serde_json::from_slice(text)?;
        let pieces = json["instructions"].as_object().context("it has no `instructions`")?;
        let number = |(name, count): (&String, &Value)| {
            let count = count.as_u64().filter(|count| *count > 0);
            Ok((name.clone(), count.with_context(|| format!("`{name}` is no count"))?))
        };
        let instructions = pieces.iter().map(number).collect::<Result<_>>()?;
        Ok(Self { ground: Ground::read(&json["ground"])?, instructions })
    }

    /// How this one differs from the one before it.
    pub(super) fn compare(&self, before: &Self) -> Comparison {
        let (now, before) = (&self.instructions, &before.instructions);
        let names = now.keys().chain(before.keys().filter(|name| !now.contains_key(*name)));
        let row = |name: &String| Row {
            name: name.clone(),
            before: before.get(name).copied(),
            now: now.get(name).copied(),
        };
        Comparison(names.map(row).collect())
    }
}

/// Every piece that is counted or on record.
pub(super) struct Comparison(Vec<Row>);

struct Row {
    name: String,
    before: Option<u64>,
    now: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Within,
    Above,
    Below,
    New,
    Gone,
}

impl Comparison {
    /// Fewer instructions are no failure, but they should be put on record before they are lost.
    pub(super) fn is_green(&self) -> bool {
        self.0.iter().all(|row| matches!(row.verdict(), Verdict::Within | Verdict::Below))
    }

    /// One line for who sees no other.
    pub(super) fn summary(&self) -> String {
        let below = self.0.iter().filter(|row| row.verdict() == Verdict::Below).count();
        let within = self.0.len() - below;
        let furthest = self.0.iter().max_by_key(|row| row.permille().unsigned_abs());
        let furthest = furthest.map(|row| format!(", furthest: {} {}", row.name, row.change()));
        let better = match below {
            0 => String::new(),
            _ => format!("; {below} below it: record them with --record"),
        };
        let furthest = furthest.unwrap_or_default();
        format!("{within} pieces within {TOLERANCE_PERCENT} % of the record{furthest}{better}")
    }
}

impl Row {
    fn verdict(&self) -> Verdict {
        let (before, now) = match (self.before, self.now) {
            (None, _) => return Verdict::New,
            (_, None) => return Verdict::Gone,
            (Some(before), Some(now)) => (before, now),
        };
        let allowed = before * TOLERANCE_PERCENT;
        if now * 100 > before * 100 + allowed {
            Verdict::Above
        } else if now * 100 + allowed < before * 100 {
            Verdict::Below
        } else {
            Verdict::Within
        }
    }

    /// Thousandths of the record that were added.
    fn permille(&self) -> i64 {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match (self.before.map(signed), self.now.map(signed)) {
            (Some(before), Some(now)) if before > 0 => {
                now.saturating_sub(before).saturating_mul(1_000) / before
            }
            _ => 0,
        }
    }

    fn change(&self) -> String {
        if self.before.is_none() || self.now.is_none() {
            return "-".to_owned();
        }
        let permille = self.permille();
        let sign = if permille < 0 { '-' } else { '+' };
        format!("{sign}{}.{} %", permille.abs() / 10, permille.abs() % 10)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14}{:>10}{:>10}{:>10}", "", "record", "now", "change")?;
        let number =
            |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        for row in &self.0 {
            let (before, now) = (number(row.before), number(row.now));
            write!(f, "{:<14}{before:>10}{now:>10}{:>10}", row.name, row.change())?;
            writeln!(
                f,
                "{}",
                match row.verdict() {
                    Verdict::Within => "",
                    Verdict::Above => "  more than is on record",
                    Verdict::Below => "  less than is on record",
                    Verdict::New => "  not on record",
                    Verdict::Gone => "  on record, but no piece any more",
                }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(instructions: &[(&str, u64)]) -> Record {
        let ground = json!({ "toolchain": "t", "target": "x", "libc": "l", "vectors": "v" });
        let instructions = instructions.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Record::new(Ground::read(&ground).unwrap(), instructions)
    }

    #[test]
    fn a_record_survives_its_file() {
        let record = record(&[("look", 600), ("answer", 9_000)]);
        let text = serde_json::to_vec(&record.json()).unwrap();
        assert_eq!(Record::parse(&text).unwrap(), record);
    }

    #[test]
    fn a_record_that_makes_no_sense_is_refused() {
        for text in ["", "{}", r#"{"instructions": {"look": 0}}"#, r#"{"instructions": {}}"#] {
            assert!(Record::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn three_percent_are_within() {
        let before = record(&[("look", 1_000)]);
        let rows = [
            (1_000, Verdict::Within, "+0.0 %"),
            (1_030, Verdict::Within, "+3.0 %"),
            (1_031, Verdict::Above, "+3.1 %"),
            (970, Verdict::Within, "-3.0 %"),
            (969, Verdict::Below, "-3.1 %"),
        ];
        for (now, verdict, change) in rows {
            let comparison = record(&[("look", now)]).compare(&before);
            assert_eq!(comparison.0[0].verdict(), verdict, "{now}");
            assert_eq!(comparison.0[0].change(), change);
            assert_eq!(comparison.is_green(), verdict != Verdict::Above, "{now}");
            assert_eq!(comparison.summary().contains("--record"), verdict == Verdict::Below);
        }
    }

    #[test]
    fn a_piece_without_a_record_is_red_and_so_is_a_record_without_a_piece() {
        let (one, two) = (record(&[("look", 1)]), record(&[("look", 1), ("key", 2)]));
        let (new, gone) = (two.compare(&one), one.compare(&two));
        assert!(!new.is_green() && !gone.is_green());
        assert!(new.to_string().contains("not on record"), "{new}");
        assert!(gone.to_string().contains("no piece any more"), "{gone}");
    }

    #[test]
    fn the_summary_names_the_furthest() {
        let before = record(&[("look", 1_000), ("answer", 1_000)]);
        let now = record(&[("look", 1_001), ("answer", 980)]);
        let summary = now.compare(&before).summary();
        assert_eq!(summary, "2 pieces within 3 % of the record, furthest: answer -2.0 %");
    }
}

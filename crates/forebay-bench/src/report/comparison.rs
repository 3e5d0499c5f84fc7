//! A row that compares a published figure, rivals and forebay.

use serde_json::{Value, json};

use super::{Bound, Verdict, digits_for, number_text};
use crate::environment::{cores, median, quantile};

/// Unit of a figure, which decides how it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Seconds,
    Bytes,
    PerSecond,
    /// A part of 1, written in percent.
    Share,
    /// A factor.
    Times,
}

/// Direction in which figures of a row are better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
    /// No direction: the row is information.
    Neither,
}

/// Factor by which a rival must be better, so that chance does not decide.
const LEAD: f64 = 1.02;

/// Figures of one subject, one for each round.
#[derive(Clone)]
pub(crate) struct Figure {
    subject: String,
    samples: Vec<f64>,
}

/// A row: a published figure, those of rivals and of forebay in this run, and a bound.
#[derive(Clone)]
pub(crate) struct Comparison {
    name: String,
    pub(crate) unit: Unit,
    better: Better,
    published: Vec<Figure>,
    rivals: Vec<Figure>,
    ours: Option<Figure>,
    pub(crate) bound: Bound,
    /// Number of processes for which the bound needs a core each.
    processes: usize,
}

impl Unit {
    pub(crate) fn show(self, number: f64) -> String {
        self.show_with(number, 0)
    }

    /// Returns the text of a number with so many more digits behind the point.
    pub(super) fn show_with(self, number: f64, more: usize) -> String {
        let (one, two) = (1 + more, 2 + more);
        match self {
            Self::Count => number_text(number, more),
            Self::Seconds => seconds(number, more),
            Self::Bytes if number < 1024.0 => format!("{number:.more$} B"),
            Self::Bytes if number < 1024.0 * 1024.0 => format!("{:.one$} KiB", number / 1024.0),
            Self::Bytes => format!("{:.one$} MiB", number / 1024.0 / 1024.0),
            Self::PerSecond => format!("{}/s", grouped(number, more)),
            Self::Share => format!("{:.two$} %", 100.0 * number),
            Self::Times => format!("{number:.two$}"),
        }
    }

    /// The unit of this name; a count if there is none.
    pub(super) fn named(name: &str) -> Self {
        let all = [Self::Seconds, Self::Bytes, Self::PerSecond, Self::Share, Self::Times];
        all.into_iter().find(|unit| unit.name() == name).unwrap_or(Self::Count)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::PerSecond => "per second",
            Self::Share => "share",
            Self::Times => "ratio",
        }
    }
}

fn seconds(number: f64, more: usize) -> String {
    let (factor, unit) = match number {
        _ if number == 0.0 => return "0 ms".to_owned(),
        _ if number < 1e-6 => (1e9, "ns"),
        _ if number < 1e-3 => (1e6, "µs"),
        _ if number < 10.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    let scaled = number * factor;
    let digits = more + if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.digits$} {unit}")
}

/// Three digits, or all of the integer part in groups.
fn grouped(number: f64, more: usize) -> String {
    if number < 100.0 || more > 0 {
        return format!("{number:.*}", 2 + more);
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Figure {
    fn new(subject: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { subject: subject.into(), samples }
    }

    fn value(&self) -> f64 {
        median(&self.samples)
    }

    /// Lowest and highest sample, if there are several.
    fn spread(&self) -> Option<(f64, f64)> {
        let [low, high] = [0.0, 1.0].map(|at| quantile(&self.samples, at));
        (low < high).then_some((low, high))
    }

    fn text(&self, unit: Unit, more: usize) -> String {
        let value = unit.show_with(self.value(), more);
        match self.spread() {
            Some((low, high)) => format!("{value} ({}–{})", unit.show(low), unit.show(high)),
            None => value,
        }
    }

    fn json(&self) -> Value {
        let [low, high] = [0.0, 1.0].map(|at| quantile(&self.samples, at));
        let rounds = self.samples.len();
        let value = self.value();
        json!({ "subject": self.subject, "value": value, "low": low, "high": high, "rounds": rounds })
    }
}

impl Comparison {
    pub(crate) fn new(name: impl Into<String>, unit: Unit, better: Better) -> Self {
        Self {
            name: name.into(),
            unit,
            better,
            published: Vec::new(),
            rivals: Vec::new(),
            ours: None,
            bound: Bound::None,
            processes: 0,
        }
    }

    /// Published figure, the only kind that is written by hand.
    pub(crate) fn published(mut self, source: &str, figure: f64) -> Self {
        self.published.push(Figure::new(source, vec![figure]));
        self
    }

    pub(crate) fn rival(mut self, name: &str, samples: Vec<f64>) -> Self {
        self.rivals.push(Figure::new(name, samples));
        self
    }

    pub(crate) fn ours(mut self, samples: Vec<f64>) -> Self {
        self.ours = Some(Figure::new("forebay", samples));
        self
    }

    pub(crate) fn bound(mut self, bound: Bound) -> Self {
        self.bound = bound;
        self
    }

    /// Bound that needs a core for each of this many processes.
    pub(crate) fn bound_for(mut self, bound: Bound, processes: usize) -> Self {
        (self.bound, self.processes) = (bound, processes);
        self
    }

    pub(super) fn verdict(&self) -> Verdict {
        let Some(ours) = &self.ours else { return Verdict::Shown };
        match self.bound.verdict(ours.value()) {
            Verdict::Missed if self.processes > cores() => Verdict::TooFewCores,
            verdict => verdict,
        }
    }

    /// Returns true if a rival is better.
    pub(super) fn is_lost(&self) -> bool {
        self.ahead().is_some()
    }

    /// The best rival that is better, and the factor between it and forebay.
    fn ahead(&self) -> Option<(&str, f64)> {
        let ours = self.ours.as_ref()?.value();
        let factor = |rival: &Figure| match self.better {
            Better::Lower => ours / rival.value(),
            Better::Higher => rival.value() / ours,
            Better::Neither => 0.0,
        };
        let factors = self.rivals.iter().map(|rival| (&*rival.subject, factor(rival)));
        factors
            .filter(|(_, factor)| *factor > LEAD)
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Name, published figures, rivals, and ours.
    pub(super) fn cells(&self) -> Vec<String> {
        let named = |figures: &[Figure]| {
            let texts = figures.iter().map(|one| {
                let text = one.text(self.unit, 0);
                if one.subject.is_empty() { text } else { format!("{} {text}", one.subject) }
            });
            texts.collect::<Vec<_>>().join("; ")
        };
        let ours = self.ours.as_ref().map_or_else(String::new, |ours| {
            let more =
                digits_for(ours.value(), self.bound, |one, more| self.unit.show_with(one, more));
            ours.text(self.unit, more)
        });
        let ours = match self.ahead() {
            // The rival has zero, or forebay has.
            Some((rival, factor)) if factor.is_infinite() => format!("{ours}, behind {rival}"),
            Some((rival, factor)) => format!("{ours}, {factor:.2} × behind {rival}"),
            None => ours,
        };
        vec![self.name.clone(), named(&self.published), named(&self.rivals), ours]
    }

    pub(super) fn json(&self) -> Value {
        let all = |figures: &[Figure]| figures.iter().map(Figure::json).collect::<Vec<_>>();
        let better = match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
            Better::Neither => "neither",
        };
        json!({
            "unit": self.unit.name(),
            "better": better,
            "lost": self.is_lost(),
            "published": all(&self.published),
            "rivals": all(&self.rivals),
            "ours": self.ours.as_ref().map(Figure::json),
        })
    }
}

//! History as JSON.

use std::fmt::{Display, Write as _};

use forebay_http::metrics::LatencyBucket;
use serde_json::{Value, json};

use super::global::{OF_TIER, PROCESS};
use super::point::{COUNTS, LATENCIES, Point};
use super::{History, OTHERS, SITES_MAX};

/// Length and resolution of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// 15 minutes by second.
    Quarter,
    /// A day by minute.
    Day,
}

impl Span {
    /// Reads the value of the parameter `span`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "15m" => Some(Self::Quarter),
            "24h" => Some(Self::Day),
            _ => None,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Quarter => "15m",
            Self::Day => "24h",
        }
    }
}

impl History {
    /// Returns the history of a site, or of all together, as one list for each number, the oldest
    /// value first; `null` is a step that was not observed. Returns `None` for a site without a
    /// history.
    pub(crate) fn shown(&self, site: Option<&str>, span: Span) -> Option<String> {
        let series = self.series(site)?;
        let (points, step, end): (Vec<&Point>, u64, u64) = match span {
            Span::Quarter => (series.seconds.iter().collect(), 1, self.now),
            Span::Day => (series.minutes.iter().collect(), 60, self.now / 60 * 60 - 60),
        };
        let global: Vec<&[f32]> = match span {
            Span::Quarter => self.global.seconds.iter().map(|values| &values[..]).collect(),
            Span::Day => self.global.minutes.iter().map(|values| &values[..]).collect(),
        };
        let mut out = String::new();
        let head = json!({
            "site": site, "span": span.text(), "step": step, "end": end, "sites": self.site_names(),
        });
        let head = head.to_string();
        out.push_str(head.strip_suffix('}').unwrap_or(&head));
        out.push_str(",\"counts\":{");
        for (place, name) in COUNTS.iter().enumerate() {
            column(&mut out, name, points.iter().map(|point| number(point.counts[place])));
        }
        out.push_str("},\"latencies_us\":{");
        for (place, name) in LATENCIES.iter().enumerate() {
            column(&mut out, name, points.iter().map(|point| micros(point.latencies[place])));
        }
        out.push_str("},\"process\":{");
        for (place, name) in PROCESS.iter().enumerate() {
            column(&mut out, name, global.iter().map(|values| number(values[place])));
        }
        out.push_str("},\"tiers\":{");
        for (tier, name) in self.global.tiers().enumerate() {
            separate(&mut out);
            let _ = write!(out, "{}:{{", Value::from(name));
            for (place, name) in OF_TIER.iter().enumerate() {
                let place = PROCESS.len() + tier * OF_TIER.len() + place;
                column(&mut out, name, global.iter().map(|values| number(values[place])));
            }
            out.push('}');
        }
        out.push_str("}}\n");
        Some(out)
    }

    /// Returns the newest second of a site, or of all together, in the order of the columns of
    /// [`shown`](Self::shown). The numbers of a site without a history are 0.
    pub(crate) fn newest(&self, site: Option<&str>) -> String {
        let series = self.series(site);
        let point = series.and_then(|series| series.seconds.last().copied());
        let point = point.unwrap_or(Point { counts: [0.0; COUNTS.len()], ..Point::GAP });
        let mut out = format!("\"t\":{},\"site\":{},\"values\":{{", self.now, Value::from(site));
        column(&mut out, "counts", point.counts.iter().map(|count| number(*count)));
        column(&mut out, "latencies_us", point.latencies.iter().map(|bucket| micros(*bucket)));
        let values = self.global.seconds.last().map(|values| &values[..]).unwrap_or_default();
        column(&mut out, "global", values.iter().map(|value| number(*value)));
        let p99 = |span: Span| {
            micros(series.and_then(|series| match span {
                Span::Quarter => series.short.p99(),
                Span::Day => series.long.p99(),
            }))
        };
        let (short, long) = (p99(Span::Quarter), p99(Span::Day));
        let sites = self.site_names().len();
        let _ = write!(out, "}},\"p99_us\":{{\"15m\":{short},\"24h\":{long}}},\"sites\":{sites}");
        out
    }

    /// Returns the 99th percentile of the reads of a tier in microseconds, or `null`.
    pub(crate) fn reads_p99(&self, place: usize) -> Value {
        let bucket = self.global.reads_p99(place);
        bucket.map_or(Value::Null, |bucket| u64_micros(bucket).into())
    }

    /// Sites with a history of their own; the last one may be that of the others.
    fn site_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.sites.iter().map(|site| &*site.site).collect();
        names.sort_unstable();
        if names.len() >= SITES_MAX {
            names.push(OTHERS);
        }
        names
    }
}

fn column(out: &mut String, name: &str, values: impl Iterator<Item = impl Display>) {
    separate(out);
    let _ = write!(out, "\"{name}\":[");
    for value in values {
        if !out.ends_with('[') {
            out.push(',');
        }
        let _ = write!(out, "{value}");
    }
    out.push(']');
}

fn separate(out: &mut String) {
    if !out.ends_with('{') {
        out.push(',');
    }
}

/// Number of JSON; a whole number has no fraction.
fn number(value: f32) -> String {
    if value.is_finite() { value.to_string() } else { "null".to_owned() }
}

fn micros(bucket: Option<LatencyBucket>) -> String {
    bucket.map_or_else(|| "null".to_owned(), |bucket| u64_micros(bucket).to_string())
}

fn u64_micros(bucket: LatencyBucket) -> u64 {
    u64::try_from(bucket.duration().as_micros()).unwrap_or(u64::MAX)
}

//! Text of an explanation, for a terminal.

use std::fmt::{Display, Write as _};

use forebay_http::explanation::{
    DecisionReport, Explanation, Finding, KeyReport, LiveReport, NowReport, StorableReport,
    StoredReport, Would,
};

/// Width of the column of titles.
const TITLE: usize = 10;

/// Rows with a title each; further lines of a row are indented.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn row(&mut self, title: &str, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{title:TITLE$}{line}");
    }

    fn more(&mut self, line: impl Display) {
        self.row("", line);
    }
}

/// Returns the text of an explanation.
pub(super) fn of(explanation: &Explanation) -> String {
    let mut rows = Rows::default();
    rows.row("request", format_args!("{} {}", explanation.method, explanation.url));
    would(&mut rows, &explanation.would);
    rows.row("site", explanation.site.as_deref().unwrap_or("none"));
    if let Some(key) = &explanation.key {
        key_of(&mut rows, key);
    }
    if explanation.key.is_some() {
        stored(&mut rows, &explanation.stored);
        storable(&mut rows, &explanation.storable);
        now(&mut rows, &explanation.now);
        loads(&mut rows, &explanation.decisions);
    }
    if let Some(answer) = &explanation.live {
        live(&mut rows, answer);
    }
    rows.0
}

fn would(rows: &mut Rows, would: &Would) {
    let course = match &*would.outcome {
        "served" => "be served from storage, without waiting",
        "served-while-renewed" => "be served from storage, while a load renews it",
        "waits" => "wait for a load that is under way",
        "loads" => "load from the origin",
        "forwarded" => "be forwarded to the origin, past the cache",
        "refused" => "get an error response",
        "answered-by-rule" => "be answered by a rule of the site",
        other => other,
    };
    rows.row("would", course);
    if let Some(tier) = would.tier.as_deref().filter(|tier| *tier != "memory") {
        rows.more(format_args!("from the tier {tier}"));
    }
    if let Some(waiting) = would.waiting {
        rows.more(format_args!("with {waiting} other waiting requests"));
    }
    if let Some(status) = would.status {
        rows.more(format_args!("status {status}"));
    }
    if !would.cache_status.is_empty() {
        rows.more(format_args!("Cache-Status: {}", would.cache_status));
    }
    findings(rows, "why", &would.causes);
}

fn findings(rows: &mut Rows, title: &str, findings: &[Finding]) {
    for (place, finding) in findings.iter().enumerate() {
        let Finding { code, because, rule, advice } = finding;
        rows.row(if place == 0 { title } else { "" }, format_args!("{code}: {because}"));
        rows.more(format_args!("  {rule}: {advice}"));
    }
}

fn key_of(rows: &mut Rows, key: &KeyReport) {
    rows.row("key", format_args!("{} {} {}", key.scheme, key.host, key.target));
    key.changes.iter().for_each(|change| rows.more(change));
}

fn stored(rows: &mut Rows, stored: &[StoredReport]) {
    if stored.is_empty() {
        rows.row("stored", "nothing");
    }
    for (place, entry) in stored.iter().enumerate() {
        rows.row(if place == 0 { "stored" } else { "" }, first_line(entry));
        rows.more(format_args!("  {}", lifetime(entry)));
        if !entry.variant.is_empty() {
            let fields = entry.variant.iter().map(|(name, value)| match value {
                Some(value) => format!("{name}: {value}"),
                None => format!("no {name}"),
            });
            rows.more(format_args!("  variant {}", fields.collect::<Vec<_>>().join("; ")));
        }
        if !entry.tags.is_empty() {
            rows.more(format_args!("  tags {}", entry.tags.join(" ")));
        }
        if let Some(validator) = &entry.validator {
            rows.more(format_args!("  {validator}"));
        }
    }
}

fn first_line(entry: &StoredReport) -> String {
    let mut line = format!("{}: status {}", entry.tier, entry.status);
    if let Some(bytes) = entry.bytes {
        let _ = write!(line, ", {bytes} bytes");
    }
    match &*entry.purge {
        "none" => {}
        purge => {
            let _ = write!(line, ", purged ({purge})");
        }
    }
    if !entry.selected {
        line.push_str(", not for this request");
    }
    line
}

fn lifetime(entry: &StoredReport) -> String {
    let mut line = format!("age {}, ", seconds(entry.age_ms));
    let left = entry.fresh_left_ms.unsigned_abs();
    if entry.fresh_left_ms > 0 {
        let _ = write!(line, "fresh for {}", seconds(left));
    } else {
        let _ = write!(line, "stale since {}", seconds(left));
    }
    let _ = write!(line, "; lifetime {} by {}", seconds(entry.lifetime_ms), entry.set_by_line);
    let windows = [
        ("stale-while-revalidate", entry.stale_while_revalidate_left_ms),
        ("stale-if-error", entry.stale_if_error_left_ms),
    ];
    for (name, left) in windows.into_iter().filter(|(_, left)| *left > 0) {
        let _ = write!(line, "; {name} {} left", seconds(left));
    }
    if entry.must_revalidate {
        line.push_str("; never served stale");
    }
    line
}

fn storable(rows: &mut Rows, storable: &StorableReport) {
    let from = match &*storable.judged_from {
        "live" => "by the response of the origin now",
        "stored" => "by the stored response",
        "decision" => "by the last load",
        _ => "by the request alone",
    };
    if storable.objections.is_empty() {
        rows.row("storable", format_args!("yes, {from}"));
        return;
    }
    rows.row("storable", format_args!("no, {from}"));
    findings(rows, "", &storable.objections);
}

fn now(rows: &mut Rows, now: &NowReport) {
    let mut lines = Vec::new();
    if let Some(marker) = &now.pass_marker {
        lines.push(format!("pass marker for {} ({})", seconds(marker.left_ms), marker.because));
    }
    if let Some(pause) = &now.back_off {
        lines.push(format!("no load for {}: {}", seconds(pause.left_ms), pause.error));
    }
    if let Some(load) = &now.load {
        let (running, waiting) = (seconds(load.running_ms), load.waiting);
        let lease = match &*load.lease {
            "other-instance" => "; another instance holds the lease",
            _ => "",
        };
        lines.push(format!("load under way for {running}, {waiting} requests wait{lease}"));
    }
    if let Some(breaker) = now.breaker.as_ref().filter(|breaker| breaker.state != "closed") {
        let left = seconds(breaker.left_ms);
        lines.push(format!("circuit breaker {}, next trial within {left}", breaker.state));
    }
    for tier in now.tiers.iter().filter(|tier| tier.state != "ok" || tier.failure.is_some()) {
        let failure = tier.failure.as_deref().unwrap_or("not read");
        lines.push(format!("tier {} {}: {failure}", tier.name, tier.state));
    }
    for (place, line) in lines.iter().enumerate() {
        rows.row(if place == 0 { "now" } else { "" }, line);
    }
}

fn loads(rows: &mut Rows, decisions: &[DecisionReport]) {
    for (place, decision) in decisions.iter().enumerate() {
        let DecisionReport { ago_ms, took_ms, why, result, status, line, .. } = decision;
        let status = status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let (ago, took) = (seconds(*ago_ms), seconds(*took_ms));
        let line = format!("{ago} ago, {why}, status {status}, {result} in {took}; {line}");
        rows.row(if place == 0 { "loads" } else { "" }, line);
    }
}

fn live(rows: &mut Rows, answer: &LiveReport) {
    match (&answer.error, answer.status) {
        (Some(error), _) => rows.row("live", error),
        (None, status) => {
            let status = status.unwrap_or_default();
            let lifetime = seconds(answer.lifetime_ms);
            let by = &answer.set_by_line;
            rows.row("live", format_args!("status {status}, lifetime {lifetime} by {by}"));
            answer.fields.iter().for_each(|field| rows.more(format_args!("  {field}")));
        }
    }
}

/// Returns a duration in seconds, or in milliseconds below a second.
fn seconds(millis: u64) -> String {
    if millis < 1_000 { format!("{millis} ms") } else { format!("{} s", millis / 1_000) }
}

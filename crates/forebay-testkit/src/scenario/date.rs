//! `${now}`, `${now+10s}`, `${now-1h}` in field values: HTTP dates by the scenario's clock.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;

/// Replaces every `${…}`. The error names one that is invalid.
pub(super) fn expand(value: &str, unix_seconds: i64) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) =
            after.split_once('}').with_context(|| format!("no `}}` after `${{{after}`"))?;
        out.push_str(before);
        let offset = offset(name).with_context(|| format!("`${{{name}}}` is no time"))?;
        out.push_str(&http_date(unix_seconds.saturating_add(offset)));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Reads a time such as `250ms`, `2s`, `5m`, `1h`, `1d`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

/// Seconds in `now`, `now+TIME` or `now-TIME`.
fn offset(name: &str) -> Option<i64> {
    let shift = name.strip_prefix("now")?;
    let (sign, time) = match shift.split_at_checked(1) {
        None => return Some(0),
        Some(("+", time)) => (1, time),
        Some(("-", time)) => (-1, time),
        Some(_) => return None,
    };
    Some(sign * i64::try_from(duration(time)?.as_secs()).ok()?)
}

fn http_date(unix_seconds: i64) -> String {
    // HTTP dates have four-digit years; httpdate panics on others.
    const YEAR_9999: u64 = 253_402_300_799;
    let seconds = u64::try_from(unix_seconds).unwrap_or(0).min(YEAR_9999);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

//! Lines of access logs, of forebay and of other servers.

use std::time::Duration;

use serde_json::Value;

/// Names of the months in the common log format.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Request in a line of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLine {
    pub(crate) method: String,
    /// Host; absent in common and combined logs.
    pub(crate) host: Option<String>,
    pub(crate) target: String,
    /// Time since 1970, if the line has one that can be read.
    pub(crate) at: Option<Duration>,
    pub(crate) status: Option<u16>,
    /// Bytes of the body.
    pub(crate) bytes: u64,
    /// Result in the log of forebay, such as `hit`.
    pub(crate) cache: Option<String>,
}

impl LogLine {
    /// Reads a line of a JSON log (of forebay or Caddy), or of a logfmt, common or combined log.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            let fields: Value = serde_json::from_str(line).ok()?;
            return if fields.get("request").is_some() {
                of_caddy(&fields)
            } else {
                of_json(&fields)
            };
        }
        match line.split_once("] \"") {
            Some((before, after)) => of_common(before, after),
            None => of_logfmt(line),
        }
    }
}

fn of_json(fields: &Value) -> Option<LogLine> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(LogLine {
        method: text("method")?,
        host: text("host"),
        target: text("target")?,
        at: text("ts").as_deref().and_then(rfc_3339),
        status: fields.get("status").and_then(Value::as_u64).and_then(|it| it.try_into().ok()),
        bytes: fields.get("bytes").and_then(Value::as_u64).unwrap_or(0),
        cache: text("cache"),
    })
}

fn of_caddy(fields: &Value) -> Option<LogLine> {
    let request = fields.get("request")?;
    let text = |name: &str| request.get(name).and_then(Value::as_str).map(str::to_owned);
    let at = fields.get("ts").and_then(Value::as_f64);
    Some(LogLine {
        method: text("method")?,
        host: text("host"),
        target: text("uri")?,
        at: at.and_then(|at| Duration::try_from_secs_f64(at).ok()),
        status: fields.get("status").and_then(Value::as_u64).and_then(|it| it.try_into().ok()),
        bytes: fields.get("size").and_then(Value::as_u64).unwrap_or(0),
        cache: None,
    })
}

/// Reads a line whose date ends `before`, and whose request begins `after`:
/// `… [06/Nov/1994:08:49:37 +0000] "GET /a HTTP/1.1" 200 2326`.
fn of_common(before: &str, after: &str) -> Option<LogLine> {
    let (request, rest) = after.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut numbers = rest.split_whitespace();
    let status = numbers.next().and_then(|status| status.parse().ok());
    let bytes = numbers.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let at = before.rsplit_once('[').and_then(|(_, date)| common_date(date));
    Some(LogLine { method, host: None, target, at, status, bytes, cache: None })
}

fn of_logfmt(line: &str) -> Option<LogLine> {
    let text = |name: &str| {
        line.split(' ').find_map(|field| {
            let value = field.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim_matches('"').to_owned())
        })
    };
    Some(LogLine {
        method: text("method")?,
        host: text("host"),
        target: text("target")?,
        at: text("ts").as_deref().and_then(rfc_3339),
        status: text("status").and_then(|status| status.parse().ok()),
        bytes: text("bytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
        cache: text("cache"),
    })
}

/// Reads `1994-11-06T08:49:37.000012Z`.
fn rfc_3339(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let days = days(date.next()??, date.next()??, date.next()??)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let micros = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
    Some(Duration::from_secs(days * 86_400 + seconds(time)?) + Duration::from_micros(micros))
}

/// Reads `06/Nov/1994:08:49:37 +0000`.
fn common_date(text: &str) -> Option<Duration> {
    let (date, zone) = text.split_once(' ')?;
    let (date, time) = date.split_once(':')?;
    let mut parts = date.splitn(3, '/');
    let day = parts.next()?.parse().ok()?;
    let month = parts.next().and_then(|name| MONTHS.iter().position(|month| *month == name))?;
    let days = days(parts.next()?.parse().ok()?, month as u64 + 1, day)?;
    let local = days * 86_400 + seconds(time)?;
    let (hours, minutes) = zone.get(1..)?.split_at_checked(2)?;
    let offset = hours.parse::<u64>().ok()? * 3_600 + minutes.parse::<u64>().ok()? * 60;
    let utc = match zone.starts_with('-') {
        true => local + offset,
        false => local.saturating_sub(offset),
    };
    Some(Duration::from_secs(utc))
}

/// Reads `08:49:37`.
fn seconds(time: &str) -> Option<u64> {
    let mut parts = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(hours * 3_600 + minutes * 60 + seconds)
}

/// Returns the number of days since 1970-01-01, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !((1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day)) {
        return None;
    }
    // A year that begins in March ends with the leap day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    (before + (153 * month + 2) / 5 + day).checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> (String, u64, Option<u16>, Option<u128>) {
        let line = LogLine::parse(line).expect("a request");
        let at = line.at.map(|at| at.as_millis());
        (format!("{} {}", line.method, line.target), line.bytes, line.status, at)
    }

    #[test]
    fn every_format_has_the_request_its_size_and_its_time() {
        let at = Some(784_111_777_000);
        for line in [
            "{\"ts\":\"1994-11-06T08:49:37.000012Z\",\"method\":\"GET\",\"target\":\"/a\",\
             \"status\":200,\"bytes\":2326,\"cache\":\"hit\"}",
            "{\"ts\":784111777.0001,\"request\":{\"method\":\"GET\",\"host\":\"a\",\"uri\":\"/a\"},\
             \"status\":200,\"size\":2326}",
            "ts=1994-11-06T08:49:37Z method=GET target=/a status=200 bytes=2326",
            "::1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a HTTP/1.1\" 200 2326",
            "::1 - me [06/Nov/1994:09:19:37 +0030] \"GET /a HTTP/1.1\" 200 2326 \"-\" \"agent\"",
            "::1 - me [06/Nov/1994:03:49:37 -0500] \"GET /a HTTP/1.1\" 200 2326 \"-\" \"agent\"",
        ] {
            assert_eq!(read(line), ("GET /a".to_owned(), 2_326, Some(200), at), "{line}");
        }
        let unsized_body = "::1 - - [29/Feb/2024:23:59:59 +0000] \"GET /a HTTP/1.1\" 304 -";
        assert_eq!(read(unsized_body).3, Some(1_709_251_199_000));
        assert_eq!(read(unsized_body).1, 0);
    }

    #[test]
    fn other_lines_are_no_requests() {
        for line in ["", "words", "{broken", "{\"method\":\"GET\"}", "::1 [x] \"-\" 400 0"] {
            assert_eq!(LogLine::parse(line), None, "{line}");
        }
        let odd = "::1 - - [99/Foo/1994:08:49:37 +0000] \"GET /a HTTP/1.1\" 200 1";
        assert_eq!(read(odd).3, None);
    }
}

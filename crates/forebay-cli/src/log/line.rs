//! Common log format, as in
//! `127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] "GET /items/1 HTTP/1.1" 200 2326`.
//!
//! The second and third column (identity and user) are always `-`: the cache does not know them.

use std::fmt::{self, Debug, Write};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats access log events in the common log format.
pub(super) struct AccessLine;

impl<S, N> FormatEvent<S, N> for AccessLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Columns::default();
        event.record(&mut line);
        writeln!(writer, "{}", line.at(SystemTime::now()))
    }
}

/// Columns of one line, as text.
#[derive(Debug, Default)]
struct Columns {
    client: String,
    method: String,
    target: String,
    status: String,
    bytes: Option<String>,
}

impl Visit for Columns {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let column = match field.name() {
            "client" => &mut self.client,
            "method" => &mut self.method,
            "target" => &mut self.target,
            "status" => &mut self.status,
            "bytes" => self.bytes.get_or_insert_default(),
            _ => return,
        };
        // Writing to a string cannot fail.
        let _ = write!(column, "{value:?}");
    }
}

impl Columns {
    fn at(&self, now: SystemTime) -> String {
        let Self { client, method, status, .. } = self;
        // An unescaped quote would end the quoted column.
        let target = self.target.replace('\\', "\\\\").replace('"', "\\\"");
        // A message that was refused before it was parsed has neither; other servers write it so.
        let is_none = method == "-" && target == "-";
        let request = if is_none { target } else { format!("{method} {target} HTTP/1.1") };
        let bytes = self.bytes.as_deref().unwrap_or("-");
        let time = time(now);
        format!("{client} - - [{time}] \"{request}\" {status} {bytes}")
    }
}

/// `06/Nov/1994:08:49:37 +0000`
fn time(now: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7) has the same parts.
    let date = httpdate::fmt_http_date(now);
    let mut words = date.split(' ').skip(1);
    let mut word = || words.next().unwrap_or_default();
    format!("{}/{}/{}:{} +0000", word(), word(), word(), word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn line(target: &str, bytes: Option<&str>) -> String {
        let line = Columns {
            client: "10.0.0.1".into(),
            method: "GET".into(),
            target: target.into(),
            status: "200".into(),
            bytes: bytes.map(Into::into),
        };
        line.at(UNIX_EPOCH + Duration::from_secs(784_111_777))
    }

    #[test]
    fn a_line_has_the_columns_that_analysers_expect() {
        let expected = "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=1 HTTP/1.1\" 200 7";
        assert_eq!(line("/a?b=1", Some("7")), expected);
    }

    #[test]
    fn an_unknown_length_is_a_dash_and_quotes_are_escaped() {
        assert!(line("/", None).ends_with("\"GET / HTTP/1.1\" 200 -"));
        assert!(line("/a\"b\\", None).contains("\"GET /a\\\"b\\\\ HTTP/1.1\""));
    }
}

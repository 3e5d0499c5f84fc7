//! Fields of a response as a JSON object or as `name=value` pairs.

use std::io::Write;
use std::time::{Duration, SystemTime};

use forebay_http::{AccessEntry, CacheResult};
use serde_json::{Number, Value};

use super::{redact, time};

/// Fields of one response.
pub(super) struct Fields<'a> {
    pub(super) entry: &'a AccessEntry<'a>,
    /// Time of its end.
    pub(super) now: SystemTime,
}

impl Fields<'_> {
    /// Calls `add` with each field that has a value, in the order of the documentation.
    pub(super) fn each(&self, mut add: impl FnMut(&'static str, Value)) {
        let Self { entry, now } = *self;
        let (request, outcome) = (entry.request, &entry.request.outcome);
        add("ts", time::rfc_3339(now).into());
        add("site", entry.site.into());
        if !request.host.is_empty() {
            add("host", (*request.host).into());
        }
        add("method", (*request.method).into());
        add("target", redact::target(&request.target).into());
        if !request.protocol.is_empty() {
            add("proto", request.protocol.into());
        }
        add("status", entry.status.into());
        add("cache", entry.cache.label().into());
        let mut maybe = |name, value: Option<Value>| {
            if let Some(value) = value {
                add(name, value);
            }
        };
        maybe("why", entry.why.map(Value::from));
        let is_stored = entry.cache == CacheResult::Hit;
        let detail = outcome.detail.as_deref();
        maybe("tier", detail.filter(|_| is_stored && entry.why.is_some()).map(Value::from));
        let code = detail.filter(|_| !is_stored && detail != entry.why);
        maybe("code", code.map(Value::from));
        maybe("ttl", outcome.ttl.map(Value::from));
        maybe("age", outcome.age.map(Value::from));
        maybe("bytes", Some(entry.bytes.into()));
        maybe("head_ms", milliseconds(entry.head));
        maybe("total_ms", milliseconds(entry.total));
        maybe("origin_status", outcome.origin_status.map(Value::from));
        maybe("shared", outcome.is_shared.then_some(Value::Bool(true)));
        maybe("end", entry.end.label().map(Value::from));
        maybe("client", Some(request.client.to_string().into()));
        maybe("peer", Some(request.peer.to_string().into()));
        maybe("ua", request.user_agent.as_deref().map(Value::from));
        maybe("referer", request.referer.as_deref().map(|value| redact::referer(value).into()));
        maybe("id", Some(request.id.to_string().into()));
    }
}

/// Milliseconds, to the microsecond.
fn milliseconds(span: Duration) -> Option<Value> {
    let micros = u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    Number::from_f64(f64::from(micros) / 1e3).map(Value::Number)
}

/// Appends a JSON object.
pub(super) fn write_json(fields: &Fields<'_>, line: &mut Vec<u8>) {
    let mut separator = b'{';
    fields.each(|name, value| {
        // Writing to a vector cannot fail.
        let _ = write!(line, "{}\"{name}\":{value}", char::from(separator));
        separator = b',';
    });
    line.push(b'}');
}

/// Appends `name=value` pairs. A value is quoted like a JSON string if it has other characters than
/// those of words, numbers and URLs.
pub(super) fn write_logfmt(fields: &Fields<'_>, line: &mut Vec<u8>) {
    let start = line.len();
    fields.each(|name, value| {
        if line.len() > start {
            line.push(b' ');
        }
        // Writing to a vector cannot fail.
        let _ = match &value {
            Value::String(text) if is_plain(text) => write!(line, "{name}={text}"),
            value => write!(line, "{name}={value}"),
        };
    });
}

fn is_plain(text: &str) -> bool {
    let is_special = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'=' | b'\\');
    !text.is_empty() && !text.bytes().any(is_special)
}

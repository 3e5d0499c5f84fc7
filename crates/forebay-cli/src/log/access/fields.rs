//! Fields of a response as a JSON object or as `name=value` pairs.

use std::io::Write;
use std::time::Duration;

use forebay_http::CacheResult;
use serde_json::{Number, Value};

use super::{Line, redact, time};

impl Line<'_> {
    /// Calls `add` with each field that has a value, in the order of the documentation.
    pub(super) fn each_field(&self, mut add: impl FnMut(&'static str, Value)) {
        let Self { entry, at, redaction, sample } = *self;
        let (request, outcome) = (entry.request, &entry.request.outcome);
        add("ts", time::rfc_3339(at).into());
        add("site", entry.site.into());
        if !request.host.is_empty() {
            add("host", (*request.host).into());
        }
        add("method", (*request.method).into());
        add("target", redaction.target(&request.target).into());
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
        maybe("tier", entry.tier().map(Value::from));
        let code = detail.filter(|_| !is_stored && detail != entry.why);
        maybe("code", code.map(Value::from));
        maybe("ttl", outcome.ttl.map(Value::from));
        maybe("age", outcome.age.map(Value::from));
        maybe("bytes", Some(entry.bytes.into()));
        maybe("head_ms", milliseconds(entry.head));
        maybe("total_ms", milliseconds(entry.total));
        maybe("origin_ms", outcome.origin_time.and_then(milliseconds));
        maybe("origin_status", outcome.origin_status.map(Value::from));
        maybe("shared", outcome.is_shared.then_some(Value::Bool(true)));
        maybe("end", entry.end.label().map(Value::from));
        let address = |address| Some(redaction.address(address)?.to_string().into());
        maybe("client", address(request.client));
        maybe("peer", address(request.peer));
        maybe("ua", request.user_agent.as_deref().map(Value::from));
        maybe("referer", request.referer.as_deref().map(|value| redact::referer(value).into()));
        maybe("id", Some(request.id.to_string().into()));
        maybe("trace", request.trace_id().map(|trace| format!("{trace:032x}").into()));
        maybe("sample", sample.map(Value::from));
    }
}

/// Milliseconds, to the microsecond.
fn milliseconds(span: Duration) -> Option<Value> {
    let micros = u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    Number::from_f64(f64::from(micros) / 1e3).map(Value::Number)
}

/// Appends a JSON object with the fields that `each` gives to its argument.
pub(crate) fn write_json(
    each: impl FnOnce(&mut dyn FnMut(&'static str, Value)),
    line: &mut Vec<u8>,
) {
    let mut separator = b'{';
    each(&mut |name, value| {
        // Writing to a vector cannot fail.
        let _ = write!(line, "{}\"{name}\":{value}", char::from(separator));
        separator = b',';
    });
    line.push(b'}');
}

/// Appends `name=value` pairs of the fields that `each` gives to its argument. A value is quoted like
/// a JSON string if it has other characters than those of words, numbers and URLs.
pub(crate) fn write_logfmt(
    each: impl FnOnce(&mut dyn FnMut(&'static str, Value)),
    line: &mut Vec<u8>,
) {
    let start = line.len();
    each(&mut |name, value| {
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

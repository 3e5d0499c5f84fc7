//! Fields of a response as a JSON object or as `name=value` pairs.

use std::borrow::Cow;
use std::io::Write;
use std::time::{Duration, SystemTime};

use forebay_http::{CacheResult, RequestId};
use forebay_semantics::PeerAddress;
use serde_json::Value;

use super::{Line, redact, time};

/// Field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Time,
    Site,
    Host,
    Method,
    Target,
    Protocol,
    Status,
    Cache,
    Why,
    Tier,
    Code,
    Ttl,
    Age,
    Bytes,
    Head,
    Total,
    OriginTime,
    OriginStatus,
    Shared,
    End,
    Client,
    Peer,
    UserAgent,
    Referer,
    Id,
    Trace,
    Key,
    Sample,
}

/// Fields in the order of the documentation, with their names.
const FIELDS: [(Field, &str); 28] = [
    (Field::Time, "ts"),
    (Field::Site, "site"),
    (Field::Host, "host"),
    (Field::Method, "method"),
    (Field::Target, "target"),
    (Field::Protocol, "proto"),
    (Field::Status, "status"),
    (Field::Cache, "cache"),
    (Field::Why, "why"),
    (Field::Tier, "tier"),
    (Field::Code, "code"),
    (Field::Ttl, "ttl"),
    (Field::Age, "age"),
    (Field::Bytes, "bytes"),
    (Field::Head, "head_ms"),
    (Field::Total, "total_ms"),
    (Field::OriginTime, "origin_ms"),
    (Field::OriginStatus, "origin_status"),
    (Field::Shared, "shared"),
    (Field::End, "end"),
    (Field::Client, "client"),
    (Field::Peer, "peer"),
    (Field::UserAgent, "ua"),
    (Field::Referer, "referer"),
    (Field::Id, "id"),
    (Field::Trace, "trace"),
    (Field::Key, "key"),
    (Field::Sample, "sample"),
];

/// Value of a field. It is formatted when it is written, so that a line needs no memory of its own.
#[derive(Clone, Debug)]
pub(crate) enum FieldValue<'a> {
    Text(Cow<'a, str>),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Truth(bool),
    Time(SystemTime),
    /// Duration in microseconds, which is written in milliseconds.
    Micros(u32),
    Address(PeerAddress),
    Id(RequestId),
    Trace(u128),
    Hash(u64),
}

impl<'a> From<&'a str> for FieldValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a Value> for FieldValue<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::String(text) => (&**text).into(),
            Value::Bool(truth) => Self::Truth(*truth),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Self::Unsigned(number),
                (_, Some(number)) => Self::Signed(number),
                _ => Self::Float(number.as_f64().unwrap_or_default()),
            },
            other => Self::Text(other.to_string().into()),
        }
    }
}

impl FieldValue<'_> {
    /// Returns the value of a number; times are in milliseconds.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Signed(number) => Some(*number as f64),
            Self::Unsigned(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Micros(micros) => Some(f64::from(*micros) / 1e3),
            _ => None,
        }
    }

    /// Returns the value as text.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        if let Self::Text(text) = self {
            return Cow::Borrowed(text);
        }
        let mut text = Vec::new();
        self.write_bare(&mut text);
        Cow::Owned(String::from_utf8_lossy(&text).into_owned())
    }

    const fn is_number(&self) -> bool {
        use FieldValue::{Float, Micros, Signed, Truth, Unsigned};
        matches!(self, Signed(_) | Unsigned(_) | Float(_) | Micros(_) | Truth(_))
    }

    /// Appends the value without quotes. Only a text may need them.
    fn write_bare(&self, line: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let _ = match self {
            Self::Text(text) => line.write_all(text.as_bytes()),
            Self::Signed(number) => write!(line, "{number}"),
            Self::Unsigned(number) => {
                line.write_all(itoa::Buffer::new().format(*number).as_bytes())
            }
            // Has the fraction of a whole number, as JSON encoders write it.
            Self::Float(number) => write!(line, "{number:?}"),
            Self::Truth(truth) => write!(line, "{truth}"),
            Self::Time(at) => line.write_all(&time::rfc_3339_bytes(*at)),
            Self::Micros(micros) => write_millis(*micros, line),
            Self::Address(PeerAddress::Ip(std::net::IpAddr::V4(address))) => {
                for (place, part) in address.octets().into_iter().enumerate() {
                    let dot: &[u8] = if place > 0 { b"." } else { b"" };
                    line.extend_from_slice(dot);
                    line.extend_from_slice(itoa::Buffer::new().format(part).as_bytes());
                }
                Ok(())
            }
            Self::Address(address) => write!(line, "{address}"),
            Self::Id(id) => line.write_all(&id.digits()),
            Self::Trace(trace) => write!(line, "{trace:032x}"),
            Self::Hash(hash) => write!(line, "{hash:016x}"),
        };
    }

    fn write_json(&self, line: &mut Vec<u8>) {
        match self {
            Self::Text(text) => write_quoted(text, line),
            value if value.is_number() => value.write_bare(line),
            value => {
                line.push(b'"');
                value.write_bare(line);
                line.push(b'"');
            }
        }
    }
}

/// Appends milliseconds with at least one digit of a fraction.
fn write_millis(micros: u32, line: &mut Vec<u8>) -> std::io::Result<()> {
    line.extend_from_slice(itoa::Buffer::new().format(micros / 1_000).as_bytes());
    line.push(b'.');
    // With a leading 1, so that the fraction keeps its zeros.
    let mut fraction = itoa::Buffer::new();
    let fraction = &fraction.format(1_000 + micros % 1_000)[1..];
    let digits = fraction.trim_end_matches('0');
    line.extend_from_slice(if digits.is_empty() { b"0" } else { digits.as_bytes() });
    Ok(())
}

/// Appends a JSON string.
fn write_quoted(text: &str, line: &mut Vec<u8>) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        line.push(b'"');
        line.extend_from_slice(text.as_bytes());
        line.push(b'"');
        return;
    }
    // Writing to a vector cannot fail, and a text is always JSON.
    let _ = serde_json::to_writer(line, text);
}

impl<'a> Line<'a> {
    /// Calls `add` with each field that has a value, in the order of the documentation.
    pub(super) fn each_field(&self, add: &mut dyn FnMut(&'static str, FieldValue<'_>)) {
        for (field, name) in FIELDS {
            if let Some(value) = self.value(field) {
                add(name, value);
            }
        }
    }

    /// Returns the value of a field, if it has one.
    pub(crate) fn value(&self, field: Field) -> Option<FieldValue<'a>> {
        let Self { entry, at, redaction, sample } = *self;
        let (request, outcome) = (entry.request, &entry.request.outcome);
        let some = |text: &'a str| (!text.is_empty()).then(|| text.into());
        let address = |address| Some(FieldValue::Address(redaction.address(address)?));
        Some(match field {
            Field::Time => FieldValue::Time(at),
            Field::Site => entry.site.into(),
            Field::Host => return some(&request.host),
            Field::Method => (&*request.method).into(),
            Field::Target => FieldValue::Text(redaction.target(&request.target)),
            Field::Protocol => return some(request.protocol),
            Field::Status => FieldValue::Unsigned(entry.status.into()),
            Field::Cache => entry.cache.label().into(),
            Field::Why => entry.why?.into(),
            Field::Tier => entry.tier()?.into(),
            Field::Code => {
                let detail = outcome.detail.as_deref();
                let is_code = entry.cache != CacheResult::Hit && detail != entry.why;
                detail.filter(|_| is_code)?.into()
            }
            Field::Ttl => FieldValue::Signed(outcome.ttl?),
            Field::Age => FieldValue::Unsigned(outcome.age?),
            Field::Bytes => FieldValue::Unsigned(entry.bytes),
            Field::Head => micros(entry.head),
            Field::Total => micros(entry.total),
            Field::OriginTime => micros(outcome.origin_time?),
            Field::OriginStatus => FieldValue::Unsigned(outcome.origin_status?.into()),
            Field::Shared => return outcome.is_shared.then_some(FieldValue::Truth(true)),
            Field::End => entry.end.label()?.into(),
            Field::Client => return address(request.client),
            Field::Peer => return address(request.peer),
            Field::UserAgent => request.user_agent.as_deref()?.into(),
            Field::Referer => FieldValue::Text(redact::referer(request.referer.as_deref()?)),
            Field::Id => FieldValue::Id(request.id),
            Field::Trace => FieldValue::Trace(request.trace_id()?),
            Field::Key => FieldValue::Hash(request.key?),
            Field::Sample => FieldValue::Float(sample?),
        })
    }
}

fn micros<'a>(span: Duration) -> FieldValue<'a> {
    FieldValue::Micros(u32::try_from(span.as_micros()).unwrap_or(u32::MAX))
}

/// Appends a JSON object with the fields that `each` gives to its argument.
pub(crate) fn write_json(
    each: impl FnOnce(&mut dyn FnMut(&'static str, FieldValue<'_>)),
    line: &mut Vec<u8>,
) {
    let mut separator: &[u8] = b"{\"";
    each(&mut |name, value| {
        line.extend_from_slice(separator);
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"\":");
        value.write_json(line);
        separator = b",\"";
    });
    line.push(b'}');
}

/// Appends `name=value` pairs of the fields that `each` gives to its argument. A value is quoted like
/// a JSON string if it has other characters than those of words, numbers and URLs.
pub(crate) fn write_logfmt(
    each: impl FnOnce(&mut dyn FnMut(&'static str, FieldValue<'_>)),
    line: &mut Vec<u8>,
) {
    let start = line.len();
    each(&mut |name, value| {
        if line.len() > start {
            line.push(b' ');
        }
        line.extend_from_slice(name.as_bytes());
        line.push(b'=');
        match &value {
            FieldValue::Text(text) if !is_plain(text) => write_quoted(text, line),
            value => value.write_bare(line),
        }
    });
}

fn is_plain(text: &str) -> bool {
    let is_special = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'=' | b'\\');
    !text.is_empty() && !text.bytes().any(is_special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json() {
        let address = |text: &str| FieldValue::Address(PeerAddress::Ip(text.parse().unwrap()));
        for (value, expected) in [
            (FieldValue::from("a/b?c=é"), "\"a/b?c=é\""),
            (FieldValue::from("a\"\\\n\u{1b}"), r#""a\"\\\n\u001b""#),
            (FieldValue::Signed(-4), "-4"),
            (FieldValue::Unsigned(1_024), "1024"),
            (FieldValue::Float(1.0), "1.0"),
            (FieldValue::Float(0.01), "0.01"),
            (FieldValue::Truth(true), "true"),
            (FieldValue::Micros(0), "0.0"),
            (FieldValue::Micros(7), "0.007"),
            (FieldValue::Micros(12_300), "12.3"),
            (address("192.0.2.17"), "\"192.0.2.17\""),
            (address("2001:db8::1"), "\"2001:db8::1\""),
            (FieldValue::Id(RequestId::new(255)), "\"00000000000000ff\""),
            (FieldValue::Trace(1), "\"00000000000000000000000000000001\""),
        ] {
            let mut line = Vec::new();
            value.write_json(&mut line);
            assert_eq!(str::from_utf8(&line), Ok(expected));
            let parsed: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(value.as_f64(), parsed.as_f64());
            assert_eq!(value.text(), parsed.as_str().unwrap_or(expected));
        }
    }

    #[test]
    fn fields_have_different_names_in_the_order_of_their_declaration() {
        for (place, (field, name)) in FIELDS.iter().enumerate() {
            assert_eq!(*field as usize, place);
            assert!(!FIELDS[..place].iter().any(|(_, before)| before == name));
        }
    }
}

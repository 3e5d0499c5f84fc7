//! Fields of a line of the access log, as a JSON object or as `name=value` pairs.

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use forebay_http::{CacheResult, RequestId, hexadecimal};
use forebay_semantics::PeerAddress;
use serde_json::Value;

use super::{Line, redact, time};

/// Declares the fields in the order of `docs/operating.md`, with their names.
macro_rules! fields {
    ($($field:ident = $name:literal),* $(,)?) => {
        /// Field of a line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Field {
            $($field),*
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),*];

        impl Line<'_> {
            /// Gives each field that has a value to `output`, in the order of their declaration.
            /// Unrolled, because a loop would look up each field at run time.
            pub(super) fn each_field(&self, output: &mut impl FieldOutput) {
                $(if let Some(value) = self.value(Field::$field) {
                    output.add($name, &value);
                })*
            }
        }
    };
}

fields! {
    Time = "ts",
    Site = "site",
    Host = "host",
    Method = "method",
    Target = "target",
    Protocol = "proto",
    Status = "status",
    Cache = "cache",
    Why = "why",
    Tier = "tier",
    Code = "code",
    Ttl = "ttl",
    Age = "age",
    Bytes = "bytes",
    Head = "head_ms",
    Total = "total_ms",
    OriginTime = "origin_ms",
    OriginStatus = "origin_status",
    Shared = "shared",
    End = "end",
    Client = "client",
    Peer = "peer",
    UserAgent = "ua",
    Referer = "referer",
    Id = "id",
    Trace = "trace",
    Key = "key",
    Sample = "sample",
}

/// Form in which fields are written.
pub(crate) trait FieldOutput {
    /// Adds a field.
    fn add(&mut self, name: &'static str, value: &FieldValue<'_>);
}

/// Value of a field. It is formatted into the line itself, without a text in between.
#[derive(Clone, Debug)]
pub(crate) enum FieldValue<'a> {
    Text(Cow<'a, str>),
    /// Text of letters, digits and other characters that need no quotes and no escapes.
    Word(&'a str),
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
    /// Returns the value of a number, durations in milliseconds. `None` for others.
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
        match self {
            Self::Text(text) => return Cow::Borrowed(text),
            Self::Word(word) => return Cow::Borrowed(word),
            _ => {}
        }
        let mut text = Vec::new();
        self.write_bare(&mut text);
        Cow::Owned(String::from_utf8_lossy(&text).into_owned())
    }

    const fn is_number(&self) -> bool {
        use FieldValue::{Float, Micros, Signed, Truth, Unsigned};
        matches!(self, Signed(_) | Unsigned(_) | Float(_) | Micros(_) | Truth(_))
    }

    /// Appends the value without quotes. In `name=value` pairs, only a text may need them.
    fn write_bare(&self, line: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let _ = match self {
            Self::Text(text) => line.write_all(text.as_bytes()),
            Self::Word(word) => line.write_all(word.as_bytes()),
            Self::Signed(number) => line.write_all(itoa::Buffer::new().format(*number).as_bytes()),
            Self::Unsigned(number) => {
                line.write_all(itoa::Buffer::new().format(*number).as_bytes())
            }
            // Has the fraction of a whole number, as JSON encoders write it.
            Self::Float(number) => write!(line, "{number:?}"),
            Self::Truth(truth) => write!(line, "{truth}"),
            Self::Time(at) => line.write_all(&time::rfc_3339_bytes(*at)),
            Self::Micros(micros) => write_millis(*micros, line),
            Self::Address(PeerAddress::Ip(IpAddr::V4(address))) => write_v4(*address, line),
            Self::Address(address) => write!(line, "{address}"),
            Self::Id(id) => line.write_all(&id.digits()),
            Self::Trace(trace) => write!(line, "{trace:032x}"),
            Self::Hash(hash) => line.write_all(&hexadecimal(*hash)),
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
    let digit = |unit| b'0' + u8::try_from(micros / unit % 10).unwrap_or_default();
    let fraction = [b'.', digit(100), digit(10), digit(1)];
    let length = match micros % 100 {
        0 => 2,
        hundredths if hundredths % 10 == 0 => 3,
        _ => 4,
    };
    line.extend_from_slice(&fraction[..length]);
    Ok(())
}

/// Digits of each octet followed by a point, and the number of digits. Each has four bytes, because a
/// copy of fixed length is fast.
const OCTETS: [([u8; 4], u8); 256] = {
    let (mut octets, mut octet) = ([([b'.'; 4], 0); 256], 0_u8);
    loop {
        let (ones, tens, hundreds) = (octet % 10, octet / 10 % 10, octet / 100);
        let digits = [b'0' + hundreds, b'0' + tens, b'0' + ones, b'.'];
        octets[octet as usize] = match octet {
            0..10 => ([digits[2], b'.', b'.', b'.'], 1),
            10..100 => ([digits[1], digits[2], b'.', b'.'], 2),
            _ => (digits, 3),
        };
        match octet.checked_add(1) {
            Some(next) => octet = next,
            None => break octets,
        }
    }
};

/// Appends an IPv4 address.
fn write_v4(address: Ipv4Addr, line: &mut Vec<u8>) -> std::io::Result<()> {
    // Built aside, because each piece that is appended costs a look at the capacity.
    let (mut text, mut length) = ([0; 16], 0);
    for octet in address.octets() {
        let (digits, count) = OCTETS[usize::from(octet)];
        text[length..length + 4].copy_from_slice(&digits);
        length += usize::from(count) + 1;
    }
    line.extend_from_slice(&text[..length - 1]);
    Ok(())
}

/// Appends a JSON string.
fn write_quoted(text: &str, line: &mut Vec<u8>) {
    if !has_escaped(text.as_bytes()) {
        line.push(b'"');
        line.extend_from_slice(text.as_bytes());
        line.push(b'"');
        return;
    }
    // Writing to a vector cannot fail, and a text is always JSON.
    let _ = serde_json::to_writer(line, text);
}

/// Returns `true` if a JSON string escapes a byte of the text.
fn has_escaped(text: &[u8]) -> bool {
    let is_escaped = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    // Not stopped at the first, so that 16 bytes are compared at once.
    let in_piece = |piece: &[u8; 16]| piece.iter().fold(false, |any, byte| any | is_escaped(*byte));
    let (pieces, rest) = text.as_chunks::<16>();
    let in_rest = match text.last_chunk::<16>() {
        Some(last) if !rest.is_empty() => in_piece(last),
        _ => rest.iter().any(|byte| is_escaped(*byte)),
    };
    in_rest || pieces.iter().any(in_piece)
}

impl<'a> Line<'a> {
    /// Returns the value of a field, if it has one.
    #[inline(always)]
    pub(crate) fn value(&self, field: Field) -> Option<FieldValue<'a>> {
        let Self { entry, at, redaction, sample } = *self;
        let (request, outcome) = (entry.request, &entry.request.outcome);
        let some = |text: &'a str| (!text.is_empty()).then(|| text.into());
        let address = |address| Some(FieldValue::Address(redaction.address(address)?));
        Some(match field {
            Field::Time => FieldValue::Time(at),
            Field::Site => entry.site.into(),
            Field::Host => return some(request.host()),
            Field::Method => FieldValue::Word(&request.method),
            Field::Target => FieldValue::Text(redaction.target(request.target())),
            Field::Protocol => {
                let protocol = request.protocol;
                return (!protocol.is_empty()).then_some(FieldValue::Word(protocol));
            }
            Field::Status => FieldValue::Unsigned(entry.status.into()),
            Field::Cache => FieldValue::Word(entry.cache.label()),
            Field::Why => FieldValue::Word(entry.why?),
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
            Field::End => FieldValue::Word(entry.end.label()?),
            Field::Client => return address(request.client),
            Field::Peer => return address(request.peer),
            Field::UserAgent => request.user_agent()?.into(),
            Field::Referer => FieldValue::Text(redact::referer(request.referer()?)),
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

/// JSON object that is being written.
pub(crate) struct JsonObject<'l> {
    line: &'l mut Vec<u8>,
}

impl<'l> JsonObject<'l> {
    /// Begins an object at the end of a line. It gets at least one field.
    pub(crate) fn begin(line: &'l mut Vec<u8>) -> Self {
        line.push(b'{');
        Self { line }
    }

    /// Ends the object: the comma after the last field becomes its end.
    pub(crate) fn end(self) {
        if let Some(comma) = self.line.last_mut() {
            *comma = b'}';
        }
    }
}

impl FieldOutput for JsonObject<'_> {
    #[inline(always)]
    fn add(&mut self, name: &'static str, value: &FieldValue<'_>) {
        self.line.push(b'"');
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\":");
        value.write_json(self.line);
        self.line.push(b',');
    }
}

/// `name=value` pairs that are being written. A text is quoted like a JSON string if it is empty, or has
/// a space, a quote, `=`, a backslash, or a character that is not in ASCII or cannot be printed.
pub(crate) struct LogfmtPairs<'l> {
    line: &'l mut Vec<u8>,
    start: usize,
}

impl<'l> LogfmtPairs<'l> {
    /// Begins the pairs at the end of a line.
    pub(crate) const fn begin(line: &'l mut Vec<u8>) -> Self {
        Self { start: line.len(), line }
    }
}

impl FieldOutput for LogfmtPairs<'_> {
    fn add(&mut self, name: &'static str, value: &FieldValue<'_>) {
        if self.line.len() > self.start {
            self.line.push(b' ');
        }
        self.line.extend_from_slice(name.as_bytes());
        self.line.push(b'=');
        match value {
            FieldValue::Text(text) if !is_plain(text) => write_quoted(text, self.line),
            value => value.write_bare(self.line),
        }
    }
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
            (FieldValue::from("0123456789abcdef0123\""), r#""0123456789abcdef0123\"""#),
            (FieldValue::from("0123\"456789abcdef0123"), r#""0123\"456789abcdef0123""#),
            (FieldValue::Signed(-4), "-4"),
            (FieldValue::Unsigned(1_024), "1024"),
            (FieldValue::Float(1.0), "1.0"),
            (FieldValue::Float(0.01), "0.01"),
            (FieldValue::Truth(true), "true"),
            (FieldValue::Micros(0), "0.0"),
            (FieldValue::Micros(7), "0.007"),
            (FieldValue::Micros(12_300), "12.3"),
            (FieldValue::Micros(12_340), "12.34"),
            (FieldValue::Micros(5_002_005), "5002.005"),
            (address("192.0.2.17"), "\"192.0.2.17\""),
            (address("255.100.10.9"), "\"255.100.10.9\""),
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
    fn fields_have_different_names() {
        for (place, name) in NAMES.iter().enumerate() {
            assert!(!NAMES[..place].contains(name), "{name}");
        }
    }
}

//! Parser of inputs that consist of header fields of a request and of a response.
//!
//! An input is a list of lines. An empty line separates the fields of the request from those of the
//! response (or stored response). A line that begins with a colon is a parameter of the test, such
//! as `:length 100`.

use std::str::from_utf8;

use forebay_http::request_guard::FIELDS_MAX;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Fields of one message, and parameters of the test.
#[derive(Debug, Default)]
pub(crate) struct Block<'a> {
    pub(crate) headers: HeaderMap,
    beside: Vec<(&'a str, &'a str)>,
}

impl<'a> Block<'a> {
    /// Reads up to [`FIELDS_MAX`] lines that a head parser would accept: no control characters,
    /// names that are tokens, values without surrounding white space.
    pub(crate) fn read(input: &'a [u8]) -> Self {
        let mut block = Self::default();
        for line in input.split(|byte| *byte == b'\n').take(FIELDS_MAX) {
            if let Some((name, value)) = field(line) {
                block.headers.append(name, value);
            } else if let Some((name, value)) = beside(line) {
                block.beside.push((name, value));
            }
        }
        block
    }

    /// Blocks of the request and of the response.
    pub(crate) fn pair(input: &'a [u8]) -> (Self, Self) {
        let end = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
        (Self::read(&input[..end]), Self::read(input.get(end + 2..).unwrap_or_default()))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.beside.iter().find(|(beside, _)| *beside == name).map(|(_, text)| *text)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Status code in the line `:status`, or 200.
    pub(crate) fn status(&self) -> StatusCode {
        let code = self.number("status").and_then(|code| u16::try_from(code).ok());
        code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK)
    }
}

/// Fields with the lines of each name in reverse order.
pub(crate) fn backwards(headers: &HeaderMap) -> HeaderMap {
    let mut lines: Vec<_> = headers.iter().collect();
    lines.reverse();
    lines.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Header map with one field.
pub(crate) fn one(name: &'static str, value: &[u8]) -> Option<HeaderMap> {
    let value = HeaderValue::from_bytes(value).ok()?;
    Some(HeaderMap::from_iter([(HeaderName::from_static(name), value)]))
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
}

fn beside(line: &[u8]) -> Option<(&str, &str)> {
    from_utf8(line).ok()?.strip_prefix(':')?.split_once(' ')
}

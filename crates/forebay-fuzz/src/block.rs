//! Field lines of a request and of an answer, as the HTTP rules want them.
//!
//! An input of these targets is lines; an empty line parts what the request holds from what the
//! answer (or the stored response) does. A line that begins with a colon is no field but a number
//! or a text beside them: `:length 100`.

use std::str::from_utf8;

use forebay_http::front::FIELDS_MAX;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The fields of one message, and what stands beside them.
#[derive(Debug, Default)]
pub(crate) struct Block<'a> {
    pub(crate) headers: HeaderMap,
    beside: Vec<(&'a str, &'a str)>,
}

impl<'a> Block<'a> {
    /// Reads what a parser of heads would let through: no control characters, names that are
    /// tokens, values without white space around them, [`FIELDS_MAX`] lines.
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

    /// The request's block and the answer's.
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

    /// The line `:status`, or 200.
    pub(crate) fn status(&self) -> StatusCode {
        let code = self.number("status").and_then(|code| u16::try_from(code).ok());
        code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK)
    }
}

/// The same fields with the lines of each name in the reverse order.
pub(crate) fn backwards(headers: &HeaderMap) -> HeaderMap {
    let mut lines: Vec<_> = headers.iter().collect();
    lines.reverse();
    lines.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// One field on one line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_parts_request_and_answer() {
        let (request, answer) =
            Block::pair(b"range: bytes=0-\n:length 7\n\netag: \"a\"\n:status 404");
        assert_eq!(request.headers["range"], "bytes=0-");
        assert_eq!(request.number("length"), Some(7));
        assert_eq!(answer.headers["etag"], "\"a\"");
        assert_eq!((answer.status(), request.status()), (StatusCode::NOT_FOUND, StatusCode::OK));
    }

    #[test]
    fn what_no_parser_would_let_through_is_left_out() {
        let (request, answer) = Block::pair(b"a b: c\nx: \x01\nx:  y \n\xff: z\n:length x");
        assert_eq!(request.headers, one("x", b"y").unwrap());
        assert_eq!(request.number("length"), None);
        assert!(answer.headers.is_empty());
    }
}

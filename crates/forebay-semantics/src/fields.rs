//! Fields of a message in any form, and parsers for parts of their values: lists, durations in
//! seconds, single values, dates.
//!
//! This folder uses no other; it never sees what a field means.

pub mod date;
pub(crate) mod raw;

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Header fields of a message, in any representation.
///
/// A decision that reads fields through this trait is the same for a parsed head and for one that
/// is still bytes.
pub trait FieldLines {
    /// Returns the values of all lines of a field, in their order and without white space around
    /// them.
    fn lines<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]>;

    /// Returns the values of all lines of the field with this name, given in lower case.
    fn lines_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]>;

    /// Returns names and values of all lines. Names may be in any case.
    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// Returns `true` if the field has at least one line.
    fn has(&self, name: &HeaderName) -> bool {
        self.lines(name).next().is_some()
    }
}

impl FieldLines for HeaderMap {
    fn lines<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    fn lines_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.contains_key(name)
    }
}

/// Header fields that can be copied to another message.
pub trait CopyFields: FieldLines {
    /// Copies the lines whose name, in lower case, `is_kept` accepts.
    fn copy_to(&self, is_kept: impl Fn(&[u8]) -> bool, sink: &mut impl FieldSink);
}

impl CopyFields for HeaderMap {
    fn copy_to(&self, is_kept: impl Fn(&[u8]) -> bool, sink: &mut impl FieldSink) {
        for (name, value) in self {
            if is_kept(name.as_str().as_bytes()) {
                sink.add(name, value);
            }
        }
    }
}

/// Receiver of the header fields of a message that is being made.
pub trait FieldSink {
    /// Adds a field line.
    fn add(&mut self, name: &HeaderName, value: &HeaderValue);

    /// Adds a field line with this value, unless it is invalid (RFC 9110 section 5.5).
    fn add_text(&mut self, name: &HeaderName, value: &str);

    /// Adds a field line of another message. `name` is a token in lower case, and `value` is valid
    /// (RFC 9110 section 5).
    fn add_line(&mut self, name: &[u8], value: &[u8]);
}

impl FieldSink for HeaderMap {
    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.append(name, value.clone());
    }

    fn add_text(&mut self, name: &HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.append(name, value);
        }
    }

    fn add_line(&mut self, name: &[u8], value: &[u8]) {
        let name = HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            self.append(name, value);
        }
    }
}

/// Largest duration in seconds; larger values are replaced by it (RFC 9111 section 1.2.2).
pub(crate) const SECONDS_MAX: u64 = 1 << 31;

/// Returns the members of a comma-separated list of tokens over all lines of a field, trimmed and
/// without empty ones (RFC 9110 section 5.6.1.2).
pub(crate) fn tokens<'a>(
    headers: &'a impl FieldLines,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .lines(name)
        .flat_map(|line| line.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Returns the value of a field with exactly one line; `None` for several lines, because they
/// contradict each other or were added by an intermediary.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = headers.get_all(name).into_iter();
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// Returns the bytes of a field with exactly one line, in any representation; see [`single`].
pub(crate) fn single_line<'a>(headers: &'a impl FieldLines, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.lines(name);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// Parses `delta-seconds` (RFC 9111 section 1.2.2): only digits, saturating at 2^31.
pub(crate) fn delta_seconds(text: &[u8]) -> Option<Duration> {
    let seconds = digits(text)?;
    Some(Duration::from_secs(seconds.min(SECONDS_MAX)))
}

/// Parses a number of one or more digits, saturating at the largest value.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    })
}

/// Iterator over the members of a comma-separated list with quoted strings (RFC 9110 sections
/// 5.6.1.2 and 5.6.4), trimmed and without empty ones.
///
/// An unclosed quote counts as an ordinary character: otherwise it would hide every directive after
/// it, for example `no-store`.
pub(crate) struct Members<'a> {
    rest: &'a [u8],
    /// False after an unclosed quote: repeated searches for its end would take quadratic time.
    quotes: bool,
}

impl<'a> Members<'a> {
    pub(crate) const fn of(line: &'a [u8]) -> Self {
        Self { rest: line, quotes: true }
    }

    fn end_of_member(&mut self) -> usize {
        let mut at = 0;
        while let Some(byte) = self.rest.get(at) {
            match byte {
                b',' => return at,
                b'"' if self.quotes => match closing_quote(self.rest, at + 1) {
                    Some(close) => at = close + 1,
                    None => self.quotes = false,
                },
                _ => at += 1,
            }
        }
        at
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = self.end_of_member();
            let (member, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            let member = member.trim_ascii();
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    }
}

fn closing_quote(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(line: &str) -> Vec<&str> {
        Members::of(line.as_bytes()).map(|member| std::str::from_utf8(member).unwrap()).collect()
    }

    #[test]
    fn commas_in_quotes_do_not_separate_and_empty_members_are_skipped() {
        let rows: [(&str, &[&str]); 7] = [
            ("", &[]),
            (" , ,\t, ", &[]),
            ("a", &["a"]),
            (" a ,, b=1 ,", &["a", "b=1"]),
            (r#"a="1, 2", b"#, &[r#"a="1, 2""#, "b"]),
            (r#"a="1\", 2", b"#, &[r#"a="1\", 2""#, "b"]),
            // The second quote is escaped, so the first is unclosed.
            (r#"a="1\", no-store"#, &[r#"a="1\""#, "no-store"]),
        ];
        for (line, expected) in rows {
            assert_eq!(members(line), expected, "{line}");
        }
    }

    #[test]
    fn seconds_are_digits_and_saturate_at_two_to_the_31() {
        let rows: [(&str, Option<u64>); 11] = [
            ("0", Some(0)),
            ("003600", Some(3600)),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", Some(1 << 31)),
            ("99999999999999999999999999", Some(1 << 31)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1 ", None),
            ("a1", None),
        ];
        for (text, expected) in rows {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(delta_seconds(text.as_bytes()), expected, "{text}");
        }
    }
}

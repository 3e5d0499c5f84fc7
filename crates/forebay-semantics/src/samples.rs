//! Header fields for tests, written as lines.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Parses `Name: value` lines.
pub(crate) fn headers(lines: &[&str]) -> HeaderMap {
    lines
        .iter()
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
        })
        .collect()
}

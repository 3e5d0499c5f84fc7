//! Common and combined log format, as in
//! `127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] "GET /items/1 HTTP/1.1" 200 2326`.
//!
//! The second and third column (identity and user) are always `-`: the cache does not know them.

use std::fmt::Write as _;
use std::io::Write;

use super::{Line, redact, time};

/// Appends the line of a response. `is_combined` adds the columns `Referer` and `User-Agent`.
pub(super) fn write(of: &Line<'_>, is_combined: bool, line: &mut Vec<u8>) {
    let Line { entry, at, redaction, sample: _ } = *of;
    let request = entry.request;
    let target = quoted(&redaction.target(request.target()));
    // A message that was refused before it was parsed has no request line; other servers write it so.
    let asked = match request.protocol {
        "" => "-".to_owned(),
        protocol => format!("{} {target} {protocol}", request.method),
    };
    let client = redaction.address(request.client);
    let client = client.map_or_else(|| "-".to_owned(), |client| client.to_string());
    let time = time::common(at);
    let (status, bytes) = (entry.status, entry.bytes);
    // Writing to a vector cannot fail.
    let _ = write!(line, "{client} - - [{time}] \"{asked}\" {status} {bytes}");
    if is_combined {
        let referer = redact::referer(request.referer().unwrap_or("-"));
        let agent = request.user_agent().unwrap_or("-");
        let _ = write!(line, " \"{}\" \"{}\"", quoted(&referer), quoted(agent));
    }
}

/// Escapes quotes, which would end a quoted column, and control characters, which could end a line.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            control if control.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\x{:02x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_control_characters_are_escaped() {
        assert_eq!(quoted("a\"b\\\n\u{1b}é"), "a\\\"b\\\\\\x0a\\x1bé");
    }
}

//! Host and port of a request: normalised form.

use std::borrow::Cow;

use forebay_semantics::Scheme;
use http::uri::Authority;

/// Returns the normalised authority: lower case, without the default port of the scheme or an empty
/// port. `None` if it is malformed or has user information (RFC 9110 section 4.2.4).
#[must_use]
pub fn normalise_authority(scheme: Scheme, text: &str) -> Option<Cow<'_, str>> {
    // A lower-case host name or IPv4 address needs no parser.
    if !text.is_empty() && text.bytes().all(is_of_host) {
        return Some(Cow::Borrowed(text));
    }
    normalise_others(scheme, text)
}

/// Normalises an authority that has a port or needs the parser. Not inlined: the authorities of most
/// hits have no port.
#[inline(never)]
fn normalise_others(scheme: Scheme, text: &str) -> Option<Cow<'_, str>> {
    // A port is short: from the end, its colon is found soon.
    if let Some(colon) = text.bytes().rposition(|byte| byte == b':')
        && colon > 0
        && text[..colon].bytes().all(is_of_host)
        && is_port(&text[colon + 1..])
    {
        return Some(Cow::Borrowed(without_default_port(scheme, text)));
    }
    if !has_sound_port(text) {
        return None;
    }
    let authority: Authority = text.parse().ok()?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return None;
    }
    Some(Cow::Owned(without_default_port(scheme, text).to_ascii_lowercase()))
}

/// Returns true if the port is absent, empty or a valid number. In an IPv6 address it follows the
/// bracket.
fn has_sound_port(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') => is_port(port),
        _ => true,
    }
}

const fn is_of_host(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_')
}

/// Returns true for an empty port and a valid number.
fn is_port(text: &str) -> bool {
    // The parser accepts a sign.
    text.is_empty() || !text.starts_with('+') && text.parse::<u16>().is_ok()
}

fn without_default_port(scheme: Scheme, text: &str) -> &str {
    // Two constant suffixes compare faster than a variable one.
    let without = match scheme {
        Scheme::Http => text.strip_suffix(":80"),
        Scheme::Https => text.strip_suffix(":443"),
    };
    let text = without.unwrap_or(text);
    text.strip_suffix(':').unwrap_or(text)
}

/// Removes the port. An IPv6 address is in brackets, so a colon after the last bracket starts a
/// port.
pub(crate) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_normalised() {
        let rows = [
            ("shop.example", Some("shop.example")),
            ("Shop.Example:80", Some("shop.example")),
            ("shop.example:8080", Some("shop.example:8080")),
            ("shop.example:", Some("shop.example")),
            ("[::1]:80", Some("[::1]")),
            (":80", None),
            ("a:99999", None),
            ("a:b:c", None),
            ("[::1]:99999", None),
            (":80:80", None),
            ("shop.example:80:80", None),
            ("shop.example:+80", None),
            ("shop.example:80:", None),
            ("shop.example::", None),
            ("user@shop.example", None),
            ("", None),
            ("a b", None),
            ("shop.example/x", None),
        ];
        for (text, expected) in rows {
            assert_eq!(normalise_authority(Scheme::Http, text).as_deref(), expected, "{text}");
        }
        let rows = [
            ("Shop.Example:443", Some("shop.example")),
            ("[::1]:443", Some("[::1]")),
            ("shop.example:80", Some("shop.example:80")),
        ];
        for (text, expected) in rows {
            assert_eq!(normalise_authority(Scheme::Https, text).as_deref(), expected, "{text}");
        }
    }
}

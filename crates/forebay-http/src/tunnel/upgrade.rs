//! Protocol upgrades: the protocols that a request asks for, and the one that the origin accepts
//! (RFC 9110 section 7.8).
//!
//! `Upgrade` is a hop-by-hop field. The client's field is parsed, and a new one is made for the
//! origin, so that nothing else is forwarded in it.

use forebay_semantics::hop;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};

/// Maximum number of protocols in one request.
const PROTOCOLS_MAX: usize = 8;

/// Maximum length of the list in bytes, so that comparisons are cheap.
const LIST_MAX: usize = 256;

/// Protocols that carry HTTP. In a tunnel of them, requests would reach the origin unchecked; the
/// client can use HTTP/1.1 instead.
const HTTP_AGAIN: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// Returns the protocols that a request without a body asks for, in the form for the origin. `None`
/// if it asks for none, or only for protocols that are not tunnelled: it is then an ordinary
/// request.
pub(crate) fn asked(parts: &Parts) -> Option<HeaderValue> {
    let headers = &parts.headers;
    // One lookup: the only cost on the hit path.
    let first = headers.get(UPGRADE)?;
    let may_ask = parts.method == Method::GET && parts.version == Version::HTTP_11;
    // A connection that closes after the response cannot switch.
    let goes_on = has_option(headers, b"upgrade") && !has_option(headers, b"close");
    if !may_ask || !goes_on || first.len() > LIST_MAX {
        return None;
    }
    let offered = list(headers)?;
    let taken = offered.into_iter().filter(|protocol| !is_http(protocol));
    let taken = taken.collect::<Vec<_>>().join(", ");
    HeaderValue::try_from(taken).ok().filter(|value| !value.is_empty())
}

/// Sets the fields of a request that asks for `protocols` and has no body.
pub(crate) fn ask_for(headers: &mut HeaderMap, protocols: HeaderValue) {
    headers.remove(EXPECT);
    headers.remove(CONTENT_LENGTH);
    agree_on(headers, protocols);
}

/// Returns the protocol that a 101 switches to, if it is one of the requested ones.
pub(crate) fn agreed(asked: &HeaderValue, headers: &HeaderMap) -> Option<HeaderValue> {
    let named = list(headers)?;
    let [protocol] = &named[..] else { return None };
    let asked = asked.to_str().ok()?;
    let is_asked = asked.split(", ").any(|one| one.eq_ignore_ascii_case(protocol));
    HeaderValue::try_from(*protocol).ok().filter(|_| is_asked)
}

/// Removes all hop-by-hop fields and sets `Connection` and `Upgrade`.
pub(crate) fn agree_on(headers: &mut HeaderMap, protocols: HeaderValue) {
    hop::strip_hop_by_hop(headers);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocols);
}

/// Returns `true` if `Connection` has the option `wanted`. RFC 9110 section 7.8 requires the option
/// `upgrade` with `Upgrade`.
fn has_option(headers: &HeaderMap, wanted: &[u8]) -> bool {
    let lines = headers.get_all(CONNECTION).into_iter().map(HeaderValue::as_bytes);
    let mut options = lines.flat_map(|line| line.split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(wanted))
}

/// Returns all protocols in the `Upgrade` fields, or `None` if one is invalid.
fn list(headers: &HeaderMap) -> Option<Vec<&str>> {
    let mut protocols = Vec::new();
    for line in headers.get_all(UPGRADE) {
        let members = line.to_str().ok()?.split(',').map(|member| member.trim_matches([' ', '\t']));
        for protocol in members.filter(|member| !member.is_empty()) {
            if !is_protocol(protocol) || protocols.len() == PROTOCOLS_MAX {
                return None;
            }
            protocols.push(protocol);
        }
    }
    let length: usize = protocols.iter().map(|protocol| protocol.len() + 2).sum();
    (length <= LIST_MAX).then_some(protocols)
}

/// Returns `true` for `protocol-name ["/" protocol-version]`, each a token.
fn is_protocol(text: &str) -> bool {
    let (name, version) = text.split_once('/').unwrap_or((text, "0"));
    [name, version].iter().all(|part| !part.is_empty() && part.bytes().all(is_token))
}

/// Returns `true` if the byte is allowed in a token (RFC 9110 section 5.6.2).
const fn is_token(byte: u8) -> bool {
    let is_mark =
        matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
    is_mark || byte.is_ascii_alphanumeric()
}

fn is_http(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default();
    HTTP_AGAIN.iter().any(|again| again.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/chat");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_upgrade_field_is_made_anew_and_never_names_http() {
        let rows = [
            ("websocket", Some("websocket")),
            ("WebSocket ,, foo/2", Some("WebSocket, foo/2")),
            ("h2c", None),
            ("H2C, websocket", Some("websocket")),
            ("HTTP/2.0", None),
            ("TLS/1.2, h2", None),
            ("", None),
            ("a b", None),
            ("/1", None),
            ("a/", None),
            ("\"a\"", None),
            ("1,2,3,4,5,6,7,8", Some("1, 2, 3, 4, 5, 6, 7, 8")),
            ("1,2,3,4,5,6,7,8,9", None),
        ];
        for (value, expected) in rows {
            let parts = parts("GET", &[("connection", "keep-alive, Upgrade"), ("upgrade", value)]);
            let asked = asked(&parts);
            assert_eq!(asked.as_ref().map(|asked| asked.to_str().unwrap()), expected, "{value}");
        }
        let long = "x".repeat(LIST_MAX);
        assert_eq!(asked(&parts("GET", &[("connection", "upgrade"), ("upgrade", &long)])), None);
    }

    #[test]
    fn only_an_http_1_1_get_with_the_connection_option_is_an_upgrade_request() {
        let upgrade = ("upgrade", "websocket");
        let option = ("connection", "upgrade");
        assert!(asked(&parts("GET", &[upgrade, option])).is_some());
        assert_eq!(asked(&parts("GET", &[upgrade])), None);
        assert_eq!(asked(&parts("GET", &[upgrade, ("connection", "keep-alive, upgrades")])), None);
        assert_eq!(asked(&parts("GET", &[upgrade, option, ("connection", "close")])), None);
        assert_eq!(asked(&parts("POST", &[upgrade, option])), None);
        assert_eq!(asked(&parts("HEAD", &[upgrade, option])), None);
        let mut old = parts("GET", &[upgrade, option]);
        old.version = Version::HTTP_10;
        assert_eq!(asked(&old), None);
    }

    #[test]
    fn the_origin_may_accept_one_of_the_requested_protocols() {
        let offered = HeaderValue::from_static("websocket, foo/2");
        let rows = [
            ("WebSocket", true),
            ("foo/2", true),
            ("foo", false),
            ("bar", false),
            ("websocket, foo/2", false),
            ("", false),
        ];
        for (value, expected) in rows {
            let answer = parts("GET", &[("upgrade", value)]).headers;
            assert_eq!(agreed(&offered, &answer).is_some(), expected, "{value}");
        }
        assert_eq!(agreed(&offered, &HeaderMap::new()), None);
    }

    #[test]
    fn other_hop_by_hop_fields_are_not_forwarded_with_an_upgrade() {
        let mut headers = parts(
            "GET",
            &[
                ("connection", "upgrade, x-secret, close"),
                ("connection", "keep-alive"),
                ("x-secret", "1"),
                ("upgrade", "websocket"),
                ("upgrade", "h2c"),
                ("http2-settings", "x"),
                ("content-length", "0"),
                ("expect", "100-continue"),
                ("sec-websocket-key", "k"),
            ],
        )
        .headers;
        ask_for(&mut headers, HeaderValue::from_static("websocket"));
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        left.sort_unstable();
        let expected =
            [("connection", "upgrade"), ("sec-websocket-key", "k"), ("upgrade", "websocket")];
        assert_eq!(left, expected);
    }
}

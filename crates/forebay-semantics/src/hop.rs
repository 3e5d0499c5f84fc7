//! What is for one connection only, and the trace of those passed.

use http::Version;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use smallvec::SmallVec;

use crate::fields::tokens;

/// What this cache calls itself in `Via` and `Cache-Status`.
pub(crate) const PSEUDONYM: &str = "forebay";

/// A request that has been here this often is going in circles: no sensible chain has more tiers.
pub const PASSES_MAX: usize = 8;

/// Fields for one connection (RFC 9110 section 7.6.1), and those with which a proxy itself is
/// authenticated (sections 11.7.1 to 11.7.3): this cache is the end of them, and RFC 9111
/// section 3.1 forbids to store them.
const HOP_BY_HOP: [HeaderName; 11] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields that no Connection option can remove. RFC 9110 section 7.6.1 forbids to name fields
/// there that are for every recipient; who does it all the same wants the next one to frame,
/// route, authorise or cache the message otherwise than we do (CVE-2022-45059).
const END_TO_END: [&str; 38] = [
    "age",
    "authorization",
    "cache-control",
    "cache-group-invalidation",
    "cache-groups",
    "cache-status",
    "cdn-cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expires",
    "forebay-cache-control",
    "forwarded",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "origin",
    "pragma",
    "range",
    "set-cookie",
    "strict-transport-security",
    "surrogate-control",
    "vary",
    "via",
    "www-authenticate",
];

/// How the fields of a family begin that Connection options cannot remove either.
const END_TO_END_PREFIX: &str = "x-forwarded-";

/// Removes what must not travel on: the fields named in `Connection`, except those that are for
/// every recipient, and the known hop-by-hop fields.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // The options live in the map they are going to change; their values are shared, not copied.
    let lines: SmallVec<[HeaderValue; 2]> =
        headers.get_all(CONNECTION).into_iter().cloned().collect();
    for line in &lines {
        let options = line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for option in options.filter_map(|option| HeaderName::from_bytes(option).ok()) {
            if !is_end_to_end(&option) {
                headers.remove(option);
            }
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Appends this cache to `Via` (RFC 9110 section 7.6.3), with the version in which the message
/// was received.
pub fn add_via(headers: &mut HeaderMap, received: Version) {
    let own = match received {
        Version::HTTP_09 => "0.9 forebay",
        Version::HTTP_10 => "1.0 forebay",
        Version::HTTP_2 => "2.0 forebay",
        Version::HTTP_3 => "3.0 forebay",
        _ => "1.1 forebay",
    };
    headers.append(VIA, HeaderValue::from_static(own));
}

/// Whether the request has passed here [`PASSES_MAX`] times already (RFC 9110 section 7.6.3: Via
/// is there to avoid request loops).
#[must_use]
pub fn loops(headers: &HeaderMap) -> bool {
    let received_by = |hop: &&[u8]| {
        let mut words = hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1) == Some(PSEUDONYM.as_bytes())
    };
    tokens(headers, &VIA).filter(received_by).count() >= PASSES_MAX
}

fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    END_TO_END.binary_search(&name).is_ok() || name.starts_with(END_TO_END_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::headers;

    #[test]
    fn hop_by_hop_fields_and_what_connection_names_go() {
        // RFC 9110 section 7.6.1.
        let mut message = headers(&[
            "connection: close, A",
            "connection: b,, not a name ,",
            "a: 1",
            "a: 2",
            "b: 2",
            "c: 3",
            "keep-alive: timeout=5",
            "proxy-connection: x",
            "proxy-authenticate: x",
            "proxy-authorization: x",
            "proxy-authentication-info: x",
            "http2-settings: x",
            "te: trailers",
            "trailer: x",
            "transfer-encoding: chunked",
            "upgrade: h2c",
        ]);
        strip_hop_by_hop(&mut message);
        assert_eq!(message, headers(&["c: 3"]));
    }

    #[test]
    fn connection_cannot_remove_what_is_for_every_recipient() {
        for name in END_TO_END.into_iter().chain(["x-forwarded-for"]) {
            let field = format!("{name}: x");
            let upper = name.to_uppercase();
            let mut message = headers(&[&format!("connection: {upper}"), &field]);
            strip_hop_by_hop(&mut message);
            assert_eq!(message, headers(&[&field]), "{name}");
        }
    }

    #[test]
    fn the_list_can_be_searched_by_halves() {
        assert!(END_TO_END.is_sorted());
    }

    #[test]
    fn via_is_appended_behind_those_before() {
        let mut message = headers(&["via: 1.0 other"]);
        add_via(&mut message, Version::HTTP_11);
        add_via(&mut message, Version::HTTP_2);
        let expected = headers(&["via: 1.0 other", "via: 1.1 forebay", "via: 2.0 forebay"]);
        assert_eq!(message, expected);
    }

    #[test]
    fn a_request_goes_in_circles_when_it_has_been_here_too_often() {
        let mut message = headers(&["via: 1.1 forebayish, 1.1 other (forebay), forebay"]);
        for _ in 1..PASSES_MAX {
            add_via(&mut message, Version::HTTP_11);
        }
        assert!(!loops(&message));
        message.append(VIA, HeaderValue::from_static("1.1 other,  HTTP/1.1\tforebay (x)"));
        assert!(loops(&message));
    }
}

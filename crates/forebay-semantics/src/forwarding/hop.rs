//! Hop-by-hop fields and `Via`.

use http::Version;
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, VIA};
use smallvec::SmallVec;

use crate::fields::{FieldLines, FieldSink, tokens};

/// Name of this cache in `Via` and `Cache-Status`.
pub(crate) const PSEUDONYM: &str = "forebay";

/// Number of `Via` entries of this cache from which a request counts as a loop: no sensible chain has
/// more caches.
pub const PASSES_MAX: usize = 8;

/// Fields by which a recipient frames, routes, authorises or caches a message. Neither may a
/// `Connection` option remove them, nor may they be trailers.
pub(crate) const CONTROL: [&str; 30] = [
    "age",
    "authorization",
    "cache-control",
    "cdn-cache-control",
    "content-encoding",
    "content-length",
    "content-location",
    "content-range",
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
    "pragma",
    "range",
    "set-cookie",
    "surrogate-control",
    "vary",
    "via",
    "www-authenticate",
];

/// Further fields that a `Connection` option cannot remove. RFC 9110 section 7.6.1 forbids naming
/// fields for every recipient there; a client that does it wants the next recipient to interpret
/// the message differently from this cache (CVE-2022-45059).
const END_TO_END: [&str; 9] = [
    "cache-group-invalidation",
    "cache-groups",
    "cache-status",
    "cdn-loop",
    "content-disposition",
    "content-language",
    "content-security-policy",
    "origin",
    "strict-transport-security",
];

/// Prefix of further fields that a `Connection` option cannot remove.
const END_TO_END_PREFIX: &str = "x-forwarded-";

/// Removes fields that must not be forwarded: the known hop-by-hop fields, and those named in
/// `Connection` except fields for every recipient.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // One pass over the names costs less than a lookup of each hop-by-hop field.
    let found: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|name| is_hop_by_hop(name.as_str().as_bytes())).cloned().collect();
    if found.contains(&CONNECTION) {
        strip_options(headers);
    }
    for name in &found {
        headers.remove(name);
    }
}

/// Removes the fields named in `Connection` except fields for every recipient.
fn strip_options(headers: &mut HeaderMap) {
    for option in options(headers).keys() {
        headers.remove(option);
    }
}

/// Returns the names in `Connection` of fields that are present, except fields for every recipient. They
/// are in a map, because a scan of a long list for each field would take quadratic time.
pub(super) fn options(headers: &impl FieldLines) -> HeaderMap<()> {
    tokens(headers, &CONNECTION)
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|option| headers.has(option) && !is_end_to_end(option.as_str()))
        .map(|option| (option, ()))
        .collect()
}

/// Returns `true` for the names, in lower case, of fields for one connection (RFC 9110 section 7.6.1)
/// and for authentication to a proxy (sections 11.7.1 to 11.7.3). This cache consumes them, and RFC
/// 9111 section 3.1 forbids storing them.
#[must_use]
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"http2-settings"
            | b"proxy-authenticate"
            | b"proxy-authorization"
            | b"proxy-authentication-info"
            | b"te"
            | b"trailer"
            | b"transfer-encoding"
            | b"upgrade"
    )
}

/// Appends this cache to `Via` (RFC 9110 section 7.6.3), with the HTTP version of the received
/// message.
pub fn add_via(fields: &mut impl FieldSink, received: Version) {
    let own = match received {
        Version::HTTP_09 => "0.9 forebay",
        Version::HTTP_10 => "1.0 forebay",
        Version::HTTP_2 => "2.0 forebay",
        Version::HTTP_3 => "3.0 forebay",
        _ => "1.1 forebay",
    };
    fields.add(&VIA, &HeaderValue::from_static(own));
}

/// Returns true if `Via` names this cache [`PASSES_MAX`] times already, which means a request loop
/// (RFC 9110 section 7.6.3).
#[must_use]
pub fn loops(headers: &impl FieldLines) -> bool {
    let received_by = |hop: &&[u8]| {
        let mut words = hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1) == Some(PSEUDONYM.as_bytes())
    };
    tokens(headers, &VIA).filter(received_by).count() >= PASSES_MAX
}

/// Returns `true` for a field, named in lower case, that a `Connection` option cannot remove.
#[must_use]
pub fn is_end_to_end(name: &str) -> bool {
    CONTROL.binary_search(&name).is_ok()
        || END_TO_END.binary_search(&name).is_ok()
        || name.starts_with(END_TO_END_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::headers;

    #[test]
    fn hop_by_hop_fields_and_connection_options_are_removed() {
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
    fn connection_cannot_remove_fields_for_every_recipient() {
        for name in CONTROL.into_iter().chain(END_TO_END).chain(["x-forwarded-for"]) {
            let field = format!("{name}: x");
            let upper = name.to_uppercase();
            let mut message = headers(&[&format!("connection: {upper}"), &field]);
            strip_hop_by_hop(&mut message);
            assert_eq!(message, headers(&[&field]), "{name}");
        }
    }

    #[test]
    fn the_list_is_sorted_for_binary_search() {
        assert!(CONTROL.is_sorted() && END_TO_END.is_sorted());
    }

    #[test]
    fn via_is_appended_after_existing_entries() {
        let mut message = headers(&["via: 1.0 other"]);
        add_via(&mut message, Version::HTTP_11);
        add_via(&mut message, Version::HTTP_2);
        let expected = headers(&["via: 1.0 other", "via: 1.1 forebay", "via: 2.0 forebay"]);
        assert_eq!(message, expected);
    }

    #[test]
    fn a_request_with_too_many_via_entries_is_a_loop() {
        let mut message = headers(&["via: 1.1 forebayish, 1.1 other (forebay), forebay"]);
        for _ in 1..PASSES_MAX {
            add_via(&mut message, Version::HTTP_11);
        }
        assert!(!loops(&message));
        message.append(VIA, HeaderValue::from_static("1.1 other,  HTTP/1.1\tforebay (x)"));
        assert!(loops(&message));
    }
}

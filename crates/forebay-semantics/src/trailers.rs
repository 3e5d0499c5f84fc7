//! Fields behind the body.

use http::header::HeaderMap;

use crate::hop::strip_hop_by_hop;

/// What may not stand behind the body (RFC 9110 section 6.5.1): what frames, routes, asks,
/// authenticates, or says how the message before it is to be read or stored. It comes too late,
/// and who reads it all the same reads another message than we did.
const NEVER_TRAILERS: [&str; 37] = [
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
    "expect",
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
    "max-forwards",
    "pragma",
    "proxy-authorization",
    "range",
    "retry-after",
    "set-cookie",
    "set-cookie2",
    "surrogate-control",
    "te",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];

/// Removes from trailers what may not be among them, and what is for one connection only. The
/// rest may travel on as trailers; RFC 9110 section 6.5.1 forbids to merge them into the head.
pub fn strip_trailers(trailers: &mut HeaderMap) {
    strip_hop_by_hop(trailers);
    for name in NEVER_TRAILERS {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_says_how_to_read_the_message_cannot_come_behind_it() {
        // RFC 9110 section 6.5.1.
        let value = HeaderValue::from_static("x");
        let connection = ["connection", "keep-alive", "trailer", "transfer-encoding", "upgrade"];
        let mut trailers: HeaderMap = NEVER_TRAILERS
            .into_iter()
            .chain(connection)
            .chain(["server-timing", "content-digest", "grpc-status"])
            .map(|name| (HeaderName::from_static(name), value.clone()))
            .collect();
        strip_trailers(&mut trailers);
        let mut left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-digest", "grpc-status", "server-timing"]);
    }
}

//! Trailer fields (RFC 9110 section 6.5).

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, TE, TRAILER};

use crate::fields::tokens;
use crate::forwarding::hop::{CONTROL, strip_hop_by_hop};

/// Fields that must not be trailers beside [`CONTROL`] (RFC 9110 section 6.5.1). A recipient that
/// merged one into the header would interpret the message differently.
const NEVER_TRAILERS: [&str; 7] = [
    "expect",
    "max-forwards",
    "proxy-authorization",
    "retry-after",
    "set-cookie2",
    "te",
    "warning",
];

/// Removes forbidden and hop-by-hop fields from trailers. The rest may be forwarded as trailers;
/// RFC 9110 section 6.5.1 forbids merging them into the header.
pub fn strip_trailers(trailers: &mut HeaderMap) {
    strip_hop_by_hop(trailers);
    for name in CONTROL.into_iter().chain(NEVER_TRAILERS) {
        trailers.remove(name);
    }
}

/// Returns true if the sender of a request accepts trailers (RFC 9110 section 10.1.4).
#[must_use]
pub fn are_accepted(request: &HeaderMap) -> bool {
    tokens(request, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"))
}

/// Sets `TE: trailers` and `Connection: te` in a request to the origin, so that it may send
/// trailers. RFC 9110 section 10.1.4: `TE` is hop-by-hop, and `Connection` has to name it.
pub fn take(request: &mut HeaderMap) {
    request.insert(TE, HeaderValue::from_static("trailers"));
    request.insert(CONNECTION, HeaderValue::from_static("te"));
}

/// Returns the `Trailer` field of a response (RFC 9110 section 6.6.2) without forbidden names;
/// `None` if none is left.
#[must_use]
pub fn announced(answer: &HeaderMap) -> Option<HeaderValue> {
    let named = tokens(answer, &TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok());
    let mut named: HeaderMap = named.map(|name| (name, HeaderValue::from_static(""))).collect();
    for line in answer.get_all(CONNECTION) {
        named.append(CONNECTION, line.clone());
    }
    strip_trailers(&mut named);
    let names: Vec<&str> = named.keys().map(HeaderName::as_str).collect();
    if names.is_empty() { None } else { HeaderValue::try_from(names.join(", ")).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_trailers_are_removed() {
        // RFC 9110 section 6.5.1.
        let value = HeaderValue::from_static("x");
        let connection = ["connection", "keep-alive", "trailer", "transfer-encoding", "upgrade"];
        let mut trailers: HeaderMap = CONTROL
            .into_iter()
            .chain(NEVER_TRAILERS)
            .chain(connection)
            .chain(["server-timing", "content-digest", "grpc-status"])
            .map(|name| (HeaderName::from_static(name), value.clone()))
            .collect();
        strip_trailers(&mut trailers);
        let mut left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-digest", "grpc-status", "server-timing"]);
    }

    #[test]
    fn forbidden_names_are_removed_from_the_trailer_field() {
        // RFC 9110 section 6.6.2.
        let rows: [(&[&'static str], &'static str, Option<&str>); 6] = [
            (&[], "x-a", None),
            (&["X-Sum, Digest"], "", Some("x-sum, digest")),
            (&["Cache-Control", "x-a,,x-a"], "", Some("x-a")),
            (&["set-cookie, trailer, not a name"], "", None),
            (&["x-a, x-b"], "X-A", Some("x-b")),
            (&[""], "", None),
        ];
        for (lines, connection, expected) in rows {
            let lines = lines.iter().map(|line| (TRAILER, *line));
            let answer: HeaderMap = lines
                .chain([(CONNECTION, connection)])
                .map(|(name, value)| (name, HeaderValue::from_static(value)))
                .collect();
            let announced = announced(&answer);
            let text = announced.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(text, expected, "{answer:?}");
        }
    }

    #[test]
    fn trailers_require_te_trailers() {
        // RFC 9110 section 10.1.4.
        let of = |line: &'static str| {
            are_accepted(&[(TE, HeaderValue::from_static(line))].into_iter().collect())
        };
        assert!(of("trailers") && of("gzip;q=0.5, Trailers"));
        assert!(!of("gzip") && !of("trailer") && !of("") && !are_accepted(&HeaderMap::new()));
        let mut request = HeaderMap::new();
        take(&mut request);
        assert!(are_accepted(&request) && request[CONNECTION] == "te");
    }
}

//! Forwarding fields (`X-Forwarded-*`, `Forwarded`) for the origin, set by the cache and never taken
//! from the client.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields with which a proxy describes the client or the original request. Origins trust them and
/// they are not part of the key, so values from a client would poison the cache.
const CLAIMS: [&str; 24] = [
    "cf-connecting-ip",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "forwarded-proto",
    "front-end-https",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-rewrite-url",
    "x-url-scheme",
];

/// Common prefix of `x-forwarded-for`, `-host`, `-prefix` and their like.
const CLAIM_PREFIX: &str = "x-forwarded";

/// Replaces all forwarding fields of an untrusted peer with known values: its address, the scheme
/// and the requested host.
///
/// In names `_` equals `-`, because origins behind CGI-like interfaces cannot distinguish them. A
/// scheme that is not a valid field value is omitted.
pub fn replace_forwarding(
    headers: &mut HeaderMap,
    peer: IpAddr,
    scheme: &str,
    host: Option<&HeaderValue>,
) {
    let claims: Vec<HeaderName> = headers.keys().filter(|name| is_claim(name)).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
    let peer = HeaderValue::try_from(peer.to_canonical().to_string());
    let scheme = HeaderValue::from_str(scheme);
    for (name, value) in [(FORWARDED_FOR, peer.ok()), (FORWARDED_PROTO, scheme.ok())] {
        value.and_then(|value| headers.insert(name, value));
    }
    if let Some(host) = host {
        headers.insert(FORWARDED_HOST, host.clone());
    }
}

fn is_claim(name: &HeaderName) -> bool {
    let name = name.as_str();
    if name.contains('_') {
        return is_claim_named(&name.replace('_', "-"));
    }
    is_claim_named(name)
}

fn is_claim_named(name: &str) -> bool {
    name.starts_with(CLAIM_PREFIX) || CLAIMS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                (name, HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn replaced(lines: &[(&str, &str)], host: Option<&'static str>) -> HeaderMap {
        let mut headers = headers(lines);
        let host = host.map(HeaderValue::from_static);
        let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        replace_forwarding(&mut headers, peer, "http", host.as_ref());
        headers
    }

    #[test]
    fn forwarding_fields_of_a_client_are_removed() {
        let more = ["x-forwarded-prefix", "x-forwarded", "x_forwarded_for", "X_Original-URL"];
        for name in CLAIMS.into_iter().chain(more) {
            let expected =
                headers(&[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "http")]);
            assert_eq!(replaced(&[(name, "evil"), (name, "more")], None), expected, "{name}");
        }
    }

    #[test]
    fn known_values_replace_them_and_other_fields_stay() {
        let asked = [("x-forwarded-host", "evil"), ("x-forwarded-for", "evil"), ("accept", "a")];
        let expected = headers(&[
            ("accept", "a"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "shop.example"),
        ]);
        assert_eq!(replaced(&asked, Some("shop.example")), expected);
    }

    #[test]
    fn an_ipv4_mapped_address_is_written_as_ipv4() {
        let mut headers = HeaderMap::new();
        let mapped = Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped();
        replace_forwarding(&mut headers, IpAddr::V6(mapped), "https", None);
        assert_eq!(headers[FORWARDED_FOR], "192.0.2.7");
        assert_eq!(headers[FORWARDED_PROTO], "https");
        replace_forwarding(&mut headers, IpAddr::V6(Ipv6Addr::LOCALHOST), "bad\nscheme", None);
        assert_eq!(headers[FORWARDED_FOR], "::1");
        assert!(!headers.contains_key(FORWARDED_PROTO));
    }

    #[test]
    fn the_list_is_sorted_for_binary_search() {
        assert!(CLAIMS.is_sorted());
    }
}

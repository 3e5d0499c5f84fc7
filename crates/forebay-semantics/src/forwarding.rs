//! Forwarding fields (`X-Forwarded-*`, `Forwarded`) and client certificates for the origin, set by the
//! cache and never copied from a request; hop-by-hop fields, trailers, and the client behind proxies.
//!
//! This folder uses `fields`.

pub mod cdn_loop;
pub mod client_address;
pub mod hop;
pub mod networks;
pub(crate) mod scheme;
pub mod trace_context;
pub mod trailers;

use std::net::IpAddr;

use http::header::{HeaderName, HeaderValue};

use crate::fields::{CopyFields, FieldSink};
use crate::forwarding::networks::PeerAddress;
use crate::forwarding::scheme::Scheme;

const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields with which a proxy describes the client or the original request. Origins trust them and
/// they are not part of the key, so values from a client would poison the cache.
const CLAIMS: [&str; 26] = [
    "cf-connecting-ip",
    "client-cert",
    "client-cert-chain",
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
const CLAIM_PREFIX: &[u8] = b"x-forwarded";

/// Size of most addresses as text, with a separator.
const ADDRESS_USUAL: usize = 18;

/// Sender of a request, as described to the origin.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Address of the client.
    pub client: PeerAddress,
    /// Addresses of the proxies that the request passed, the one nearest to the client first. The
    /// last one is the peer of the connection, unless that is the client or has no IP address.
    pub proxies: &'a [IpAddr],
    /// Scheme that the client used.
    pub scheme: Scheme,
    /// Verified certificate of the client in the form of RFC 9440, sent as `Client-Cert`.
    pub certificate: Option<&'a HeaderValue>,
    /// Field in which trusted proxies name the client, if it is not one of the usual ones. It is
    /// removed from the request.
    pub claim: Option<&'a HeaderName>,
    /// Adds `Forwarded` (RFC 7239) if `true`.
    pub is_forwarded_added: bool,
}

impl Sender<'_> {
    /// Returns the value of `X-Forwarded-For`: the client and the proxies after it. `None` if no IP
    /// address is known.
    #[must_use]
    pub fn forwarded_for(&self) -> Option<String> {
        let mut text = String::with_capacity(ADDRESS_USUAL * (1 + self.proxies.len()));
        for address in self.client.ip().iter().chain(self.proxies) {
            if !text.is_empty() {
                text.push_str(", ");
            }
            push_address(&mut text, *address);
        }
        (!text.is_empty()).then_some(text)
    }

    /// Returns the value of `Forwarded` (RFC 7239 section 4). The first element describes the
    /// client's request; a sender without an IP address is `unknown` (section 6.2).
    fn forwarded(&self, host: Option<&str>) -> String {
        let mut value = format!(
            "for={};proto={}",
            self.client.ip().map_or_else(|| "unknown".to_owned(), node),
            self.scheme
        );
        if let Some(host) = host {
            // A normalised authority has no quote and no backslash.
            value.push_str(&format!(";host=\"{host}\""));
        }
        for proxy in self.proxies {
            value.push_str(&format!(", for={}", node(*proxy)));
        }
        value
    }

    /// Writes the forwarding fields that are known.
    fn write_known(&self, host: Option<&str>, fields: &mut impl FieldSink) {
        if let Some(addresses) = self.forwarded_for() {
            fields.add_text(&FORWARDED_FOR, &addresses);
        }
        fields.add(&FORWARDED_PROTO, &HeaderValue::from_static(self.scheme.as_str()));
        if let Some(host) = host {
            fields.add_text(&FORWARDED_HOST, host);
        }
        if self.is_forwarded_added {
            fields.add_text(&FORWARDED, &self.forwarded(host));
        }
        if let Some(certificate) = self.certificate {
            fields.add(&CLIENT_CERT, certificate);
        }
    }
}

/// Appends an address. The formatter of the standard library takes ten times as long for IPv4.
fn push_address(text: &mut String, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (place, octet) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    text.push('.');
                }
                text.push_str(itoa::Buffer::new().format(octet));
            }
        }
        IpAddr::V6(address) => text.push_str(&address.to_string()),
    }
}

/// RFC 7239 section 6: IPv6 is in brackets, and therefore in quotes.
fn node(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    }
}

/// Writes the header fields of a client's request for the origin. It omits the hop-by-hop fields, see
/// [`strip_hop_by_hop`](hop::strip_hop_by_hop), those for whose name, in lower case, `is_kept` returns
/// `false`, and fields with which a proxy describes the client or the request. Then it adds the
/// forwarding fields whose values are known: addresses, the scheme, the requested host and the verified
/// certificate.
///
/// A proxy's field is recognised also with `_` in place of `-`, because origins behind CGI-like
/// interfaces cannot distinguish them.
pub fn write_forwarded(
    headers: &impl CopyFields,
    is_kept: impl Fn(&[u8]) -> bool,
    sender: &Sender<'_>,
    host: Option<&str>,
    fields: &mut impl FieldSink,
) {
    let options = hop::options(headers);
    let is_option = |name: &[u8]| {
        let is_among = |name| options.contains_key(&name);
        !options.is_empty() && HeaderName::from_bytes(name).is_ok_and(is_among)
    };
    let is_claimed = |name: &[u8]| sender.claim.is_some_and(|it| it.as_str().as_bytes() == name);
    let is_forwarded = |name: &[u8]| {
        let is_removed = hop::is_hop_by_hop(name) || is_option(name) || is_claim(name);
        !is_removed && !is_claimed(name) && is_kept(name)
    };
    headers.copy_to(is_forwarded, fields);
    sender.write_known(host, fields);
}

fn is_claim(name: &[u8]) -> bool {
    // The first letters of all claims: most fields need no search.
    if !matches!(name, [b'c' | b'f' | b't' | b'x', ..]) {
        return false;
    }
    if name.contains(&b'_') {
        let dashed: Vec<u8> =
            name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
        return is_claim_named(&dashed);
    }
    is_claim_named(name)
}

fn is_claim_named(name: &[u8]) -> bool {
    name.starts_with(CLAIM_PREFIX)
        || CLAIMS.binary_search_by(|claim| claim.as_bytes().cmp(name)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
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

    /// Sender that connects directly from 192.0.2.7.
    fn direct() -> Sender<'static> {
        Sender {
            client: PeerAddress::from(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
            proxies: &[],
            scheme: Scheme::Http,
            certificate: None,
            claim: None,
            is_forwarded_added: false,
        }
    }

    fn forwarded(
        lines: &[(&str, &str)],
        sender: &Sender<'_>,
        host: Option<&'static str>,
    ) -> HeaderMap {
        let mut forwarded = HeaderMap::new();
        write_forwarded(&headers(lines), |name| name != b"dropped", sender, host, &mut forwarded);
        forwarded
    }

    #[test]
    fn forwarding_fields_of_a_client_are_removed() {
        let more = ["x-forwarded-prefix", "x-forwarded", "x_forwarded_for", "X_Original-URL"];
        for name in CLAIMS.into_iter().chain(more) {
            let expected =
                headers(&[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "http")]);
            let asked = [(name, "evil"), (name, "more")];
            assert_eq!(forwarded(&asked, &direct(), None), expected, "{name}");
        }
    }

    #[test]
    fn known_values_replace_them_and_other_fields_stay() {
        let asked = [
            ("x-forwarded-host", "evil"),
            ("x-forwarded-for", "evil"),
            ("accept", "a"),
            ("accept", "b"),
            ("dropped", "c"),
            ("connection", "close, option, cookie"),
            ("option", "d"),
            ("cookie", "e"),
        ];
        let expected = headers(&[
            ("accept", "a"),
            ("accept", "b"),
            ("cookie", "e"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "shop.example"),
        ]);
        assert_eq!(forwarded(&asked, &direct(), Some("shop.example")), expected);
    }

    #[test]
    fn proxies_scheme_and_certificate_are_stated() {
        let asked = [("x-client", "evil"), ("client-cert", "evil"), ("a", "b")];
        let proxies = [Ipv6Addr::LOCALHOST.into(), IpAddr::from([10, 0, 0, 1])];
        let certificate = HeaderValue::from_static(":AAAA:");
        let claim = HeaderName::from_static("x-client");
        let sender = Sender {
            proxies: &proxies,
            scheme: Scheme::Https,
            certificate: Some(&certificate),
            claim: Some(&claim),
            is_forwarded_added: true,
            ..direct()
        };
        let expected = headers(&[
            ("a", "b"),
            ("x-forwarded-for", "192.0.2.7, ::1, 10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
            (
                "forwarded",
                "for=192.0.2.7;proto=https;host=\"shop.example\", for=\"[::1]\", for=10.0.0.1",
            ),
            ("client-cert", ":AAAA:"),
        ]);
        assert_eq!(forwarded(&asked, &sender, Some("shop.example")), expected);
    }

    #[test]
    fn a_sender_on_a_unix_socket_has_no_address() {
        let sender = Sender { client: PeerAddress::Unix, is_forwarded_added: true, ..direct() };
        let expected =
            headers(&[("x-forwarded-proto", "http"), ("forwarded", "for=unknown;proto=http")]);
        assert_eq!(forwarded(&[("x-forwarded-for", "evil")], &sender, None), expected);
    }

    #[test]
    fn the_list_is_sorted_for_binary_search() {
        assert!(CLAIMS.is_sorted());
    }

    #[test]
    fn addresses_are_written_as_the_standard_library_writes_them() {
        for text in ["0.0.0.0", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7"] {
            let address: IpAddr = text.parse().unwrap();
            let sender = Sender { client: PeerAddress::from(address), ..direct() };
            assert_eq!(sender.forwarded_for(), Some(address.to_string()));
        }
    }
}

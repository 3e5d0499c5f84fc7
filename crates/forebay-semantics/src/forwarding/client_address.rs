//! Address and scheme of a client behind trusted proxies.
//!
//! A trusted proxy describes the sender of each request in a header field, to whose right end it
//! adds. The walk starts at that end and passes over trusted proxies; everything to the left of the
//! first other address was written by the client, and is ignored.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::forwarding::networks::{Networks, PeerAddress};
use crate::forwarding::scheme::Scheme;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

/// Maximum number of elements that the walk reads; a request passes far fewer proxies.
const ELEMENTS_MAX: usize = 32;

/// Field in which trusted proxies name the client.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum AddressField {
    /// `X-Forwarded-For`: a list of addresses.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// Another field, such as `X-Real-IP`, with exactly one address.
    Single(HeaderName),
}

impl AddressField {
    /// Parses the name of a field. `None` if it is not a field name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some(if name == X_FORWARDED_FOR {
            Self::XForwardedFor
        } else if name == FORWARDED {
            Self::Forwarded
        } else {
            Self::Single(name)
        })
    }

    /// Returns the lower-case name of the field in which proxies name the client.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Single(name) => name.as_str(),
        }
    }
}

/// Proxies that may name the client, and the field in which they do.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProxyTrust {
    /// Addresses of the trusted proxies.
    pub proxies: Networks,
    /// Field that names the client.
    pub field: AddressField,
}

/// Client of a request, as named by trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClient {
    /// Address of the client: of the addresses in the field [`ProxyTrust::field`], the last that is
    /// not a trusted proxy, or the first if all are trusted proxies. The address of the peer if the
    /// field is missing or unusable.
    pub address: PeerAddress,
    /// Addresses of the proxies that the request passed, the one nearest to the client first. The
    /// last one is the peer of the connection, unless that is the client or has no IP address.
    pub proxies: Vec<IpAddr>,
    /// Scheme that the client used, as stated in `X-Forwarded-Proto`, or in `Forwarded` if that
    /// names the client; `None` if no valid one is stated.
    pub scheme: Option<Scheme>,
}

impl ProxyTrust {
    /// Returns the client that the peer names, or `None` if the peer is not a trusted proxy.
    #[must_use]
    pub fn client(&self, peer: PeerAddress, headers: &HeaderMap) -> Option<NamedClient> {
        if self.proxies.is_empty() || !self.proxies.contains(peer) {
            return None;
        }
        Some(match &self.field {
            AddressField::XForwardedFor => {
                let mut walk = Walk::new(peer, &self.proxies);
                let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
                let elements = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
                let elements = elements.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty());
                for element in elements.take(ELEMENTS_MAX) {
                    if !walk.step(parse_address(element)) {
                        break;
                    }
                }
                walk.end(stated_scheme(headers))
            }
            AddressField::Forwarded => self.by_forwarded(peer, headers),
            AddressField::Single(name) => {
                let mut walk = Walk::new(peer, &self.proxies);
                let mut lines = headers.get_all(name).iter();
                if let (Some(line), None) = (lines.next(), lines.next()) {
                    walk.step(parse_address(line.as_bytes().trim_ascii()));
                }
                walk.end(stated_scheme(headers))
            }
        })
    }

    fn by_forwarded(&self, peer: PeerAddress, headers: &HeaderMap) -> NamedClient {
        let mut walk = Walk::new(peer, &self.proxies);
        let mut scheme = None;
        let lines = headers.get_all(FORWARDED).iter().rev();
        let elements = lines.flat_map(|line| from_the_right(line.as_bytes(), b','));
        let elements = elements.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty());
        for element in elements.take(ELEMENTS_MAX) {
            let address = parameter(element, b"for").and_then(parse_address);
            if address.is_some() {
                // The element and its scheme were written by the proxy to its right.
                scheme = parameter(element, b"proto").and_then(parse_scheme);
            }
            if !walk.step(address) {
                break;
            }
        }
        walk.end(scheme)
    }
}

/// Progress of a walk from the right.
struct Walk<'a> {
    trusted: &'a Networks,
    client: PeerAddress,
    /// Addresses that were passed over, from right to left.
    passed: Vec<IpAddr>,
}

impl<'a> Walk<'a> {
    const fn new(peer: PeerAddress, trusted: &'a Networks) -> Self {
        Self { trusted, client: peer, passed: Vec::new() }
    }

    /// Takes the next address to the left. Returns `false` if the walk has ended.
    fn step(&mut self, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return false };
        self.passed.extend(self.client.ip());
        self.client = PeerAddress::Ip(address);
        self.trusted.contains(self.client)
    }

    fn end(self, scheme: Option<Scheme>) -> NamedClient {
        let mut proxies = self.passed;
        proxies.reverse();
        NamedClient { address: self.client, proxies, scheme }
    }
}

/// Returns the scheme in `X-Forwarded-Proto`: the last element, which the peer wrote.
fn stated_scheme(headers: &HeaderMap) -> Option<Scheme> {
    let last: &HeaderValue = headers.get_all(X_FORWARDED_PROTO).iter().next_back()?;
    parse_scheme(last.as_bytes().rsplit(|byte| *byte == b',').next()?.trim_ascii())
}

fn parse_scheme(text: &[u8]) -> Option<Scheme> {
    Scheme::parse(std::str::from_utf8(text).ok()?)
}

/// Splits a list from the right, outside of quoted strings. From the left, a client could join its
/// own element with the next one by an open quote.
fn from_the_right(list: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest?;
        let mut quoted = false;
        let at = list.iter().rposition(|byte| {
            quoted ^= *byte == b'"';
            *byte == separator && !quoted
        });
        rest = at.map(|at| &list[..at]);
        Some(at.map_or(list, |at| &list[at + 1..]))
    })
}

/// Returns the value of a parameter of a `Forwarded` element (RFC 7239 section 4), without quotes.
/// `None` if it is absent or repeated.
fn parameter<'a>(element: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut values = from_the_right(element, b';').filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (own, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        own.eq_ignore_ascii_case(name).then_some(value)
    });
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    Some(value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value))
}

/// Parses an address with or without a port; IPv6 with or without brackets.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        return Some(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?).to_canonical());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = text.split_once(':')?;
    is_port(port).then(|| address.parse::<std::net::Ipv4Addr>().ok())?.map(IpAddr::V4)
}

fn is_port(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests;

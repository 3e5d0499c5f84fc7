//! Connection and client of a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use forebay_semantics::client_address::{AddressField, ProxyTrust};
use forebay_semantics::forwarding::Sender;
use forebay_semantics::{PeerAddress, Scheme};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// Facts about a client connection, which are equal for all its requests.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Source that a trusted proxy named by the PROXY protocol, or else the socket's peer.
    pub peer: PeerAddress,
    /// Scheme of the connection: https with TLS, or if a PROXY header states that the client used
    /// TLS.
    pub scheme: Scheme,
    /// Verified client certificate as a value of `Client-Cert` (RFC 9440 section 2.2); `None` if
    /// the client sent none.
    pub certificate: Option<HeaderValue>,
    /// Handling of the requests: responses, or redirects to https.
    pub role: Role,
    /// Ids of the sites that the listener serves; requests for others get 421. `None` means all.
    pub sites: Option<Arc<[Box<str>]>>,
}

/// Handling of the requests of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Answers requests from the cache or the origin.
    #[default]
    Serve,
    /// Redirects requests that belong to a site to https on this port, with status 308.
    Redirect(u16),
}

impl ConnectionInfo {
    /// Describes a connection without TLS, whose requests may be for all sites.
    #[must_use]
    pub const fn cleartext(peer: PeerAddress) -> Self {
        Self { peer, scheme: Scheme::Http, certificate: None, role: Role::Serve, sites: None }
    }
}

impl From<IpAddr> for ConnectionInfo {
    fn from(peer: IpAddr) -> Self {
        Self::cleartext(peer.into())
    }
}

impl From<SocketAddr> for ConnectionInfo {
    fn from(peer: SocketAddr) -> Self {
        Self::from(peer.ip())
    }
}

/// Client of one request, as far as the connection and trusted proxies tell. Small, because every
/// hit makes one.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Source of the connection: the address in its PROXY header, or else the socket's peer.
    pub socket: PeerAddress,
    /// Client: `socket`, unless that is a trusted proxy which named another address.
    pub client: PeerAddress,
    /// Scheme that the client used: as a trusted proxy states it, or else that of the connection.
    pub scheme: Scheme,
    origin: AddressOrigin,
    /// Further facts; `None` for most connections.
    details: Option<Box<Details>>,
}

/// Facts about a client of a trusted proxy, or one with a certificate.
#[derive(Clone, Debug, Default)]
struct Details {
    certificate: Option<HeaderValue>,
    /// Addresses between the client and forebay, in the order of the request.
    proxies: Vec<IpAddr>,
    /// Field that names the client, if it has another name than the usual ones.
    claim: Option<HeaderName>,
}

/// Source of a client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOrigin {
    /// The connection; its peer is not a trusted proxy.
    Connection,
    /// A field of a trusted proxy.
    Proxy,
    /// The connection of a trusted proxy that named no usable address.
    ProxyItself,
}

impl Peer {
    /// Determines the client of a request: from its fields if the connection's peer is a trusted
    /// proxy, or else from the connection.
    #[must_use]
    pub fn of(connection: &ConnectionInfo, trust: &ProxyTrust, headers: &HeaderMap) -> Self {
        let mut peer = Self::of_connection(connection);
        if connection.certificate.is_some() || !trust.proxies.is_empty() {
            peer.add_details(connection, trust, headers);
        }
        peer
    }

    /// Describes the client of a connection without a certificate, whose peer is not a trusted
    /// proxy.
    pub(crate) fn of_connection(connection: &ConnectionInfo) -> Self {
        Self {
            socket: connection.peer,
            client: connection.peer,
            scheme: connection.scheme,
            origin: AddressOrigin::Connection,
            details: None,
        }
    }

    #[cold]
    fn add_details(
        &mut self,
        connection: &ConnectionInfo,
        trust: &ProxyTrust,
        headers: &HeaderMap,
    ) {
        let mut details = Details {
            certificate: connection.certificate.clone(),
            claim: match &trust.field {
                AddressField::Single(name) => Some(name.clone()),
                _ => None,
            },
            ..Details::default()
        };
        if let Some(named) = trust.client(self.socket, headers) {
            self.origin = match named.address == self.socket && named.proxies.is_empty() {
                true => AddressOrigin::ProxyItself,
                false => AddressOrigin::Proxy,
            };
            self.client = named.address;
            self.scheme = named.scheme.unwrap_or(self.scheme);
            details.proxies = named.proxies;
        }
        self.details = Some(Box::new(details));
    }

    /// Returns the verified certificate of the connection's client as a value of `Client-Cert`.
    #[must_use]
    pub fn certificate(&self) -> Option<&HeaderValue> {
        self.details.as_ref()?.certificate.as_ref()
    }

    /// Returns the source of the client address.
    #[must_use]
    pub const fn origin(&self) -> AddressOrigin {
        self.origin
    }

    /// Returns the facts for the fields that describe the client to the origin, such as
    /// `X-Forwarded-For`; with `Forwarded` (RFC 7239) if `is_forwarded_added` is `true`.
    #[must_use]
    pub fn sender(&self, is_forwarded_added: bool) -> Sender<'_> {
        let details = self.details.as_deref();
        Sender {
            client: self.client,
            proxies: details.map_or(&[], |details| &details.proxies),
            scheme: self.scheme,
            certificate: self.certificate(),
            claim: details.and_then(|details| details.claim.as_ref()),
            is_forwarded_added,
        }
    }
}

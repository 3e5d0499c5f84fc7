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
    /// Scheme of the listener.
    pub scheme: Scheme,
    /// Verified client certificate as a value of `Client-Cert` (RFC 9440 section 2.2).
    pub certificate: Option<HeaderValue>,
    /// Handling of requests.
    pub role: Role,
    /// Ids of the sites that the listener serves; `None` means all.
    pub sites: Option<Arc<[Box<str>]>>,
}

/// Handling of the requests of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// Answers them from the cache or the origin.
    #[default]
    Serve,
    /// Redirects those for hosts of a site to https on this port.
    Redirect(u16),
}

impl ConnectionInfo {
    /// Describes a connection without TLS.
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

/// Client of one request, as far as the connection and trusted proxies tell.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Other end of the connection.
    pub socket: PeerAddress,
    /// Client: `socket`, unless that is a trusted proxy which named another address.
    pub client: PeerAddress,
    /// Scheme that the client used.
    pub scheme: Scheme,
    /// Verified client certificate as a value of `Client-Cert`.
    pub certificate: Option<HeaderValue>,
    /// Addresses between the client and forebay, in the order of the request.
    proxies: Vec<IpAddr>,
    /// Field that names the client, if it has another name than the usual ones.
    claim: Option<HeaderName>,
    origin: AddressOrigin,
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
    /// Determines the client of a request.
    #[must_use]
    pub fn of(connection: &ConnectionInfo, trust: &ProxyTrust, headers: &HeaderMap) -> Self {
        let mut peer = Self::of_connection(connection);
        if !trust.proxies.is_empty() {
            peer.apply(trust, headers);
        }
        peer
    }

    /// Describes the client of a connection whose peer is not a trusted proxy.
    pub(crate) fn of_connection(connection: &ConnectionInfo) -> Self {
        Self {
            socket: connection.peer,
            client: connection.peer,
            scheme: connection.scheme,
            certificate: connection.certificate.clone(),
            proxies: Vec::new(),
            claim: None,
            origin: AddressOrigin::Connection,
        }
    }

    #[cold]
    fn apply(&mut self, trust: &ProxyTrust, headers: &HeaderMap) {
        if let AddressField::Single(name) = &trust.field {
            self.claim = Some(name.clone());
        }
        let Some(named) = trust.client(self.socket, headers) else { return };
        self.origin = match named.address == self.socket && named.proxies.is_empty() {
            true => AddressOrigin::ProxyItself,
            false => AddressOrigin::Proxy,
        };
        self.client = named.address;
        self.proxies = named.proxies;
        self.scheme = named.scheme.unwrap_or(self.scheme);
    }

    /// Returns the source of the client address.
    #[must_use]
    pub const fn origin(&self) -> AddressOrigin {
        self.origin
    }

    /// Describes the client to the origin.
    #[must_use]
    pub const fn sender(&self, is_forwarded_added: bool) -> Sender<'_> {
        Sender {
            client: self.client,
            proxies: self.proxies.as_slice(),
            scheme: self.scheme,
            certificate: self.certificate.as_ref(),
            claim: self.claim.as_ref(),
            is_forwarded_added,
        }
    }
}

//! Start of a client connection: PROXY protocol, limit per client address, and TLS.

use std::sync::Arc;
use std::time::Instant;

use forebay_semantics::{PeerAddress, Scheme};
use forebay_tls::server::TlsServer;
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};

use super::address_limits::AddressLimits;
use super::peer::{ConnectionInfo, Role};
use super::proxy_protocol;
use crate::connection::Connections;

/// Rules for the connections of one listener.
#[derive(Clone, Debug)]
pub struct AcceptRules {
    /// Name of the listener in metrics.
    pub name: Box<str>,
    /// Each connection begins with a PROXY protocol header if `true`.
    pub proxy_protocol: bool,
    /// Limit on the connections of one client address.
    pub limits: Arc<AddressLimits>,
    /// TLS server; `None` for cleartext.
    pub tls: Option<TlsServer>,
    /// Handling of requests.
    pub role: Role,
    /// Ids of the sites that are served; `None` means all.
    pub sites: Option<Arc<[Box<str>]>>,
}

impl AcceptRules {
    /// Returns the rules of a cleartext listener for all sites.
    #[must_use]
    pub fn cleartext(name: impl Into<Box<str>>, limits: Arc<AddressLimits>) -> Self {
        let (role, sites) = (Role::Serve, None);
        Self { name: name.into(), proxy_protocol: false, limits, tls: None, role, sites }
    }
}

/// Stream of any kind. One type for TLS and Unix sockets keeps hyper's code in the binary once.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Connections {
    /// Serves a connection that has just been accepted. It is closed without a response if its
    /// PROXY header is missing or comes from an untrusted peer, if its client has too many
    /// connections, or if the TLS handshake fails.
    pub async fn accept<S>(self, mut stream: S, peer: PeerAddress, rules: Arc<AcceptRules>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut info = ConnectionInfo {
            role: rules.role,
            sites: rules.sites.clone(),
            ..ConnectionInfo::cleartext(peer)
        };
        if rules.proxy_protocol && !self.apply_proxy_header(&mut stream, &mut info).await {
            return;
        }
        // A trusted proxy has the connections of all its clients.
        let is_limited = rules.limits.is_on() && !self.service.trusts(info.peer);
        let counted = is_limited.then(|| rules.limits.admit(info.peer));
        if matches!(counted, Some(None)) {
            self.counters.count_address_rejected();
            tracing::debug!(peer = %info.peer, "connection closed: too many of this address");
            return;
        }
        match &rules.tls {
            None => {
                let open = self.service.metrics().open_connection(&rules.name, "http/1.1");
                self.serve(stream, info).await;
                drop(open);
            }
            // Boxed, so that a cleartext connection reserves no space for a handshake.
            Some(tls) => Box::pin(self.accept_tls(stream, info, &rules.name, tls)).await,
        }
        drop(counted);
    }

    async fn accept_tls<S>(
        self,
        stream: S,
        mut info: ConnectionInfo,
        listener: &str,
        tls: &TlsServer,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let begun = Instant::now();
        let shaken = tls.accept(stream).await;
        let metrics = self.service.metrics();
        let shaken = match shaken {
            Ok(shaken) => shaken,
            Err(error) => {
                metrics.count_handshake(listener, error.label(), begun.elapsed());
                tracing::debug!(peer = %info.peer, %error, "TLS handshake failed");
                return;
            }
        };
        let result = if shaken.is_resumed { "resumed" } else { "full" };
        metrics.count_handshake(listener, result, begun.elapsed());
        info.scheme = Scheme::Https;
        let certificate = shaken.client_certificate.map(HeaderValue::try_from);
        info.certificate = certificate.and_then(Result::ok);
        let open = metrics.open_connection(listener, "http/1.1");
        let stream: Box<dyn Stream> = Box::new(shaken.stream);
        self.serve(stream, info).await;
        drop(open);
    }

    /// Reads the PROXY header into `info`. Returns `false` if the connection must be closed.
    async fn apply_proxy_header<S>(&self, stream: &mut S, info: &mut ConnectionInfo) -> bool
    where
        S: AsyncRead + Unpin,
    {
        let peer = info.peer;
        if !self.service.trusts(peer) {
            self.counters.count_proxy_header_rejected();
            tracing::debug!(%peer, "connection closed: the peer is not one of trusted_proxies");
            return false;
        }
        match proxy_protocol::read(stream).await {
            Ok(facts) => {
                info.peer = facts.source.unwrap_or(peer);
                info.scheme = facts.scheme.unwrap_or(info.scheme);
                true
            }
            Err(error) => {
                self.counters.count_proxy_header_rejected();
                tracing::debug!(%peer, %error, "connection closed");
                false
            }
        }
    }
}

//! Start of a client connection: PROXY protocol, and the limit per client address.

use std::sync::Arc;

use forebay_semantics::PeerAddress;
use tokio::io::{AsyncRead, AsyncWrite};

use super::address_limits::AddressLimits;
use super::peer::ConnectionInfo;
use super::proxy_protocol;
use crate::connection::Connections;

/// Rules for the start of a connection.
#[derive(Clone, Debug)]
pub struct AcceptRules {
    /// Each connection begins with a PROXY protocol header if `true`.
    pub proxy_protocol: bool,
    /// Limit on the connections of one client address.
    pub limits: Arc<AddressLimits>,
}

impl Connections {
    /// Serves a connection that has just been accepted. It is closed without a response if its
    /// PROXY header is missing or comes from an untrusted peer, or if its client has too many
    /// connections.
    pub async fn accept<S>(self, mut stream: S, peer: PeerAddress, rules: AcceptRules)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut info = ConnectionInfo::cleartext(peer);
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
        self.serve(stream, info).await;
        drop(counted);
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

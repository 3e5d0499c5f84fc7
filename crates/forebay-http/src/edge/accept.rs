//! Start of a client connection: PROXY protocol, limit per client address, and TLS.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use forebay_semantics::{PeerAddress, Scheme};
use forebay_tls::server::TlsServer;
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::sleep;

use super::address_limits::AddressLimits;
use super::proxy_protocol;
use super::sniff::{Sniffed, sniff};
use crate::client::peer::{ConnectionInfo, Role};
use crate::edge::connection::{Connections, stop_after_arrivals, stop_requested};

/// Protocols in metrics.
const HTTP_1: &str = "http/1.1";
const HTTP_2: &str = "h2";

/// Rules for the connections of one listener.
#[derive(Clone, Debug)]
pub struct AcceptRules {
    /// Name of the listener in metrics.
    pub name: Box<str>,
    /// Each connection begins with a PROXY protocol header if `true`.
    pub proxy_protocol: bool,
    /// Limit on the connections of one client address.
    pub limits: Arc<AddressLimits>,
    /// Serves HTTP/2 on cleartext connections that begin with its preface if `true`; has no effect
    /// with TLS, where ALPN decides.
    pub is_h2c: bool,
    /// TLS server; `None` for cleartext.
    pub tls: Option<TlsServer>,
    /// Handling of the requests: responses, or redirects to https.
    pub role: Role,
    /// Ids of the sites that are served; requests for others get 421. `None` means all.
    pub sites: Option<Arc<[Box<str>]>>,
}

impl AcceptRules {
    /// Returns the rules of a cleartext listener for all sites, with HTTP/1 and HTTP/2, without
    /// PROXY headers.
    #[must_use]
    pub fn cleartext(name: impl Into<Box<str>>, limits: Arc<AddressLimits>) -> Self {
        let (role, sites) = (Role::Serve, None);
        let is_h2c = true;
        Self { name: name.into(), proxy_protocol: false, limits, is_h2c, tls: None, role, sites }
    }
}

/// Stream of any kind. One type for TLS and Unix sockets keeps hyper's code in the binary once.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Time for which a PROXY header or a handshake that is under way at the stop may continue.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Waits until the server stops, and then for [`STOP_GRACE`].
async fn stop_and_grace(stop: &mut watch::Receiver<bool>) {
    stop_requested(stop).await;
    sleep(STOP_GRACE).await;
}

impl Connections {
    /// Serves a connection that has just been accepted, until it ends. It is closed without a
    /// response in these cases: its PROXY header is required, and missing, invalid, late or from an
    /// untrusted peer; its client address has too many connections (trusted proxies excepted); the
    /// TLS handshake fails; it sends no first byte in time.
    pub async fn accept<S>(self, mut stream: S, peer: PeerAddress, rules: Arc<AcceptRules>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut info = ConnectionInfo {
            role: rules.role,
            sites: rules.sites.clone(),
            ..ConnectionInfo::cleartext(peer)
        };
        if rules.proxy_protocol {
            let mut stop = self.stop.clone();
            let is_known = tokio::select! {
                biased;
                is_known = self.apply_proxy_header(&mut stream, &mut info) => is_known,
                () = stop_and_grace(&mut stop) => false,
            };
            if !is_known {
                return;
            }
        }
        // A trusted proxy has the connections of all its clients.
        let is_limited = rules.limits.is_on() && !self.service.trusts(info.peer);
        let counted = is_limited.then(|| rules.limits.admit(info.peer));
        if matches!(counted, Some(None)) {
            self.counters.count_address_rejected();
            tracing::debug!(
                peer = %info.peer,
                "client connection closed: its address has reached connections_per_address_max"
            );
            return;
        }
        // Each protocol in a box of its own, so that a connection reserves no space for another one.
        match &rules.tls {
            None => {
                let name = &rules.name;
                if rules.is_h2c {
                    Box::pin(self.accept_cleartext(stream, info, name)).await;
                } else {
                    let _open = self.service.metrics().open_connection(name, HTTP_1);
                    Box::pin(self.serve(stream, info)).await;
                }
            }
            Some(tls) => Box::pin(self.accept_tls(stream, info, &rules.name, tls)).await,
        }
        drop(counted);
    }

    /// Serves HTTP/1, or HTTP/2 if the connection begins with its preface.
    async fn accept_cleartext<S>(mut self, mut stream: S, info: ConnectionInfo, listener: &str)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let sniffed = tokio::select! {
            biased;
            sniffed = sniff(&mut stream, &self.timeouts, &self.counters) => sniffed,
            // A connection that has sent no request has none to wait for.
            () = stop_after_arrivals(&mut self.stop) => Sniffed::Ended,
        };
        match sniffed {
            Sniffed::Http1(received) => {
                let _open = self.service.metrics().open_connection(listener, HTTP_1);
                self.serve_http1(stream, received.freeze(), info).await;
            }
            Sniffed::Http2(received) => {
                let _open = self.service.metrics().open_connection(listener, HTTP_2);
                let stream: Box<dyn Stream> = Box::new(stream);
                Box::pin(self.serve_http2(stream, received, info)).await;
            }
            Sniffed::Ended => {}
        }
    }

    async fn accept_tls<S>(
        mut self,
        stream: S,
        mut info: ConnectionInfo,
        listener: &str,
        tls: &TlsServer,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let begun = Instant::now();
        let shaken = tokio::select! {
            biased;
            // Its space is free after the handshake.
            shaken = Box::pin(tls.accept(stream)) => shaken,
            // There is no request to wait for yet.
            () = stop_and_grace(&mut self.stop) => return,
        };
        let metrics = self.service.metrics();
        let shaken = match shaken {
            Ok(shaken) => shaken,
            Err(error) => {
                metrics.count_handshake(listener, error.label(), begun.elapsed());
                tracing::debug!(
                    peer = %info.peer,
                    %error,
                    "client connection closed: the TLS handshake failed"
                );
                return;
            }
        };
        let result = if shaken.is_resumed { "resumed" } else { "full" };
        metrics.count_handshake(listener, result, begun.elapsed());
        info.scheme = Scheme::Https;
        let certificate = shaken.client_certificate.map(HeaderValue::try_from);
        info.certificate = certificate.and_then(Result::ok);
        let _open = metrics.open_connection(listener, if shaken.is_h2 { HTTP_2 } else { HTTP_1 });
        let stream: Box<dyn Stream> = Box::new(shaken.stream);
        match shaken.is_h2 {
            true => Box::pin(self.serve_http2(stream, BytesMut::new(), info)).await,
            false => Box::pin(self.serve(stream, info)).await,
        }
    }

    /// Reads the PROXY header into `info`. Returns `false` if the connection must be closed.
    async fn apply_proxy_header<S>(&self, stream: &mut S, info: &mut ConnectionInfo) -> bool
    where
        S: AsyncRead + Unpin,
    {
        let peer = info.peer;
        if !self.service.trusts(peer) {
            self.counters.count_proxy_header_rejected();
            tracing::debug!(
                %peer,
                "client connection closed: the listener requires a PROXY header, and the peer is \
                 not one of trusted_proxies"
            );
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
                tracing::debug!(%peer, %error, "client connection closed: no valid PROXY header");
                false
            }
        }
    }
}

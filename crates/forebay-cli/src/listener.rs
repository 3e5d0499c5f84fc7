//! Sockets of listeners, and the streams that they accept.
//!
//! This folder also has sockets, TLS servers and the threads that serve connections. It uses `config`,
//! `service_manager` and `stop`.

pub(crate) mod inherited;
pub(crate) mod opener;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod workers;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_http::edge::accept::AcceptRules;
use forebay_semantics::PeerAddress;

use crate::config::ListenAddress;
use crate::config::resolved::ResolvedListener;
use crate::listener::inherited::InheritedSockets;
use crate::listener::socket::{listen, listen_unix};

/// Listening socket with the rules for its connections.
#[derive(Clone)]
pub(crate) struct Listener {
    /// Options that it was opened with.
    pub(crate) spec: ResolvedListener,
    pub(crate) socket: Arc<ListeningSocket>,
    pub(crate) rules: Arc<AcceptRules>,
}

/// Socket that accepts connections.
pub(crate) enum ListeningSocket {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, ListenAddress),
}

/// Accepted stream that is not registered with a runtime.
pub(crate) enum AcceptedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl ListeningSocket {
    /// Returns the sockets of an address: one that is bound, or those of a name.
    ///
    /// # Errors
    /// If it cannot be bound, or nothing of this name was inherited.
    pub(crate) fn open(
        address: &ListenAddress,
        inherited: &InheritedSockets,
    ) -> io::Result<Vec<Self>> {
        let socket = match address {
            ListenAddress::Tcp(tcp) => listen(*tcp).map(Self::Tcp),
            ListenAddress::Unix(path) => {
                listen_unix(path).map(|socket| Self::Unix(socket, address.clone()))
            }
            ListenAddress::Inherited(name) => return inherited.named(name),
        };
        Ok(vec![socket?])
    }

    /// Bound address, with the port that the system chose.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok().map(ListenAddress::Tcp),
            Self::Unix(_, address) => Some(address.clone()),
        }
    }
}

impl ListeningSocket {
    /// Accepts a connection.
    pub(crate) async fn accept(&self) -> io::Result<(AcceptedStream, PeerAddress)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Accepts a connection.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(AcceptedStream, PeerAddress)>> {
        match self {
            Self::Tcp(socket) => socket.poll_accept(cx).map(|accepted| {
                let (stream, peer) = accepted?;
                stream.set_nodelay(true)?;
                Ok((AcceptedStream::Tcp(stream.into_std()?), peer.ip().into()))
            }),
            Self::Unix(socket, _) => socket.poll_accept(cx).map(|accepted| {
                let (stream, _) = accepted?;
                Ok((AcceptedStream::Unix(stream.into_std()?), PeerAddress::Unix))
            }),
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if let Self::Unix(_, ListenAddress::Unix(path)) = self {
            // Nothing listens there any more; a file that stays is replaced by the next start.
            let _ = std::fs::remove_file(path);
        }
    }
}

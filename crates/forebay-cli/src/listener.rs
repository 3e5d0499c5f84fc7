//! Sockets of listeners, and the streams that they accept.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_http::edge::accept::AcceptRules;
use forebay_semantics::PeerAddress;

use crate::config::ListenAddress;
use crate::socket::{listen, listen_unix};

/// Listening socket with the rules for its connections.
pub(crate) struct Listener {
    pub(crate) socket: ListeningSocket,
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
    /// Binds the address of a listener.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change, if it cannot be bound.
    pub(crate) fn bind(address: &ListenAddress) -> anyhow::Result<Self> {
        let socket = match address {
            ListenAddress::Tcp(tcp) => listen(*tcp).map(Self::Tcp),
            ListenAddress::Unix(path) => {
                listen_unix(path).map(|socket| Self::Unix(socket, address.clone()))
            }
        };
        socket.map_err(|error| {
            anyhow::anyhow!(
                "cannot listen on {address}: {error}; choose another address with --listen, or \
                 `listen` or [[listener]] in the file"
            )
        })
    }

    /// Bound address, with the port that the system chose.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok().map(ListenAddress::Tcp),
            Self::Unix(_, address) => Some(address.clone()),
        }
    }
}

impl Listener {
    /// Bound address.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        self.socket.address()
    }

    /// Accepts a connection.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(AcceptedStream, PeerAddress)>> {
        match &self.socket {
            ListeningSocket::Tcp(socket) => socket.poll_accept(cx).map(|accepted| {
                let (stream, peer) = accepted?;
                stream.set_nodelay(true)?;
                Ok((AcceptedStream::Tcp(stream.into_std()?), peer.ip().into()))
            }),
            ListeningSocket::Unix(socket, _) => socket.poll_accept(cx).map(|accepted| {
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

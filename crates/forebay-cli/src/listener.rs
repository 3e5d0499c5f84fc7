//! Sockets of listeners, and the streams that they accept.

use std::io;
use std::task::{Context, Poll};

use forebay_http::edge::accept::AcceptRules;
use forebay_semantics::PeerAddress;

use crate::config::ListenAddress;
use crate::config::resolved::ResolvedListener;
use crate::socket::{listen, listen_unix};

/// Listening socket with the rules for its connections.
pub(crate) struct Listener {
    socket: ListeningSocket,
    pub(crate) rules: AcceptRules,
}

enum ListeningSocket {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, ListenAddress),
}

/// Accepted stream that is not registered with a runtime.
pub(crate) enum AcceptedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Listener {
    /// Binds the address of a listener.
    ///
    /// # Errors
    /// A message with the address, the cause and the option to change, if it cannot be bound.
    pub(crate) fn bind(listener: &ResolvedListener, rules: AcceptRules) -> anyhow::Result<Self> {
        let address = &listener.address;
        let socket = match address {
            ListenAddress::Tcp(tcp) => listen(*tcp).map(ListeningSocket::Tcp),
            ListenAddress::Unix(path) => {
                listen_unix(path).map(|socket| ListeningSocket::Unix(socket, address.clone()))
            }
        };
        let socket = socket.map_err(|error| {
            anyhow::anyhow!(
                "cannot listen on {address}: {error}; choose another address with --listen, or \
                 `listen` or [[listener]] in the file"
            )
        })?;
        Ok(Self { socket, rules })
    }

    /// Bound address, with the port that the system chose.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        match &self.socket {
            ListeningSocket::Tcp(socket) => socket.local_addr().ok().map(ListenAddress::Tcp),
            ListeningSocket::Unix(_, address) => Some(address.clone()),
        }
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

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListeningSocket::Unix(_, ListenAddress::Unix(path)) = &self.socket {
            // Nothing listens there any more; a file that stays is replaced by the next start.
            let _ = std::fs::remove_file(path);
        }
    }
}

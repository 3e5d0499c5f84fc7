//! Connection without TLS, and the address for further connections to the same server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A TCP or Unix connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Resolved address of one server.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Peer {
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(address) => tcp(TcpStream::connect(address).await?),
            Self::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
        }
    }
}

impl Stream {
    /// Connects to the server at this address; `None` if it uses TLS.
    pub(crate) async fn connect(address: &ConnectionAddr) -> Option<io::Result<(Self, Peer)>> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let connected = TcpStream::connect((host.as_str(), *port)).await;
                Some(connected.and_then(|stream| {
                    let peer = Peer::Tcp(stream.peer_addr()?);
                    Ok((tcp(stream)?, peer))
                }))
            }
            ConnectionAddr::Unix(path) => {
                let connected = UnixStream::connect(path).await;
                Some(connected.map(|stream| (Self::Unix(stream), Peer::Unix(path.clone()))))
            }
            _ => None,
        }
    }
}

fn tcp(stream: TcpStream) -> io::Result<Stream> {
    // Sends small commands without delay.
    stream.set_nodelay(true)?;
    Ok(Stream::Tcp(stream))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        free_space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(task, free_space),
            Self::Unix(stream) => Pin::new(stream).poll_read(task, free_space),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(task, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(task, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(task),
            Self::Unix(stream) => Pin::new(stream).poll_flush(task),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(task),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(task),
        }
    }
}

//! Listening sockets.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// Length of the listen queue. A crowd connects at once; a client whose connection does not fit
/// retries after a second.
const BACKLOG: i32 = 4_096;

/// Listens on an address; port 0 takes a free port.
///
/// # Errors
/// If the socket cannot be created, bound or listened on.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // Without this, [::] would also take IPv4, and 0.0.0.0 could not be bound beside it.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

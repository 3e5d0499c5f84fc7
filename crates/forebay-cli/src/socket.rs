//! Listening sockets.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// Connections that the system keeps for us while we are busy. A stampede comes at once, and who
/// finds no room here is tried again by the client's system only after a second.
const BACKLOG: i32 = 4_096;

/// Listens on an address; port 0 takes a free one.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // An address is what was written, so that 0.0.0.0 and [::] can stand side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

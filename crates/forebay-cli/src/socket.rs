//! Listening sockets.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// Connections that the system keeps for us while we are busy. A stampede comes at once, and who
/// finds no room here is tried again by the client's system only after a second.
const BACKLOG: i32 = 4_096;

/// Bytes of an answer that the system takes before they can be sent. Left to itself it takes
/// megabytes, and tells of room only when a third of them is gone: a client that reads slowly and
/// steadily would look for minutes like one that does not read. Less than this would cost fast
/// clients a wake-up for every few packets.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 128 << 10;

/// Listens on an address; port 0 takes a free one.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // An address is what was written, so that 0.0.0.0 and [::] can stand side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Those that are accepted have it too. A system that has no such bound is no reason not to serve.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(UNSENT_MAX);
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn an_accepted_connection_takes_little_that_it_cannot_send() -> io::Result<()> {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let _client = TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept().await?;
        assert_eq!(SockRef::from(&accepted).tcp_notsent_lowat()?, UNSENT_MAX);
        Ok(())
    }
}

//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

/// Length of the listen queue. A crowd connects at once; a client whose connection does not fit
/// retries after a second.
const BACKLOG: i32 = 4_096;

/// Maximum number of connections that wait in the listen queue of one socket.
pub(crate) const BACKLOG_MAX: usize = BACKLOG as usize;

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

/// Mode of the file of a Unix socket: the user and the group of the process may connect.
const UNIX_MODE: u32 = 0o660;

/// Listens on a Unix socket. A socket file on which nothing listens is replaced.
///
/// # Errors
/// If something listens there already, or the socket cannot be created, bound or listened on.
pub(crate) fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let address = SockAddr::unix(path)?;
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse || !is_stale(path) {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        socket.bind(&address)?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(UNIX_MODE))?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Returns `true` if the file is a socket that refuses connections: its process has ended.
fn is_stale(path: &Path) -> bool {
    let refused = UnixStream::connect(path).err().map(|error| error.kind());
    refused == Some(io::ErrorKind::ConnectionRefused)
}

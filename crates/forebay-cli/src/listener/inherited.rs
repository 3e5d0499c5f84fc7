//! Listening sockets that the service manager passed to this process (socket activation).

use std::fmt::Write as _;
use std::io;

use listenfd::ListenFd;

use crate::config::ListenAddress;
use crate::listener::ListeningSocket;

/// Variable with the names of the sockets, separated by colons (sd_listen_fds_with_names(3)).
const NAMES: &str = "LISTEN_FDNAMES";

/// Sockets that were passed, by name. They stay open until the process exits.
#[derive(Default)]
pub(crate) struct InheritedSockets(Vec<(String, InheritedSocket)>);

enum InheritedSocket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl InheritedSockets {
    /// Takes the sockets over. Descriptors that are no listening stream sockets are left alone.
    pub(crate) fn take() -> Self {
        let names = std::env::var(NAMES).unwrap_or_default();
        let mut names = names.split(':');
        let mut passed = ListenFd::from_env();
        let sockets = (0..passed.len()).filter_map(|number| {
            let name = names.next().unwrap_or_default().to_owned();
            let tcp = passed.take_tcp_listener(number).ok().flatten().map(InheritedSocket::Tcp);
            let mut unix = || passed.take_unix_listener(number).ok().flatten();
            Some((name, tcp.or_else(|| unix().map(InheritedSocket::Unix))?))
        });
        Self(sockets.collect())
    }

    /// Returns all sockets of a name, registered with the runtime.
    ///
    /// # Errors
    /// One sentence that lists the names that were passed, if it is none of them.
    pub(crate) fn named(&self, name: &str) -> io::Result<Vec<ListeningSocket>> {
        let named = self.0.iter().filter(|(own, _)| own == name);
        let sockets = named.map(|(_, socket)| socket.listen(name));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        if sockets.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, self.missing(name)));
        }
        Ok(sockets)
    }

    fn missing(&self, name: &str) -> String {
        let mut text = format!("the service manager passed no socket named \"{name}\"");
        for (number, (own, _)) in self.0.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}\"{own}\"", if number == 0 { "; it passed " } else { ", " });
        }
        if self.0.is_empty() {
            text.push_str(" and no other one");
        }
        text
    }

    /// Names that no listener uses: connections to these sockets would wait forever.
    pub(crate) fn unused<'a>(&'a self, used: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| !used.contains(name))
    }
}

impl InheritedSocket {
    fn listen(&self, name: &str) -> io::Result<ListeningSocket> {
        match self {
            Self::Tcp(socket) => {
                let socket = socket.try_clone()?;
                socket.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(socket).map(ListeningSocket::Tcp)
            }
            Self::Unix(socket) => {
                let socket = socket.try_clone()?;
                socket.set_nonblocking(true)?;
                let address = ListenAddress::Inherited(name.to_owned());
                let socket = tokio::net::UnixListener::from_std(socket)?;
                Ok(ListeningSocket::Unix(socket, address))
            }
        }
    }
}

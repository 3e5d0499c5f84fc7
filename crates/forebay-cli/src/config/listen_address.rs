//! Address of a listening socket: IP address and port, path of a Unix socket, or name of an inherited
//! socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Address of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// TCP socket.
    Tcp(SocketAddr),
    /// Unix socket at an absolute path.
    Unix(PathBuf),
    /// Sockets of this name, passed by the service manager.
    Inherited(String),
}

/// Maximum length of the path of a Unix socket on Linux, without the byte that ends it.
const UNIX_PATH_MAX: usize = 107;

/// Maximum length of the name of an inherited socket, as in systemd.
const NAME_MAX: usize = 255;

impl ListenAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// One sentence with the text and a valid example.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!(
                    "\"{text}\" must have an absolute path, such as \"unix:/run/forebay/http.sock\""
                ));
            }
            if path.len() > UNIX_PATH_MAX {
                return Err(format!("\"{text}\" has a path of more than {UNIX_PATH_MAX} bytes"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(name) = text.strip_prefix("fd:") {
            // systemd.socket(5): neither control characters nor a colon.
            let is_name = !name.is_empty() && name.len() <= NAME_MAX;
            if !is_name || name.chars().any(|c| c.is_control() || c == ':') {
                return Err(format!("\"{text}\" must have a name, such as \"fd:https\""));
            }
            return Ok(Self::Inherited(name.to_owned()));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!("\"{text}\" is not an address; write an IP address and a port, such as \"0.0.0.0:8080\", or \"unix:\" and a path")
        })
    }

    /// Returns the TCP address, if it is one.
    pub(crate) fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) | Self::Inherited(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Inherited(name) => write!(f, "fd:{name}"),
        }
    }
}

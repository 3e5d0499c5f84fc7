//! What can be wrong with Redis, by what comes of it.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What servers say of a script that does what its user may not.
const SCRIPT_DENIED: &str = "can't run this command";

/// Why Redis did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No endpoint answers; nothing was sent.
    #[error("no endpoint of Redis answers")]
    Unavailable,
    /// It took longer than it may.
    #[error("no answer in time")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    ConnectionLost(String),
    /// It takes no writes: a replica, or one that is full or cannot save. Reading goes on.
    #[error("it takes no writes: {0}")]
    WritesRefused(String),
    /// We may not: a wrong password, or a user without the right.
    #[error("it refuses: {0}")]
    Denied(String),
    /// Something else stands under a name of ours, and is left alone.
    #[error("another program has written into the namespace")]
    ForeignData,
    /// More of this than anybody would want at once.
    #[error("too much at once")]
    Busy,
    /// It has dropped leases for want of room, so loads that should be one are several.
    #[error(
        "it drops leases for want of room: give it more memory, or the eviction policy \
         volatile-ttl"
    )]
    EvictsLeases,
    /// It cannot now: it loads, or a part of the cluster is missing.
    #[error("it cannot: {0}")]
    Unable(String),
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let says = error.to_string();
        match error.kind() {
            _ if error.is_timeout() => Self::TimedOut,
            ErrorKind::Io | ErrorKind::Parse => Self::ConnectionLost(says),
            ErrorKind::AuthenticationFailed => Self::Denied(says),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::WritesRefused(says),
            ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Denied(says),
            _ => match error.code() {
                Some("OOM" | "MISCONF" | "NOREPLICAS") => Self::WritesRefused(says),
                Some("WRONGTYPE") => Self::ForeignData,
                Some("NOAUTH" | "WRONGPASS") => Self::Denied(says),
                // What a script does is refused without a code of its own.
                _ if says.contains(SCRIPT_DENIED) => Self::Denied(says),
                _ => Self::Unable(says),
            },
        }
    }
}

impl Error {
    /// Whether a server has answered, and not as wished: nothing was done, and nothing is wrong
    /// with the connection.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::WritesRefused(_) | Self::Denied(_))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn error(kind: io::ErrorKind) -> Error {
        Error::from(RedisError::from(io::Error::from(kind)))
    }

    #[test]
    fn an_error_is_told_by_what_comes_of_it() {
        assert_eq!(error(io::ErrorKind::TimedOut), Error::TimedOut);
        assert!(matches!(error(io::ErrorKind::ConnectionReset), Error::ConnectionLost(_)));
        let login = RedisError::from((ErrorKind::AuthenticationFailed, "no"));
        assert!(matches!(Error::from(login), Error::Denied(_)));
        let code = |code: &str| redis::make_extension_error(code.to_owned(), None);
        assert!(matches!(Error::from(code("NOAUTH")), Error::Denied(_)));
        assert!(matches!(Error::from(code("MISCONF")), Error::WritesRefused(_)));
        assert!(matches!(Error::from(code("OOM")), Error::WritesRefused(_)));
        assert!(matches!(Error::from(code("UNKNOWN")), Error::Unable(_)));
    }
}

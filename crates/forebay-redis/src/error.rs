//! Errors of Redis operations, by their consequence.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Part of the server's message when a script runs a command that its user may not run.
const SCRIPT_DENIED: &str = "can't run this command";

/// Reason why a Redis operation failed. Invalid settings are a
/// [`SettingsError`](crate::SettingsError) instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No configured Redis server answers; nothing was sent.
    #[error("no configured Redis server answers; nothing was sent")]
    Unavailable,
    /// The server did not reply within the read timeout or write timeout.
    #[error("Redis sent no reply within the timeout (`read_timeout` or `write_timeout`)")]
    TimedOut,
    /// The connection to the server broke, for this cause.
    #[error("the connection to Redis was lost: {0}")]
    ConnectionLost(String),
    /// The server refuses writes, for this cause: it is a replica, full, or cannot save. Reads
    /// continue.
    #[error("Redis refuses writes: {0}")]
    WritesRefused(String),
    /// The server denies access, for this cause: a wrong password, or a missing right.
    #[error("Redis denies access: {0}")]
    Denied(String),
    /// Data of another program is stored under a name of this cache. It is left unchanged.
    #[error(
        "data of another program is stored in Redis under a name of forebay: remove it, or set \
         another `namespace`"
    )]
    ForeignData,
    /// A lease request reached a limit: 256 leases of one key, 65,536 awaited leases, or three
    /// attempts that each found an unusable entry. This instance loads without a lease.
    #[error(
        "a lease was not granted: the limit of concurrent leases, of awaited leases or of attempts \
         is reached"
    )]
    Busy,
    /// The server evicted a lease, so several instances may load the same key. Leases are suspended
    /// for 10 seconds.
    #[error("Redis evicted leases: give Redis more memory, or the eviction policy allkeys-lru")]
    EvictsLeases,
    /// The server replied with another error, given here: it is loading its data, a part of the
    /// cluster is missing, or the error is unknown.
    #[error("Redis replied with an error that may be temporary: {0}")]
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
                // A command refused inside a script has no error code of its own.
                _ if says.contains(SCRIPT_DENIED) => Self::Denied(says),
                _ => Self::Unable(says),
            },
        }
    }
}

impl Error {
    /// Returns whether the server refused the operation. Nothing was done then, and the connection
    /// is healthy.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::WritesRefused(_) | Self::Denied(_))
    }
}

/// Returns the error for a reply of another type than the command has.
pub(crate) fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "Redis sent a reply of an unexpected type").into()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn error(kind: io::ErrorKind) -> Error {
        Error::from(RedisError::from(io::Error::from(kind)))
    }

    #[test]
    fn error_is_classified_by_its_consequence() {
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

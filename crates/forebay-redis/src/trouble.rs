//! What can be wrong with Redis, by what comes of it.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why Redis did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// No endpoint answers; nothing was sent.
    #[error("no endpoint of Redis answers")]
    Absent,
    /// It took longer than it may.
    #[error("no answer in time")]
    TimedOut,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// It is a replica, or another server that takes no writes.
    #[error("it takes no writes: {0}")]
    ReadOnly(String),
    /// We may not: a wrong password, or a user without the right.
    #[error("it refuses: {0}")]
    Denied(String),
    /// It cannot now: it loads, is out of memory, or a part of the cluster is missing.
    #[error("it cannot: {0}")]
    Unable(String),
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        let says = error.to_string();
        match error.kind() {
            _ if error.is_timeout() => Self::TimedOut,
            ErrorKind::Io | ErrorKind::Parse => Self::Broken(says),
            ErrorKind::AuthenticationFailed => Self::Denied(says),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::ReadOnly(says),
            ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Denied(says),
            _ => match error.code() {
                Some("NOAUTH" | "WRONGPASS") => Self::Denied(says),
                _ => Self::Unable(says),
            },
        }
    }
}

impl Trouble {
    /// Whether a server has answered, even if not as wished.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Denied(_))
    }

    /// Whether it is certain that nothing was done.
    pub(crate) const fn is_without_effect(&self) -> bool {
        matches!(self, Self::Absent | Self::ReadOnly(_) | Self::Denied(_))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn trouble(kind: io::ErrorKind) -> Trouble {
        Trouble::from(RedisError::from(io::Error::from(kind)))
    }

    #[test]
    fn an_error_is_told_by_what_comes_of_it() {
        assert_eq!(trouble(io::ErrorKind::TimedOut), Trouble::TimedOut);
        assert!(matches!(trouble(io::ErrorKind::ConnectionReset), Trouble::Broken(_)));
        let login = RedisError::from((ErrorKind::AuthenticationFailed, "no"));
        assert!(matches!(Trouble::from(login), Trouble::Denied(_)));
        let code = |code: &str| redis::make_extension_error(code.to_owned(), None);
        assert!(matches!(Trouble::from(code("NOAUTH")), Trouble::Denied(_)));
        assert!(matches!(Trouble::from(code("MISCONF")), Trouble::Unable(_)));
        assert!(matches!(Trouble::from(code("OOM")), Trouble::Unable(_)));
    }
}

//! Errors of calls and of the builder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{LoadError, TierError};

/// Error of a loader, unchanged and shared by all calls that waited for the load.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Reason why a call returns no value. It is `Clone` because all calls that waited for one load
/// return the same error.
///
/// Messages name no key unless [`keys_in_errors`](crate::Builder::keys_in_errors) is set: keys may
/// be personal data, and errors end in logs.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader returned this error, and no stale value may be served instead. Also if the answer
    /// cannot be used: the codec cannot encode the value, or the answer is `unchanged` and nothing
    /// is stored. See [`Error::cause`].
    #[error("the loader failed: {0}")]
    Load(Cause),
    /// The loader panicked with this message, or the tokio runtime of its load was shut down.
    #[error("the loader panicked or was aborted: {0}")]
    Panicked(Arc<str>),
    /// The call got no value within this time: its hard timeout, or the load timeout of its load.
    /// After a hard timeout the load continues, so a later call may find its value; after the load
    /// timeout the load is cancelled.
    #[error("the call got no value within its timeout of {0:?}")]
    TimedOut(Duration),
    /// At least two loads of the key in a row failed, the last one with this error. The cache
    /// starts no load for the key for up to one second after that, and no stale value may be served
    /// instead.
    #[error("no load started for up to a second, because the last loads of this key failed: {0}")]
    BackingOff(Arc<Self>),
    /// A limit on loads or on waiting calls is reached; the text names the limit. Retry the call
    /// later, or raise the limit.
    #[error("the cache rejected the load at a limit: {0}")]
    Overloaded(&'static str),
    /// The lower tier with this name could not be read, and
    /// [`tier_errors`](crate::Builder::tier_errors) is strict: nothing was loaded, and no stale
    /// value may be served instead.
    #[error("the lower tier {0} could not be read, and `tier_errors` is strict: {1}")]
    Tier(&'static str, TierError),
    /// No usable value is stored, and the call loads nothing, because it has
    /// [`only_if_cached`](crate::Options::only_if_cached).
    #[error("the cache has no usable value, and the call has `only_if_cached`")]
    NotCached,
    /// The loader answered, for this call or an earlier one, that no value exists for the key.
    /// Calls that return an `Option` return `None` instead.
    #[error("the loader answered that no value exists for this key")]
    Absent,
    /// The call must load or read a lower tier, and was made outside of a tokio runtime. Only
    /// values in memory can be read without one.
    #[error("the call was made outside of a tokio runtime, and a load needs one")]
    NoRuntime,
    /// The loader waits for a load that waits for it, directly or through other loads: a deadlock,
    /// and a mistake in the loaders.
    #[error("deadlock between loaders: this load would wait for itself")]
    Circular,
    /// Another error of a call, with the key of that call; from a cache with
    /// [`keys_in_errors`](crate::Builder::keys_in_errors).
    #[error("{key}: {error}")]
    ForKey {
        /// Key of the failed call.
        key: Arc<str>,
        /// Error of the call, without its key.
        error: Arc<Self>,
    },
}

impl Error {
    /// Returns the error of the loader, from [`Load`](Self::Load), [`BackingOff`](Self::BackingOff)
    /// or [`ForKey`](Self::ForKey). `None` for other errors, also if a loader panicked or timed
    /// out.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Load(cause) => Some(cause),
            Self::BackingOff(error) | Self::ForKey { error, .. } => error.cause(),
            _ => None,
        }
    }

    /// Returns `true` for errors that a retry after about a second may not meet again: timeouts,
    /// back-off, overload and tier failures.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.without_key(),
            Self::TimedOut(_) | Self::BackingOff(_) | Self::Overloaded(_) | Self::Tier(..)
        )
    }

    /// Returns the error inside [`ForKey`](Self::ForKey), and any other error itself.
    #[must_use]
    pub fn without_key(&self) -> &Self {
        match self {
            Self::ForKey { error, .. } => error.without_key(),
            other => other,
        }
    }

    pub(crate) fn for_key(self, key: &str) -> Self {
        Self::ForKey { key: key.into(), error: Arc::new(self) }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Origin(cause) | LoadError::Unreachable(cause) => {
                match cause.downcast_ref::<Self>().map(Self::without_key) {
                    // A cycle is reported as such, however many loaders pass the error on.
                    Some(Self::Circular) => Self::Circular,
                    _ => Self::Load(cause),
                }
            }
            LoadError::TimedOut(after) => Self::TimedOut(after),
            LoadError::Overloaded(what) => Self::Overloaded(what),
            LoadError::RecentlyFailed(error) => {
                Self::BackingOff(Arc::new(LoadError::clone(&error).into()))
            }
            LoadError::Tier(tier, error) => Self::Tier(tier, error),
            LoadError::Panicked(how) => Self::Panicked(how),
            LoadError::NotCached => Self::NotCached,
            other => Self::Load(Arc::new(other)),
        }
    }
}

/// Converts a loader's error to a failed load of the engine.
pub(crate) fn load_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LoadError {
    LoadError::Origin(error.into().into())
}

/// Reason why a cache cannot be built. The message names the setting and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(pub(crate) String);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

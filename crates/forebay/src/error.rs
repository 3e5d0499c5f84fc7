//! Why there is no value, by what the caller can do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{LoadError, TierError};

/// An error as a loader gave it. All who waited for one load share one error.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why there is no value. Cloneable, since all who waited for a load are told the same.
///
/// No message names a key unless [that was asked for](crate::Builder::keys_in_errors): keys may be
/// personal, and errors end in logs.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader failed, and nothing stale may be served instead. This is its own error: look
    /// into it with [`Error::cause`].
    #[error("the load failed: {0}")]
    Load(Cause),
    /// The loader panicked, or the runtime that it ran on was shut down: look into the loader.
    #[error("the load ended without an answer: {0}")]
    Panicked(Arc<str>),
    /// The value did not come in time. The load may still go on, so asking again later may find it
    /// stored.
    #[error("the load took longer than {0:?}")]
    TimedOut(Duration),
    /// Loads for this key failed a moment ago, the last one by what is named here, and none was
    /// begun for this call. Ask again in a second.
    #[error("no load was begun, since the last ones failed: {0}")]
    BackingOff(Arc<Self>),
    /// More loads are under way, or wait, than may. Ask again later, or allow more.
    #[error("too many loads are under way: {0}")]
    Overloaded(&'static str),
    /// A tier below memory could not be read, and the cache is strict about that
    /// ([`tier_errors`](crate::Builder::tier_errors)): nothing was loaded.
    #[error("the tier {0} failed: {1}")]
    Tier(&'static str, TierError),
    /// The call wanted nothing loaded, and nothing usable is stored.
    #[error("nothing usable is stored, and the call wanted nothing loaded")]
    NotCached,
    /// The loader said that there is nothing under this key. Not a failure: calls that return an
    /// `Option` say `None`.
    #[error("there is nothing under this key")]
    Absent,
    /// Something has to be loaded, or looked for below memory, and the call was made outside of a
    /// runtime of tokio. What is in memory can be had anywhere.
    #[error("a load needs a runtime of tokio, and this call was made outside of one")]
    NoRuntime,
    /// The loader waits for a load that waits for it, directly or through others: without this
    /// error it would do so for ever. A mistake in the loaders.
    #[error("the load would wait for itself")]
    Circular,
    /// What happened, and the key that it happened to: only of caches that were built with
    /// [`keys_in_errors`](crate::Builder::keys_in_errors).
    #[error("{key}: {error}")]
    ForKey {
        /// The key.
        key: Arc<str>,
        /// What happened.
        error: Arc<Self>,
    },
}

impl Error {
    /// The loader's own error, if it was the loader that failed: in this call, or in the one that
    /// holds this call back.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Load(cause) => Some(cause),
            Self::BackingOff(error) | Self::ForKey { error, .. } => error.cause(),
            _ => None,
        }
    }

    /// Whether another call in a moment may well succeed, though nothing has changed by then.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.without_key(),
            Self::TimedOut(_) | Self::BackingOff(_) | Self::Overloaded(_) | Self::Tier(..)
        )
    }

    /// The error without the key that it is about.
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
                    // However many loaders it has come through.
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

/// What a loader's error means to the engine: the same, whatever it was.
pub(crate) fn load_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LoadError {
    LoadError::Origin(error.into().into())
}

/// Why a cache cannot be built: a sentence that names the setting and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(pub(crate) String);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

//! The [`Load`] trait, and the answers of an origin.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, KeyRef, Lifetime, Meta, OriginFailure};
use futures_util::future::BoxFuture;

use crate::entry::body::Content;
use crate::entry::select::Select;
use crate::entry::{Entry, Head};
use crate::runtime::panic_text;
use crate::tiers::error::TierError;
use crate::tiers::tier::{Stored, Tier, TierErrors};

/// Load: gets an answer from the origin of a front end.
///
/// It runs in a task of its own that belongs to no caller, so it owns or shares its data. Time
/// limits, retries and circuit breakers belong to the implementation: the engine waits for it
/// without a limit.
pub trait Load: Select + Clone + 'static {
    /// Asks the origin. `prior` is the stored entry that does not answer the request; a loader that
    /// can make a conditional request may return [`Loaded::Unchanged`].
    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Audience,
    ) -> impl Future<Output = Result<Loaded, LoadError>> + Send;

    /// Called before the task of this load starts, by its caller: a front end that loads many keys
    /// at once counts here how many loads to wait for. If a lower tier has the answer, the load is
    /// dropped without a call of [`load`](Self::load).
    fn departs(&self) {}

    /// Returns `true` if the load only searches tiers, and asks no origin: then it needs no lease.
    fn only_looks(&self) -> bool {
        false
    }

    /// Returns `true` if the result has already arrived, so that the load sends no request. Such a
    /// load does not wait for room among the loads: another load, which holds room, may wait for it.
    fn has_arrived(&self) -> bool {
        false
    }

    /// Called when this load waits for another instance: it may start late, or not at all. A front
    /// end that loads many keys at once does not let the others wait for it: the other instance may
    /// wait for one of them.
    fn delayed(&self) {}

    /// Returns `true` if the answer that this load has brought holds something for its caller
    /// alone. Then the caller is given this answer, and not that of a load that departed later.
    fn has_own(&self) -> bool {
        false
    }

    /// Called when a lower tier has the answer, so that [`load`](Self::load) will not be called.
    /// Writing the tiers above may take a while afterwards.
    fn is_spared(&self) {}

    /// Reads one record of the lower tier with this index; the tier next to memory has index 0. A
    /// load that is a part of a batch combines its reads [here](Tier::open_many).
    fn open<'a>(
        &'a self,
        tier: &'a Arc<dyn Tier>,
        _tier_index: usize,
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        tier.open(key)
    }

    /// Returns `true` if [`open`](Self::open) waits for other loads to read with them: then the
    /// lease is requested after it, and not in the same exchange.
    fn reads_together(&self) -> bool {
        false
    }

    /// Returns the maximum time for which memory uses an entry before it asks the lower tiers for a
    /// newer one. They may keep the entry for longer.
    fn memory_ttl(&self) -> Option<Duration> {
        None
    }

    /// Returns the treatment of failed reads of lower tiers. It must be equal for all callers that
    /// may share a load.
    fn tier_errors(&self) -> TierErrors {
        TierErrors::default()
    }

    /// Returns the maximum wait for another instance. `None`: the limit of the engine.
    fn lease_wait_max(&self) -> Option<Duration> {
        None
    }

    /// Returns `true` if only a part of the body is requested: then a large body in a lower tier is
    /// read there, and not stored in memory.
    fn wants_part(&self) -> bool {
        false
    }

    /// Builds the head of an entry of a lower tier; a front end that keeps a decoded form adds it
    /// here. `None` if the bytes are invalid, which counts as a miss.
    fn revive(&self, head: Bytes) -> Option<Head> {
        Some(Head::new(head))
    }

    /// Encodes a head whose [form is complete](Head::of_form), when its entry moves from memory to
    /// a lower tier. `None` if that fails: then the tier does not store the entry, and the observer
    /// gets [`TierSkipped`](crate::Event::TierSkipped).
    fn written(&self, _head: &Head) -> Option<Bytes> {
        None
    }
}

/// Load of entries that are only stored, never loaded.
impl Load for () {
    async fn load(&self, _: Option<Arc<Entry>>, _: Audience) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }
}

/// Callers that a load is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All callers until it ends.
    Shared,
    /// One caller: the answer is known not to be shared, or the caller demands it.
    Single,
}

/// Answer of an origin.
pub enum Loaded {
    /// Answer that may be shared. It is stored if its body is complete.
    Entry {
        /// Metadata. The engine sets the position, and the cost if it is zero.
        meta: Meta,
        /// Head of the front end.
        head: Head,
        /// Body.
        content: Content,
    },
    /// The stored entry is still valid (HTTP: 304).
    Unchanged {
        /// New metadata.
        meta: Meta,
        /// New head, if it differs.
        head: Option<Head>,
    },
    /// The origin has no value for this key: a negative entry without head and body. A front end
    /// with a head for this case returns an [`Entry`](Self::Entry) that is
    /// [absent](forebay_core::Presence::Absent).
    Absent {
        /// Lifetime of the negative entry.
        lifetime: Lifetime,
    },
    /// Answer for this caller alone. The key gets a pass marker (hit-for-miss).
    Pass(Passed),
    /// Error response of the origin: for this caller alone, unless a stored entry may be served
    /// instead.
    Failed {
        /// Response, for this caller.
        passed: Passed,
        /// Error for the callers that waited with an anonymous one.
        error: LoadError,
    },
}

/// Answer for one caller.
pub struct Passed {
    /// Head of the front end.
    pub head: Head,
    /// Body; it is read from the origin as fast as the caller reads.
    pub content: Content,
    /// Duration of the pass marker.
    pub remember: Duration,
}

/// Reason why there is no answer. All callers of a load share it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The answer of the origin is invalid, or the loader has failed.
    #[error("the origin failed: {0}")]
    Origin(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin cannot be reached, or broke the connection before its answer.
    #[error("the origin cannot be reached: {0}")]
    Unreachable(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin exceeded its time limit.
    #[error("no response from the origin within {0:?}")]
    TimedOut(Duration),
    /// The origin returned an error response with this number, which was meant for another caller.
    #[error("the origin answered with {0}")]
    Answered(u16),
    /// A limit on concurrent work is reached.
    #[error("too many requests: {0}")]
    Overloaded(&'static str),
    /// The circuit breaker of the origin is open; the duration is the time until its next trial.
    #[error("the circuit breaker of the origin is open")]
    Unavailable(Duration),
    /// A load has failed with this error, and the back-off of the key has not ended.
    #[error("no new attempt during the back-off; last failure: {0}")]
    RecentlyFailed(Arc<Self>),
    /// A lower tier has failed, and the caller demands strict tier errors: the origin was not
    /// asked.
    #[error("the tier {0} failed: {1}")]
    Tier(&'static str, TierError),
    /// The load panicked, or its task was ended.
    #[error("the load was aborted: {0}")]
    Panicked(Arc<str>),
    /// The caller allows no load, and no entry is stored.
    #[error("not stored, and the request does not allow a load")]
    NotCached,
}

impl LoadError {
    /// Returns the name in metrics and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Origin(_) => "origin",
            Self::Unreachable(_) => "unreachable",
            Self::RecentlyFailed(_) => "back-off",
            Self::TimedOut(_) => "timed-out",
            Self::Answered(_) => "answered",
            Self::Overloaded(_) => "overloaded",
            Self::Unavailable(_) => "breaker-open",
            Self::Tier(..) => "tier-failed",
            Self::Panicked(_) => "panicked",
            Self::NotCached => "not-cached",
        }
    }

    /// Creates the error of an invalid answer.
    #[must_use]
    pub fn origin(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Origin(cause.into().into())
    }

    /// Creates the error of an unreachable origin.
    #[must_use]
    pub fn unreachable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unreachable(cause.into().into())
    }

    /// Returns the kind of failure that decides about stale answers. An origin that did not answer
    /// in time, or to which no connection was left, counts as unreachable.
    #[must_use]
    pub fn trouble(&self, demand: &Demand) -> OriginFailure {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Overloaded(_)
            | Self::Unavailable(_) => {
                OriginFailure::Unreachable(demand.stale_if_unreachable)
            }
            Self::RecentlyFailed(cause) => cause.trouble(demand),
            Self::Origin(_)
            | Self::Answered(_)
            | Self::Tier(..)
            | Self::Panicked(_)
            | Self::NotCached => OriginFailure::Failed,
        }
    }

    /// Returns `true` if the error is caused by the origin, so that another attempt at once would
    /// fail, too.
    pub(crate) const fn lasts(&self) -> bool {
        match self {
            Self::Origin(_)
            | Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Answered(_)
            | Self::Panicked(_) => true,
            Self::Overloaded(_)
            | Self::Unavailable(_)
            | Self::RecentlyFailed(_)
            | Self::Tier(..)
            | Self::NotCached => false,
        }
    }

    /// Creates the error of a caught panic.
    #[must_use]
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        Self::Panicked(panic_text(payload).into())
    }
}

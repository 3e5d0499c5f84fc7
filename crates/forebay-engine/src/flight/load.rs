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

/// Request to an origin, as a front end implements it: the engine calls [`load`](Self::load) for a
/// miss.
///
/// A load runs in a task of its own that belongs to no caller, so it owns or shares its data. Time
/// limits, retries and circuit breakers belong to the implementation: the engine waits for it
/// without a limit.
pub trait Load: Select + Clone + 'static {
    /// Asks the origin. `prior` is the stored entry that could not answer the request, if there is
    /// one: after a conditional request, the load may return [`Loaded::Unchanged`]. `company` says
    /// whether other callers wait for the answer.
    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Audience,
    ) -> impl Future<Output = Result<Loaded, LoadError>> + Send;

    /// Called by the caller that starts a load, before the task of the load begins. A front end
    /// that loads many keys at once counts these calls, to know for how many loads to wait.
    /// [`load`](Self::load) is not called if a lower tier has the answer.
    fn departs(&self) {}

    /// Returns `true` if the load asks no origin, so that only memory and lower tiers can answer:
    /// then the engine requests no lease for it. Default: `false`.
    fn only_looks(&self) -> bool {
        false
    }

    /// Returns `true` if the answer is already here, so that the load sends no request. Such a load
    /// does not wait in the queue for memory of bodies in flight: a load that holds that memory may
    /// be waiting for it. Default: `false`.
    fn has_arrived(&self) -> bool {
        false
    }

    /// Called when this load waits for another instance, so that it may start late or not at all. A
    /// front end that loads many keys in one call then starts the other keys without this one;
    /// otherwise two instances could wait for each other.
    fn delayed(&self) {}

    /// Returns `true` if the answer of this load contains something for its own caller. Then that
    /// caller gets this answer even if a later load of the key replaced it. Default: `false`.
    fn has_own(&self) -> bool {
        false
    }

    /// Called when a lower tier has the answer, so that [`load`](Self::load) will not be called.
    /// The entry may still be being written to the tiers above that one.
    fn is_spared(&self) {}

    /// Reads the record of a key from a lower tier. `tier_index` counts the tiers below memory from
    /// 0. A load that is part of a batch combines its reads of one tier here ([`Tier::open_many`]).
    /// Default: [`Tier::open`].
    fn open<'a>(
        &'a self,
        tier: &'a Arc<dyn Tier>,
        _tier_index: usize,
        key: KeyRef<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        tier.open(key)
    }

    /// Returns `true` if [`open`](Self::open) waits for the reads of other loads. Then the engine
    /// requests the lease after the read, not in one exchange with it. Default: `false`.
    fn reads_together(&self) -> bool {
        false
    }

    /// Returns the maximum time for which memory serves an entry before the engine asks the lower
    /// tiers for a newer one. `None`, the default: as long as the entry is fresh.
    fn memory_ttl(&self) -> Option<Duration> {
        None
    }

    /// Returns how a failed read of a lower tier affects the request. The result must be equal for
    /// all callers that may share a load. Default: graceful, where a failure counts as a miss.
    fn tier_errors(&self) -> TierErrors {
        TierErrors::default()
    }

    /// Returns the maximum time to wait for another instance that loads the key. `None`, the
    /// default: [`Cluster::wait_max`](crate::Cluster::wait_max).
    fn lease_wait_max(&self) -> Option<Duration> {
        None
    }

    /// Returns `true` if the caller needs only a part of the body: then a large body in a lower
    /// tier is read there, and not copied into memory. Default: `false`.
    fn wants_part(&self) -> bool {
        false
    }

    /// Builds the head of an entry that was read from a lower tier, from its stored bytes; a front
    /// end that keeps views adds one here. `None` if the bytes are invalid: then the record counts
    /// as a miss.
    fn revive(&self, head: Bytes) -> Option<Head> {
        Some(Head::new(head))
    }

    /// Encodes a head that memory keeps only as a [complete view](Head::of_form), so that a lower
    /// tier can store the entry. `None` if that fails: then the tier does not store the entry, and
    /// the observer gets [`TierSkipped`](crate::Event::TierSkipped).
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

/// Callers that get the answer of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All callers that request the key until the load ends.
    Shared,
    /// One caller only, because answers for this key are known not to be shared, or because the
    /// caller demands a load of its own.
    Single,
}

/// Answer of an origin to a [`Load`].
pub enum Loaded {
    /// Answer that may be shared with other callers. The engine stores it when its body is
    /// complete.
    Entry {
        /// Metadata. The engine sets the position, and the cost if it is zero.
        meta: Meta,
        /// Head of the front end.
        head: Head,
        /// Body.
        content: Content,
    },
    /// The origin confirmed that the stored entry is still valid (HTTP: 304).
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
    /// Answer that only the caller of this load may get. The key gets a pass marker (hit-for-miss),
    /// so that its next requests do not wait for each other.
    Pass(Passed),
    /// Error response of the origin. The caller of this load gets it, unless a stored entry may be
    /// served instead.
    Failed {
        /// Response, for this caller.
        passed: Passed,
        /// Error for the callers that waited with an anonymous one.
        error: LoadError,
    },
}

/// Answer that only the caller of its load gets, and that is not stored.
pub struct Passed {
    /// Head of the answer: bytes that only the front end interprets (HTTP: status and fields).
    pub head: Head,
    /// Body of the answer. The origin is read only as fast as the caller reads.
    pub content: Content,
    /// Time for which the key is marked as one whose answers are not shared (pass marker). Zero
    /// sets no marker.
    pub remember: Duration,
}

/// Reason why a load gave no answer. All callers that waited for the load get it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The origin was reached, but its answer is invalid or its loader failed, with this cause.
    #[error("the origin failed: {0}")]
    Origin(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin cannot be reached, or ended the connection before its answer, with this cause.
    #[error("the origin cannot be reached: {0}")]
    Unreachable(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin did not answer within this time.
    #[error("no response from the origin within {0:?}")]
    TimedOut(Duration),
    /// The origin answered with an error response of this status. Only the caller whose request it
    /// answered gets the response itself; callers that waited for that request get this error.
    #[error("the origin answered with status {0}")]
    Answered(u16),
    /// The load did not start, because a limit on concurrent work was reached; the text names the
    /// limit.
    #[error("rejected at a limit: {0}")]
    Overloaded(&'static str),
    /// The circuit breaker of the origin is open; the duration is the time until its next trial.
    #[error("the circuit breaker of the origin is open")]
    Unavailable(Duration),
    /// The load did not start, because the last loads of the key failed, the last one with this
    /// error; the next load starts when the back-off of up to a second ends.
    #[error(
        "no request was sent, because the last ones failed; the next follows within a second; \
         last failure: {0}"
    )]
    RecentlyFailed(Arc<Self>),
    /// The tier of this name failed, and the request demands that such a failure fails it
    /// ([`TierErrors::Strict`]): the origin was not asked.
    #[error("the storage tier {0} failed, and tier_errors is strict: {1}")]
    Tier(&'static str, TierError),
    /// The load panicked with this message, or its task was cancelled.
    #[error("the load panicked or was aborted: {0}")]
    Panicked(Arc<str>),
    /// The request forbids loads (`only_if_cached`), and no stored entry may be used.
    #[error("no usable entry is stored, and the request does not allow a load")]
    NotCached,
}

impl LoadError {
    /// Returns the name of this kind of error in metrics and logs, such as `timed-out`.
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

    /// Creates the error of an origin that was reached, but whose answer is invalid.
    #[must_use]
    pub fn origin(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Origin(cause.into().into())
    }

    /// Creates the error of an origin that cannot be reached, with its cause.
    #[must_use]
    pub fn unreachable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unreachable(cause.into().into())
    }

    /// Returns the kind of this failure, which decides whether a stale entry may be served to a
    /// caller with `demand`. A time-out and a connection limit count as an unreachable origin.
    #[must_use]
    pub fn trouble(&self, demand: &Demand) -> OriginFailure {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Overloaded(_)
            | Self::Unavailable(_) => OriginFailure::Unreachable(demand.stale_if_unreachable),
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

    /// Creates the error of a load that panicked, from the payload of the caught panic.
    #[must_use]
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        Self::Panicked(panic_text(payload).into())
    }
}

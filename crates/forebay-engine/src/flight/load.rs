//! The [`Load`] trait, and the answers of an origin.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Meta, OriginFailure};

use crate::entry::body::Content;
use crate::entry::select::Select;
use crate::entry::{Entry, Head};
use crate::flight::batch::BatchPart;
use crate::flight::waiting::Waiting;
use crate::runtime::event::TierCall;
use crate::runtime::panic_text;
use crate::tiers::error::TierError;
use crate::tiers::lease::LoadMark;
use crate::tiers::tier::TierErrors;

/// Request to an origin, as a front end implements it: the engine calls [`load`](Self::load) for a
/// miss.
///
/// A load runs in a task of its own that belongs to no caller, so it owns or shares its data;
/// [`UnsharedLoad`] has the exception. Time limits, retries and circuit breakers belong to the
/// implementation: the engine waits for it without a limit.
pub trait Load: Select + HeadCodec + Clone + 'static {
    /// Asks the origin. `prior` is the entry of memory or a lower tier that could not answer the
    /// request, if there is one: after a conditional request, the load may return
    /// [`Loaded::Unchanged`]. `company` says whether other callers may wait for the answer.
    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Audience,
    ) -> impl Future<Output = Result<Loaded, LoadError>> + Send;

    /// Takes the handle that shows who waits for this load. Called before [`load`](Self::load).
    fn begins(&self, _waiting: Waiting) {}

    /// Returns the mark of this load, which instances get that wait for its lease. `is_refresh` is true
    /// if no caller waits for it.
    fn mark(&self, _is_refresh: bool) -> Option<LoadMark> {
        None
    }

    /// Takes the mark of the load of another instance, for which this load waits.
    fn follows(&self, _mark: &str) {}

    /// Takes a lookup in a lower tier that was made for this load, or a read there.
    fn tier_called(&self, _call: TierCall) {}

    /// Returns the options of this load.
    fn options(&self) -> LoadOptions {
        LoadOptions::default()
    }

    /// Returns this load as a part of its batch, if a front end loads many keys at once.
    fn batch(&self) -> Option<&dyn BatchPart> {
        None
    }
}

/// Options of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Source of the answer.
    pub source: LoadSource,
    /// Maximum time for which memory uses an entry before it asks the lower tiers for a newer one.
    /// They may keep the entry for longer. `None`: the lifetime of the entry.
    pub memory_ttl: Option<Duration>,
    /// Treatment of failed reads of lower tiers. It must be equal for all callers that may share a
    /// load.
    pub tier_errors: TierErrors,
    /// Maximum wait for another instance that loads the key. `None`:
    /// [`Cluster::wait_max`](crate::Cluster::wait_max) of the engine.
    pub lease_wait_max: Option<Duration>,
    /// Extent of the body that the caller requests: the whole or a part.
    pub extent: Extent,
    /// Callers for whom the answer holds something. The engine reads this field after the load.
    pub answer_for: AnswerFor,
    /// End of a load whose answer no other caller may get.
    pub unshared: UnsharedLoad,
    /// Time since the front end has sent the request of this load, if it did before the load. Such a
    /// load is for its caller alone: it waits neither for memory nor for other loads, tiers or
    /// instances, and its answer stays in this instance.
    pub sent_ago: Option<Duration>,
}

/// End of a load whose caller has gone away, if no other caller may get the answer: because the
/// caller forbids storing it, or because the answers of the key are private (pass marker).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsharedLoad {
    /// The load runs in a task of its own, to its end.
    #[default]
    Continues,
    /// The caller drives the load, which saves the task. The load ends with its caller.
    EndsWithCaller,
}

/// Source of the answer of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadSource {
    /// The origin is asked.
    #[default]
    Origin,
    /// Only the lower tiers are searched, and no lease is requested. If they have no usable entry,
    /// the engine calls [`Load::load`], which must return [`LoadError::NotCached`].
    LowerTiers,
    /// The response has already arrived, so no request is sent. Such a load does not wait for
    /// memory among the loads: another load, which has been admitted, may wait for it.
    Received,
}

/// Extent of a body that a caller requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// The whole body.
    #[default]
    Whole,
    /// A part: a large body in the first tier below memory is read there, and not stored in memory.
    Part,
}

/// Callers for whom an answer holds something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerFor {
    /// The answer is the same for all callers.
    #[default]
    All,
    /// The answer holds something for its caller alone. Then the caller gets this answer, and not
    /// that of a load that started later.
    Caller,
}

/// Encoding of heads. The default implementation stores heads as they are.
pub trait HeadCodec {
    /// Builds the head of an entry of a lower tier; a front end that keeps a decoded form adds it
    /// here. `None` if the bytes are invalid, which counts as a miss.
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        Some(Head::new(bytes))
    }

    /// Encodes a head whose [form is complete](Head::of_form), when its entry moves from memory to
    /// a lower tier. `None` if that fails: then the tier does not store the entry, and the observer
    /// gets [`TierSkipped`](crate::Event::TierSkipped).
    fn encode_head(&self, _head: &Head) -> Option<Bytes> {
        None
    }
}

impl HeadCodec for () {}

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
    /// complete, unless the request forbids that, a purge came since, or a newer answer is stored.
    Entry {
        /// Metadata. The engine sets `load_started_at` and `position`, and the load cost if it is
        /// zero.
        meta: Meta,
        /// Head of the front end.
        head: Head,
        /// Body.
        content: Content,
    },
    /// The origin confirmed that the stored entry is still valid (HTTP: 304). Without a `prior`
    /// entry, the load counts as failed.
    Unchanged {
        /// New metadata. The engine sets `load_started_at` and `position`, and the load cost if it
        /// is zero.
        meta: Meta,
        /// New head of the entry; `None` keeps the stored one.
        head: Option<Head>,
    },
    /// The origin has no value for this key: a negative entry without head and body. A front end
    /// with a head for this case returns an [`Entry`](Self::Entry) that is
    /// [absent](forebay_core::Presence::Absent).
    Absent {
        /// Lifetime of the negative entry.
        lifetime: Lifetime,
    },
    /// Answer that only the caller of this load may get. The key gets a pass marker (hit-for-miss)
    /// for the time [`Passed::remember`], so that its next requests do not wait for each other.
    Pass(Passed),
    /// Error response of the origin. The caller of this load gets it, unless a stored entry may be
    /// served instead.
    Failed {
        /// Response, for this caller.
        passed: Passed,
        /// Error for the other callers that waited for this load, if its request had no
        /// credentials. Otherwise they load again.
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

/// Reason why a load gave no answer. All callers that waited for the load get it, except those to
/// which a stale entry may be served instead.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The origin was reached, but its answer is invalid, or the loader of a library call returned
    /// an error, with this cause.
    #[error("the origin failed: {0}")]
    Origin(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin cannot be reached, or ended the connection before its answer, with this cause.
    #[error("the origin cannot be reached: {0}")]
    Unreachable(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin did not answer within this time.
    #[error("no response from the origin within {0:?}")]
    TimedOut(Duration),
    /// The origin answered with an error response of this status. Only the caller whose request it
    /// answered gets the response itself. Callers that waited for that request get this error, or
    /// load again if it had credentials.
    #[error("the origin answered with status {0}")]
    Answered(u16),
    /// The load did not start, because a limit on concurrent work was reached; the text names the
    /// limit.
    #[error("rejected at a limit: {0}")]
    Overloaded(&'static str),
    /// The load did not start, because the budget of the origin, which all instances share, was
    /// used up.
    #[error("the budget of requests to the origin is used up")]
    OverBudget,
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
    /// The request forbids loads (`only_if_cached`), or only the tiers were searched
    /// ([`LoadSource::LowerTiers`]), and no stored entry may be used.
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
            Self::OverBudget => "over-budget",
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
    /// caller with `demand`. A time-out, a reached limit and an open circuit breaker count as an
    /// unreachable origin; a back-off counts as the failure that caused it.
    #[must_use]
    pub fn trouble(&self, demand: &Demand) -> OriginFailure {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Overloaded(_)
            | Self::OverBudget
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
            | Self::OverBudget
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

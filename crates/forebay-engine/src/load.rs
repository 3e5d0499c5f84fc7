//! What an origin can be asked, and what it can say.

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, KeyRef, Lifetime, Meta, OriginFailure, Vary};
use futures_util::future::BoxFuture;

use crate::body::PieceStream;
use crate::entry::{Entry, Head};
use crate::tier::{Stored, Tier, TierError, TierErrors};

/// The values by which variants of one key are told apart.
pub trait Select: Send + Sync {
    /// The value of a selecting field; `None` if it is absent.
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// How many variants of one key are kept; of more, those leave that were used longest ago.
    fn variants_max(&self) -> usize {
        VARIANTS_MAX
    }
}

/// More variants than languages and codings make together.
const VARIANTS_MAX: usize = 64;

/// For doors without variants.
impl Select for () {
    fn field(&self, _name: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

/// The fields that `vary` names, with their values in this selection.
pub(crate) fn selected<'a>(
    vary: &'a Vary,
    select: &'a dyn Select,
) -> impl Iterator<Item = (&'a str, Option<Cow<'a, [u8]>>)> {
    vary.names().map(|name| (name, select.field(name)))
}

/// A load: how a door gets an answer from its origin.
///
/// It runs in a task of its own and belongs to no caller, so it owns or shares all it needs. Its
/// time, retries and breakers are its own too: the engine waits for it, and bounds nothing in it.
pub trait Load: Select + Clone + 'static {
    /// Asks the origin. `prior` is what is stored and no longer good enough; a loader that can
    /// make the question conditional answers [`Loaded::Unchanged`].
    fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Company,
    ) -> impl Future<Output = Result<Loaded, LoadError>> + Send;

    /// Called when this very load is about to depart, on the way of its caller and before its task
    /// begins: a door that loads many keys at once counts here how many to wait for. Not all that
    /// depart are asked: a lower tier may have the answer. Then the load is dropped.
    fn departs(&self) {}

    /// Whether it only looks into tiers, and asks no origin: then it needs no leave to.
    fn only_looks(&self) -> bool {
        false
    }

    /// Returns `true` if the result has already arrived, so that the load sends no request. Such a
    /// load does not wait for room among the loads: another load, which holds room, may wait for it.
    fn has_arrived(&self) -> bool {
        false
    }

    /// Called when this load has to wait for one of another instance: it may depart late, or not
    /// at all. A door that loads many keys at once does not let the others wait for it: they may be
    /// what the other instance waits for.
    fn delayed(&self) {}

    /// Returns `true` if the answer that this load has brought holds something for its caller
    /// alone. Then the caller is given this answer, and not that of a load that departed later.
    fn has_own(&self) -> bool {
        false
    }

    /// Called when a lower tier has brought the answer, so that this load will not be asked. What
    /// is written into the tiers above it may take a while after that.
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

    /// Whether [`open`](Self::open) waits for other loads to read with them: then a lease is asked
    /// for after it, and not in its stead.
    fn reads_together(&self) -> bool {
        false
    }

    /// For how long memory is to believe what the tiers below it may keep for longer; from then on
    /// they are asked whether they have something newer.
    fn memory_ttl(&self) -> Option<Duration> {
        None
    }

    /// What a lower tier that cannot be read means for those who wait for this load. All who may
    /// share one have to say the same.
    fn tier_errors(&self) -> TierErrors {
        TierErrors::default()
    }

    /// How long this load waits for one of another instance at most; nothing: as long as the
    /// engine was told.
    fn lease_wait_max(&self) -> Option<Duration> {
        None
    }

    /// Whether a part of the body is wanted and not the whole: then a large one that stands in a
    /// lower tier is read there, as far as it is wanted, and is not taken into memory.
    fn wants_part(&self) -> bool {
        false
    }

    /// The head of an entry that comes from a lower tier: a door that keeps a ready-made form
    /// adds it here. Nothing if the bytes make no sense, which is a miss.
    fn revive(&self, head: Bytes) -> Option<Head> {
        Some(Head::new(head))
    }

    /// The bytes of a head whose [form says all](Head::of_form), written anew: of an entry that
    /// comes from memory and goes to a lower tier. Nothing if they cannot be: then that tier does
    /// not get the entry, which [is told](crate::Event::TierSkipped).
    fn written(&self, _head: &Head) -> Option<Bytes> {
        None
    }
}

/// For what is only stored, and never asked for.
impl Load for () {
    async fn load(&self, _: Option<Arc<Entry>>, _: Company) -> Result<Loaded, LoadError> {
        Err(LoadError::NotCached)
    }
}

/// Whom a load is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// For all who come while it is under way.
    Shared,
    /// For one caller: what it asks for is known not to be shared, or it wants it so.
    Alone,
}

/// What an origin can say.
pub enum Loaded {
    /// An answer that may be shared. It is stored if it ends whole.
    Entry {
        /// What the judge will need. The engine fills in the position, and the cost where it is
        /// zero.
        meta: Meta,
        /// The door's description.
        head: Head,
        /// Where its bytes come from.
        source: Source,
    },
    /// What is stored is still good (HTTP: 304).
    Unchanged {
        /// The metadata from now on.
        meta: Meta,
        /// The head from now on, where it differs.
        head: Option<Head>,
    },
    /// The origin knows of nothing under this key: a negative entry, with neither head nor body.
    /// A door with a head of its own for this sends it as an [`Entry`](Self::Entry) that is
    /// [absent](forebay_core::Presence::Absent).
    Absent {
        /// How long that is to be believed.
        lifetime: Lifetime,
    },
    /// An answer for this caller alone, remembered as such for a while (hit-for-miss).
    Pass(Passed),
    /// An error of the origin, in the origin's words: for this caller alone, unless what is
    /// stored may be served instead.
    Failed {
        /// The answer, for this caller.
        passed: Passed,
        /// What those who waited with an anonymous caller are told instead.
        error: LoadError,
    },
}

/// An answer for one caller.
pub struct Passed {
    /// The door's description.
    pub head: Head,
    /// Its bytes; the caller's pace is the origin's pace.
    pub source: Source,
    /// For how long requests for this key should not wait for each other.
    pub remember: Duration,
}

/// The bytes of an answer.
pub enum Source {
    /// All at once.
    Whole(Bytes),
    /// In pieces.
    Stream(PieceStream),
    /// In pieces, which will be so many bytes together, or so it was announced. What is too large
    /// to be kept is passed on from its first byte then.
    Sized(u64, PieceStream),
}

impl Source {
    pub(crate) fn announced(&self) -> Option<u64> {
        match self {
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Stream(_) => None,
            Self::Sized(length, _) => Some(*length),
        }
    }
}

/// Why there is no answer. Cloneable, since all who waited share it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The origin made no sense, or failed in a way of its own.
    #[error("the origin failed: {0}")]
    Origin(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin could not be reached, or broke off before it had answered.
    #[error("the origin cannot be reached: {0}")]
    Unreachable(Arc<dyn std::error::Error + Send + Sync>),
    /// The origin took longer than it may.
    #[error("no response from the origin within {0:?}")]
    TimedOut(Duration),
    /// The origin answered with an error of its own, which the door names by this number, in
    /// words that were meant for somebody else.
    #[error("the origin answered with {0}")]
    Answered(u16),
    /// More is under way than may be.
    #[error("too many requests: {0}")]
    Overloaded(&'static str),
    /// A load failed a moment ago, by what is named here, and none was begun since.
    #[error("no new attempt during the back-off; last failure: {0}")]
    RecentlyFailed(Arc<Self>),
    /// A lower tier failed, and whoever asks is strict about that: the origin was not asked.
    #[error("the tier {0} failed: {1}")]
    Tier(&'static str, TierError),
    /// The load panicked, or its task was ended.
    #[error("the load was aborted: {0}")]
    Panicked(Arc<str>),
    /// The caller wanted nothing loaded, and nothing is at hand.
    #[error("not stored, and the request does not allow a load")]
    NotCached,
}

impl LoadError {
    /// What it is called in metrics and logs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Origin(_) => "origin",
            Self::Unreachable(_) => "unreachable",
            Self::RecentlyFailed(_) => "back-off",
            Self::TimedOut(_) => "timed-out",
            Self::Answered(_) => "answered",
            Self::Overloaded(_) => "overloaded",
            Self::Tier(..) => "tier-failed",
            Self::Panicked(_) => "panicked",
            Self::NotCached => "not-cached",
        }
    }

    /// An origin that made no sense.
    #[must_use]
    pub fn origin(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Origin(cause.into().into())
    }

    /// An origin that could not be reached.
    #[must_use]
    pub fn unreachable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unreachable(cause.into().into())
    }

    /// What kind of trouble this is for somebody who demands so: an origin that did not answer in
    /// time, or that there was no connection left to, is as far away as one that is gone.
    #[must_use]
    pub fn trouble(&self, demand: &Demand) -> OriginFailure {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) | Self::Overloaded(_) => {
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

    /// Whether it speaks of the origin, so that another attempt at once would end the same way.
    pub(crate) const fn lasts(&self) -> bool {
        match self {
            Self::Origin(_)
            | Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Answered(_)
            | Self::Panicked(_) => true,
            Self::Overloaded(_) | Self::RecentlyFailed(_) | Self::Tier(..) | Self::NotCached => {
                false
            }
        }
    }

    /// What a caught panic says.
    #[must_use]
    pub fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without a message");
        Self::Panicked(text.into())
    }
}

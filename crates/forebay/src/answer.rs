//! The input of a loader ([`Prior`]) and its output ([`Answer`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Timestamp, version};
use forebay_engine::Entry;

use crate::lifetimes::schedule::Schedule;
use crate::lifetimes::{Fresh, LifetimeOverrides, entry_setters};

/// Duration for which calls for a key are not coalesced after a [passed](Answer::pass) answer:
/// long enough that a crowd does not queue for an answer it cannot share, short enough that one
/// such answer does not disable coalescing for long.
const PASS_REMEMBER: Duration = Duration::from_secs(10);

/// The stored entry that a load replaces or validates, as its loader receives it. It is empty if
/// nothing is stored, or if the entry was removed by an invalidation.
pub struct Prior<V> {
    value: Option<Arc<V>>,
    validator: Option<Bytes>,
    age: Option<Duration>,
}

impl<V: Send + Sync + 'static> Prior<V> {
    pub(crate) fn of(entry: Option<&Entry>, now: Timestamp) -> Self {
        let Some(entry) = entry else {
            return Self { value: None, validator: None, age: None };
        };
        let validator = entry.meta.validator().and_then(|validator| validator.tag.clone());
        Self { value: entry.head.shared_view(), validator, age: Some(entry.meta.age(now)) }
    }
}

impl<V> Prior<V> {
    /// Returns the previous value of the key; `None` if nothing is stored, or if the stored entry
    /// says that the key has no value.
    #[must_use]
    pub const fn value(&self) -> Option<&Arc<V>> {
        self.value.as_ref()
    }

    /// Returns the [validator](Answer::validator) of the stored entry, such as an `ETag` or a
    /// digest, as an earlier answer set it. `None` if it has none, or a [version](Self::version)
    /// instead.
    #[must_use]
    pub fn validator(&self) -> Option<&[u8]> {
        self.validator.as_deref().filter(|tag| version::read(tag).is_none())
    }

    /// Returns the [version](Answer::version) of the stored entry, as an earlier answer or
    /// [`Cache::set_versioned`](crate::Cache::set_versioned) set it; `None` if it has none.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        version::read(self.validator.as_ref()?)
    }

    /// Returns the time since the stored entry was loaded, set or found unchanged, also if the
    /// entry says that the key has no value. `None` if nothing is stored.
    #[must_use]
    pub const fn age(&self) -> Option<Duration> {
        self.age
    }
}

impl<V> fmt::Debug for Prior<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, validator, age } = self;
        f.debug_struct("Prior")
            .field("value", &value.is_some())
            .field("validator", validator)
            .field("age", age)
            .finish()
    }
}

/// The result of a load: a value or its absence, with optional lifetime, tags and validator.
///
/// ```
/// use std::time::Duration;
/// use forebay::Answer;
///
/// let answer = Answer::value("Ada".to_owned())
///     .ttl(Duration::from_secs(30))
///     .tags(["user:42", "users"])
///     .validator("row version 7");
/// ```
#[must_use]
pub struct Answer<V> {
    pub(crate) outcome: AnswerKind<V>,
    pub(crate) overrides: LifetimeOverrides,
    pub(crate) tags: Vec<Box<str>>,
    pub(crate) validator: Option<Bytes>,
    pub(crate) cost: Option<Duration>,
}

pub(crate) enum AnswerKind<V> {
    Value(Arc<V>),
    Absent,
    Unchanged,
    Pass(Option<Arc<V>>, Duration),
}

impl<V> Answer<V> {
    const fn of(outcome: AnswerKind<V>) -> Self {
        let overrides =
            LifetimeOverrides { fresh: None, stale_while_revalidate: None, stale_if_error: None };
        Self { outcome, overrides, tags: Vec::new(), validator: None, cost: None }
    }

    /// Creates an answer with a value, for every caller that asks for the key.
    pub fn value(value: V) -> Self {
        Self::shared(Arc::new(value))
    }

    /// Creates an answer with a value that is already in an `Arc`, for every caller that asks for
    /// the key.
    pub const fn shared(value: Arc<V>) -> Self {
        Self::of(AnswerKind::Value(value))
    }

    /// Creates an answer that says that the key has no value. The cache stores this fact, for
    /// [`negative_ttl`](crate::Builder::negative_ttl) if that is set, or else for the lifetime of
    /// values.
    pub const fn absent() -> Self {
        Self::of(AnswerKind::Absent)
    }

    /// Creates an answer that says that the stored entry ([`Prior`]), a value or its absence, is
    /// still valid: its lifetime starts again. The entry keeps its validator unless this answer
    /// names another, and its tags unless this answer or the call's options name others. The load
    /// fails if nothing is stored.
    pub const fn unchanged() -> Self {
        Self::of(AnswerKind::Unchanged)
    }

    /// Creates an answer that only the call that started the load gets: a value, or `None` for its
    /// absence (hit-for-miss). It is not stored, and calls that wait for the key load for
    /// themselves. For ten seconds, or until an answer for the key is stored, calls for the key do
    /// not wait for each other.
    pub fn pass(value: Option<V>) -> Self {
        Self::of(AnswerKind::Pass(value.map(Arc::new), PASS_REMEMBER))
    }

    entry_setters!();

    /// Sets an identifier of this state of the value, such as an `ETag`, which the next loader
    /// reads as [`Prior::validator`]. It replaces a [version](Self::version) of this answer.
    pub fn validator(mut self, version: impl Into<Bytes>) -> Self {
        self.validator = Some(version.into());
        self
    }

    /// Sets the version of the value, a number that grows with each change. A load does not replace
    /// an entry with a newer version; see [`Cache::set_versioned`](crate::Cache::set_versioned).
    /// The next loader reads the version as [`Prior::version`]. It replaces a
    /// [validator](Self::validator) of this answer.
    pub fn version(mut self, version: u64) -> Self {
        self.validator = Some(version::written(version));
        self
    }

    /// Sets the cost of the load, if it differs from the load's duration. Entries with costlier
    /// loads are refreshed earlier before they expire (early refresh). Default, also for zero: a
    /// moving average of the measured durations of the key's loads.
    pub const fn cost(mut self, cost: Duration) -> Self {
        self.cost = Some(cost);
        self
    }
}

impl<V> From<V> for Answer<V> {
    fn from(value: V) -> Self {
        Self::value(value)
    }
}

impl<V> From<Arc<V>> for Answer<V> {
    fn from(value: Arc<V>) -> Self {
        Self::shared(value)
    }
}

impl<V> From<Box<V>> for Answer<V> {
    fn from(value: Box<V>) -> Self {
        Self::shared(value.into())
    }
}

// There is no impl for `Option<Arc<V>>`: the type of a bare `None` would then be ambiguous.
/// `Some` becomes a value, `None` an absent answer.
impl<V> From<Option<V>> for Answer<V> {
    fn from(found: Option<V>) -> Self {
        found.map_or_else(Self::absent, Self::value)
    }
}

// Not derived: `V` need not be `Clone`.
impl<V> Clone for Answer<V> {
    fn clone(&self) -> Self {
        let outcome = match &self.outcome {
            AnswerKind::Value(value) => AnswerKind::Value(value.clone()),
            AnswerKind::Absent => AnswerKind::Absent,
            AnswerKind::Unchanged => AnswerKind::Unchanged,
            AnswerKind::Pass(value, remember) => AnswerKind::Pass(value.clone(), *remember),
        };
        let Self { overrides, tags, validator, cost, .. } = self;
        let (tags, validator) = (tags.clone(), validator.clone());
        Self { outcome, overrides: *overrides, tags, validator, cost: *cost }
    }
}

impl<V> fmt::Debug for Answer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            AnswerKind::Value(_) => "value",
            AnswerKind::Absent => "absent",
            AnswerKind::Unchanged => "unchanged",
            AnswerKind::Pass(..) => "pass",
        };
        let Self { overrides, tags, validator, cost, .. } = self;
        f.debug_struct("Answer")
            .field("outcome", &outcome)
            .field("overrides", overrides)
            .field("tags", tags)
            .field("validator", validator)
            .field("cost", cost)
            .finish()
    }
}

//! What a loader is told, and what it can answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Timestamp, version};
use forebay_engine::Entry;

use crate::lifetimes::{Fresh, LifetimeOverrides};
use crate::schedule::Schedule;

/// For how long calls for a key do not wait for each other after an answer that is not to be
/// kept: long enough that a crowd does not queue for what it cannot share, short enough that a
/// single such answer does not stay expensive.
const PASS_REMEMBER: Duration = Duration::from_secs(10);

/// What is stored and no longer good enough, for a loader that can ask a shorter question.
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
    /// The previous value, if there is one.
    #[must_use]
    pub const fn value(&self) -> Option<&Arc<V>> {
        self.value.as_ref()
    }

    /// What the previous answer named for this, whatever that is to its loader: an `ETag`, a
    /// digest. A version that is a number is [`version`](Self::version).
    #[must_use]
    pub fn validator(&self) -> Option<&[u8]> {
        self.validator.as_deref().filter(|tag| version::read(tag).is_none())
    }

    /// The [version](Answer::version) of the previous answer, or of what was
    /// [stored](crate::Cache::set_versioned) since.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        version::read(self.validator.as_ref()?)
    }

    /// How old the previous answer is, also if it was that there is nothing.
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

/// What a loader answers.
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
    pub(crate) outcome: Outcome<V>,
    pub(crate) overrides: LifetimeOverrides,
    pub(crate) tags: Vec<Box<str>>,
    pub(crate) validator: Option<Bytes>,
    pub(crate) cost: Option<Duration>,
}

pub(crate) enum Outcome<V> {
    Value(Arc<V>),
    Absent,
    Unchanged,
    Pass(Option<Arc<V>>, Duration),
}

impl<V> Answer<V> {
    const fn of(outcome: Outcome<V>) -> Self {
        let overrides =
            LifetimeOverrides { fresh: None, stale_while_revalidate: None, stale_if_error: None };
        Self { outcome, overrides, tags: Vec::new(), validator: None, cost: None }
    }

    /// A value, for everybody who asks for this key.
    pub fn value(value: V) -> Self {
        Self::shared(Arc::new(value))
    }

    /// The same, for a value that is shared already.
    pub const fn shared(value: Arc<V>) -> Self {
        Self::of(Outcome::Value(value))
    }

    /// There is nothing under this key. That is remembered, too.
    pub const fn absent() -> Self {
        Self::of(Outcome::Absent)
    }

    /// The [previous value](Prior::value) is still good: it is as fresh as if it had been loaded.
    /// Tags and validator stay as they are where this answer names none. An error if nothing was
    /// stored before.
    pub const fn unchanged() -> Self {
        Self::of(Outcome::Unchanged)
    }

    /// A value, or the absence of one, for this call alone: it is neither kept nor shared with
    /// those who wait for the same key. For ten seconds, or until an answer is kept again, calls
    /// for the key do not wait for each other.
    pub fn pass(value: Option<V>) -> Self {
        Self::of(Outcome::Pass(value.map(Arc::new), PASS_REMEMBER))
    }

    /// How long it is fresh; kept to the letter, without jitter.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.overrides.fresh = Some(Fresh::For(ttl));
        self
    }

    /// Until when it is fresh, in the place of a `ttl`.
    pub const fn expires_at(mut self, schedule: Schedule) -> Self {
        self.overrides.fresh = Some(Fresh::ExpiresAt(schedule));
        self
    }

    /// For how long after that it is served while one load refreshes it.
    pub const fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.overrides.stale_while_revalidate = Some(window);
        self
    }

    /// For how long after its time it is served when a load fails.
    pub const fn stale_if_error(mut self, window: Duration) -> Self {
        self.overrides.stale_if_error = Some(window);
        self
    }

    /// The tags by which it can be invalidated, together with others; further to those that the
    /// call names.
    pub fn tags<T: Into<Box<str>>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// What tells this version from others, for the next load of it to be [told](Prior::validator).
    pub fn validator(mut self, version: impl Into<Bytes>) -> Self {
        self.validator = Some(version.into());
        self
    }

    /// Which version this is, where versions are numbers that grow: the load does not replace a
    /// newer one, however late it ends; see [`Cache::set_versioned`](crate::Cache::set_versioned).
    /// It takes the place of a [validator](Self::validator), and the next load of the key is
    /// [told](Prior::version).
    pub fn version(mut self, version: u64) -> Self {
        self.validator = Some(version::written(version));
        self
    }

    /// What the load has cost, where that is not the time it took: what costs more is refreshed
    /// earlier.
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

// Not for an `Option` of an `Arc`, too: a mere `None` would be of two types then.
/// A row that was found, or not.
impl<V> From<Option<V>> for Answer<V> {
    fn from(found: Option<V>) -> Self {
        found.map_or_else(Self::absent, Self::value)
    }
}

// By hand, since a value need not be `Clone` for it.
impl<V> Clone for Answer<V> {
    fn clone(&self) -> Self {
        let outcome = match &self.outcome {
            Outcome::Value(value) => Outcome::Value(value.clone()),
            Outcome::Absent => Outcome::Absent,
            Outcome::Unchanged => Outcome::Unchanged,
            Outcome::Pass(value, remember) => Outcome::Pass(value.clone(), *remember),
        };
        let Self { overrides, tags, validator, cost, .. } = self;
        let (tags, validator) = (tags.clone(), validator.clone());
        Self { outcome, overrides: *overrides, tags, validator, cost: *cost }
    }
}

impl<V> fmt::Debug for Answer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Value(_) => "value",
            Outcome::Absent => "absent",
            Outcome::Unchanged => "unchanged",
            Outcome::Pass(..) => "pass",
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

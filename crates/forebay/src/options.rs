//! What one call wants differently.

use std::time::Duration;

use forebay_core::Demand;

use crate::lifetimes::{Fresh, LifetimeOverrides};
use crate::schedule::Schedule;

/// What one call wants differently from the others; see [`Cache::with`](crate::Cache::with).
///
/// ```
/// use std::time::Duration;
/// use forebay::Options;
///
/// let options = Options::new().max_stale(Duration::from_secs(5)).tags(["users"]);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    max_stale: Option<Duration>,
    max_age: Option<Duration>,
    force_refresh: bool,
    only_if_cached: bool,
    beta: Option<f64>,
    soft_timeout: Option<Duration>,
    pub(crate) hard_timeout: Option<Duration>,
    pub(crate) overrides: LifetimeOverrides,
    pub(crate) tags: Vec<Box<str>>,
}

impl Options {
    /// A call like all others.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value will do that is up to this long past its time, without a refresh.
    pub const fn max_stale(mut self, max: Duration) -> Self {
        self.max_stale = Some(max);
        self
    }

    /// Only a value will do that was loaded, or found unchanged, within this time.
    pub const fn never_older_than(mut self, max: Duration) -> Self {
        self.max_age = Some(max);
        self
    }

    /// Only a value will do whose load began after this call: as after a write of one's own.
    pub const fn force_refresh(mut self) -> Self {
        self.force_refresh = true;
        self
    }

    /// Nothing is to be loaded: what is not at hand is [`Error::NotCached`](crate::Error).
    pub const fn only_if_cached(mut self) -> Self {
        self.only_if_cached = true;
        self
    }

    /// How eagerly to refresh early: 0 never, 1 the published optimum, more is earlier.
    pub const fn beta(mut self, beta: f64) -> Self {
        self.beta = Some(beta);
        self
    }

    /// How long a load may take before a stale value is served in its stead, if there is one that
    /// may be. The load goes on.
    pub const fn soft_timeout(mut self, after: Duration) -> Self {
        self.soft_timeout = Some(after);
        self
    }

    /// How long this call waits at all. The load goes on.
    pub const fn hard_timeout(mut self, after: Duration) -> Self {
        self.hard_timeout = Some(after);
        self
    }

    /// How long is fresh what this call loads or sets, unless the answer says so itself; kept to
    /// the letter, without jitter.
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

    /// Tags for what this call loads or sets.
    pub fn tags<T: Into<Box<str>>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// In the engine's words.
    pub(crate) fn demand(&self, usual: &Demand) -> Demand {
        let soft_timeout = self.soft_timeout.or(usual.soft_timeout);
        Demand {
            max_age: self.max_age,
            min_fresh: usual.min_fresh,
            max_stale: self.max_stale,
            revalidate: self.force_refresh,
            only_if_cached: self.only_if_cached,
            no_store: false,
            beta: self.beta.unwrap_or(usual.beta),
            // Who gives up after a time would rather have something stale then.
            soft_timeout: match (soft_timeout, self.hard_timeout) {
                (Some(soft), Some(hard)) => Some(soft.min(hard)),
                (soft, hard) => soft.or(hard),
            },
            stale_if_unreachable: usual.stale_if_unreachable,
        }
    }
}

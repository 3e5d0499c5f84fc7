//! Options of single calls.

use std::time::Duration;

use forebay_core::Demand;

use crate::lifetimes::schedule::Schedule;
use crate::lifetimes::{Fresh, LifetimeOverrides, entry_setters};

/// Options of single calls, which override settings of the cache; see
/// [`Cache::with`](crate::Cache::with).
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
    /// Creates options that change nothing: a call uses the settings of its cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets calls accept a value that became stale at most this long ago, without starting a
    /// refresh. A value that [`Cache::expire`](crate::Cache::expire) or
    /// [`expire_tag`](crate::Cache::expire_tag) made stale is not accepted.
    pub const fn max_stale(mut self, max: Duration) -> Self {
        self.max_stale = Some(max);
        self
    }

    /// Lets calls accept only a fresh value that was loaded, set or found unchanged within this
    /// time; with [`max_stale`](Self::max_stale) also a stale one. An older value is not served
    /// even if the load fails.
    pub const fn never_older_than(mut self, max: Duration) -> Self {
        self.max_age = Some(max);
        self
    }

    /// Lets calls accept only a value whose load starts after the call, as after a write by the
    /// caller. If the load fails, the call fails: no stored value is served instead.
    pub const fn force_refresh(mut self) -> Self {
        self.force_refresh = true;
        self
    }

    /// Forbids loads: a call that finds no usable value in memory or a lower tier fails with
    /// [`Error::NotCached`](crate::Error::NotCached). Calls that only look up are not affected.
    pub const fn only_if_cached(mut self) -> Self {
        self.only_if_cached = true;
        self
    }

    /// Sets the factor of early refresh for calls: 0 disables it, 1 is the published optimum
    /// (XFetch), and larger values refresh earlier. It must be finite and not negative. Default:
    /// [`Builder::beta`](crate::Builder::beta).
    pub const fn beta(mut self, beta: f64) -> Self {
        self.beta = Some(beta);
        self
    }

    /// Sets the time after which a call that waits for a load gets the stale value instead, if
    /// there is one within [`stale_if_error`](crate::Builder::stale_if_error). The time runs from
    /// the start of the load, or of its search in lower tiers. The load continues. Default:
    /// [`Builder::soft_timeout`](crate::Builder::soft_timeout).
    pub const fn soft_timeout(mut self, after: Duration) -> Self {
        self.soft_timeout = Some(after);
        self
    }

    /// Sets the maximum time that a call with a loader waits. After it, the call gets the stale
    /// value, if there is one within [`stale_if_error`](crate::Builder::stale_if_error), or fails
    /// with [`Error::TimedOut`](crate::Error::TimedOut). The load continues, and its result is
    /// stored. Default: [`Builder::hard_timeout`](crate::Builder::hard_timeout).
    pub const fn hard_timeout(mut self, after: Duration) -> Self {
        self.hard_timeout = Some(after);
        self
    }

    entry_setters!();

    /// Converts the options to a demand of the engine; `default` fills in what they leave open.
    pub(crate) fn demand(&self, default: &Demand) -> Demand {
        let soft_timeout = self.soft_timeout.or(default.soft_timeout);
        Demand {
            max_age: self.max_age,
            min_fresh: default.min_fresh,
            max_stale: self.max_stale,
            revalidate: self.force_refresh,
            only_if_cached: self.only_if_cached,
            no_store: false,
            beta: self.beta.unwrap_or(default.beta),
            // At the hard timeout a stale value is better than an error.
            soft_timeout: match (soft_timeout, self.hard_timeout) {
                (Some(soft), Some(hard)) => Some(soft.min(hard)),
                (soft, hard) => soft.or(hard),
            },
            stale_if_unreachable: default.stale_if_unreachable,
        }
    }
}

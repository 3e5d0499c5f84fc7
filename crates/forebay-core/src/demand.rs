//! Requirements of one caller for its answer.

use std::time::Duration;

/// Requirements of one caller. Request directives of RFC 9111 section 5.2.1 and the per-call
/// options of the library are both translated into this struct, so that one [`judge`] serves both.
///
/// [`judge`]: crate::judge()
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Maximum age of the entry that the caller accepts; `None` for any age. A maximum without
    /// `max_stale` also refuses stale answers within the entry's own stale windows.
    pub max_age: Option<Duration>,
    /// Minimum remaining freshness lifetime of the entry that the caller accepts; `None` for no
    /// minimum. A minimum refuses every stale answer.
    pub min_fresh: Option<Duration>,
    /// Maximum time since its expiry for which the caller accepts an entry, unless the entry
    /// forbids stale answers or a soft purge applies to it; `None` accepts no expired entry, except
    /// in the entry's own stale windows.
    pub max_stale: Option<Duration>,
    /// Requires an answer that was loaded or validated after this demand was made.
    pub revalidate: bool,
    /// Forbids loads and background refreshes: a request that memory does not answer fails. The
    /// engine then does not search lower tiers; a front end may search them first.
    pub only_if_cached: bool,
    /// Forbids storing the result of a load for this demand. Such a load is for this caller alone,
    /// and lower tiers are not searched. An entry in memory may still answer.
    pub no_store: bool,
    /// Eagerness of early refresh (XFetch): 0 disables it, 1 is the published optimum, larger values
    /// refresh earlier.
    pub beta: f64,
    /// Time after the start of the load at which the caller gets a stale entry, if one may be
    /// served; the load continues. `None`: the caller waits for the end of the load. A wait for
    /// another instance that loads the key has its own limit.
    pub soft_timeout: Option<Duration>,
    /// Maximum time since its expiry for which the caller accepts an entry while the origin is
    /// [unreachable](crate::OriginFailure::Unreachable). The entry's own stale-if-error window
    /// applies if it is longer. Not used if the entry forbids stale answers, or if `min_fresh`, or
    /// `max_age` without `max_stale`, is set.
    pub stale_if_unreachable: Duration,
}

impl Demand {
    /// Returns true if every fresh entry that no purge affects satisfies this demand: it sets no
    /// maximum age and no minimum freshness, and does not require revalidation. In the last tenth
    /// of an entry's lifetime, an early refresh may follow.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.max_age.is_none() && self.min_fresh.is_none() && !self.revalidate
    }
}

impl Default for Demand {
    /// Accepts every fresh answer, refreshes early with `beta` 1, and accepts stale answers only in
    /// the windows of the entry.
    fn default() -> Self {
        Self {
            max_age: None,
            min_fresh: None,
            max_stale: None,
            revalidate: false,
            only_if_cached: false,
            no_store: false,
            beta: 1.0,
            soft_timeout: None,
            stale_if_unreachable: Duration::ZERO,
        }
    }
}

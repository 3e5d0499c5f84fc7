//! What one caller requires of an answer.

use std::time::Duration;

/// What one caller requires. Request directives of RFC 9111 section 5.2.1 and the per-call
/// options of the typed library are both translated into this, so that one [`judge`] serves both.
///
/// [`judge`]: crate::judge()
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// The answer may not be older than this.
    pub max_age: Option<Duration>,
    /// The answer must stay fresh for at least this long from now on.
    pub min_fresh: Option<Duration>,
    /// An answer may be served up to this long past its lifetime, where nothing forbids it.
    pub max_stale: Option<Duration>,
    /// Only an answer that was loaded or validated after this demand was made will do.
    pub revalidate: bool,
    /// Nothing may be loaded: what is not at hand is an error.
    pub only_if_cached: bool,
    /// Nothing that is loaded for this demand may be kept.
    pub no_store: bool,
    /// How eagerly to refresh early: 0 is never, 1 is the published optimum, more is earlier.
    pub beta: f64,
    /// How long a load may take before a stale answer is served in its stead while it goes on;
    /// nothing: as long as the load takes. Matters only where a stale answer may be served.
    pub soft_timeout: Option<Duration>,
    /// For how long past its lifetime an answer may be served while the origin cannot be reached,
    /// where nothing forbids it. An answer that names a longer time for errors has that.
    pub stale_if_unreachable: Duration,
}

impl Demand {
    /// Whether anything will do that is fresh and not about to expire.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.max_age.is_none() && self.min_fresh.is_none() && !self.revalidate
    }
}

impl Default for Demand {
    /// Any fresh answer will do, refreshed early with `beta` 1, and nothing stale that the answer
    /// itself does not allow.
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

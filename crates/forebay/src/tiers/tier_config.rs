//! A tier below memory, with an optional maximum lifetime of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Tier, TierSetup};

/// Lower tier of a cache, with an optional limit on the freshness lifetime of its values.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use forebay::{Tier, TierConfig};
/// # fn two(disk: Arc<dyn Tier>, redis: Arc<dyn Tier>) -> [TierConfig; 2] {
/// // One hour on disk; in the shared tier as long as each value's own lifetime.
/// [TierConfig::new(disk).ttl(Duration::from_secs(3_600)), TierConfig::new(redis)]
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct TierConfig {
    tier: Arc<dyn Tier>,
    pub(crate) ttl: Option<Duration>,
}

impl TierConfig {
    /// Creates the configuration of a tier in which each value has its own lifetime.
    pub fn new(tier: Arc<dyn Tier>) -> Self {
        Self { tier, ttl: None }
    }

    /// Sets the maximum freshness lifetime of values in the tier, counted from their load. Tiers
    /// above, memory included, get the same limit if they have none of their own; theirs must not
    /// be longer. Stale windows follow it as usual. Default: the value's own lifetime.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }

    pub(crate) fn name(&self) -> String {
        self.tier.name().to_owned()
    }

    pub(crate) fn setup(self) -> TierSetup {
        TierSetup { fresh_max: self.ttl, ..TierSetup::new(self.tier) }
    }
}

impl From<Arc<dyn Tier>> for TierConfig {
    fn from(tier: Arc<dyn Tier>) -> Self {
        Self::new(tier)
    }
}

impl<T: Tier> From<Arc<T>> for TierConfig {
    fn from(tier: Arc<T>) -> Self {
        Self::new(tier)
    }
}

impl fmt::Debug for TierConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierConfig")
            .field("tier", &self.tier.name())
            .field("ttl", &self.ttl)
            .finish()
    }
}

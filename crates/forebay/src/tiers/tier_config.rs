//! A tier below memory, with an optional maximum lifetime of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Key, KeyRef, Lifetime, Meta, Purge};
use forebay_engine::bus::{Bookmark, Chain};
use forebay_engine::{Budget, LeasedWrite, Stored, Tier, TierError, Writer};
use futures_util::future::BoxFuture;

/// Lower tier of a cache, with an optional limit on how long it keeps values.
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
    /// Creates the configuration of a tier that keeps each value for the value's own lifetime.
    pub fn new(tier: Arc<dyn Tier>) -> Self {
        Self { tier, ttl: None }
    }

    /// Sets the maximum time for which the tier keeps a value, counted from its load. The tiers
    /// above it must not keep values longer; those without a limit of their own get this one.
    /// Default: the value's own lifetime.
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

    pub(crate) fn tier(self) -> Arc<dyn Tier> {
        match self.ttl {
            None => self.tier,
            Some(ttl) => Arc::new(CappedTier { tier: self.tier, ttl }),
        }
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

/// A tier that caps the freshness lifetime of the entries it writes.
struct CappedTier {
    tier: Arc<dyn Tier>,
    ttl: Duration,
}

impl CappedTier {
    fn capped(&self, meta: &Meta) -> Meta {
        let mut capped = meta.clone();
        let lifetime = meta.lifetime();
        let fresh = lifetime.fresh.min(self.ttl);
        capped.set_lifetime(Lifetime { fresh, ..lifetime });
        capped
    }
}

#[warn(clippy::missing_trait_methods)]
impl Tier for CappedTier {
    fn name(&self) -> &'static str {
        self.tier.name()
    }

    fn budget(&self) -> Budget {
        self.tier.budget()
    }

    fn open<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<Option<Stored>, TierError>> {
        self.tier.open(key)
    }

    fn open_many<'a>(
        &'a self,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Vec<Option<Stored>>, TierError>> {
        self.tier.open_many(keys)
    }

    fn begin<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        Box::pin(async move {
            let capped = self.capped(meta);
            self.tier.begin(key, &capped, head).await
        })
    }

    fn begin_put<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        Box::pin(async move {
            let capped = self.capped(meta);
            self.tier.begin_put(key, &capped, head).await
        })
    }

    fn begin_leased<'a>(
        &'a self,
        key: KeyRef<'a>,
        meta: &'a Meta,
        head: &'a Bytes,
        lease: LeasedWrite<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, TierError>> {
        Box::pin(async move {
            let capped = self.capped(meta);
            self.tier.begin_leased(key, &capped, head, lease).await
        })
    }

    fn takes(&self, primary: KeyRef<'_>) -> bool {
        self.tier.takes(primary)
    }

    fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }

    fn purge<'a>(&'a self, what: &'a Purge) -> BoxFuture<'a, Result<(), TierError>> {
        self.tier.purge(what)
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.tier.bookmark()
    }

    fn keep_bookmark<'a>(
        &'a self,
        bookmark: &'a Bookmark,
        chain: Chain,
    ) -> BoxFuture<'a, Result<(), TierError>> {
        self.tier.keep_bookmark(bookmark, chain)
    }

    fn carries_out_purges(&self) -> bool {
        self.tier.carries_out_purges()
    }

    fn has_drafts(&self) -> bool {
        self.tier.has_drafts()
    }

    fn remove<'a>(&'a self, key: KeyRef<'a>) -> BoxFuture<'a, Result<bool, TierError>> {
        self.tier.remove(key)
    }
}

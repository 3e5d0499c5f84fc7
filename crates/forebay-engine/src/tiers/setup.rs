//! Settings with which the engine uses a tier: name, lifetime and namespaces.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Lifetime, Meta};

use super::tier::Tier;

/// Tier below memory with the settings of one engine. A tier alone, `TierSetup::new(tier)`, stores
/// entries of all keys for their own lifetime.
#[derive(Clone)]
pub struct TierSetup {
    /// Tier that stores the entries.
    pub tier: Arc<dyn Tier>,
    /// Name in metrics, logs and responses; by default that of the tier.
    pub name: &'static str,
    /// Maximum freshness lifetime of the entries that the tier stores; `None` for no maximum.
    pub fresh_max: Option<Duration>,
    /// Keys that the tier stores. The engine skips the tier for all others, and ignores its
    /// failures for them.
    pub namespaces: Namespaces,
}

/// Namespaces of the keys whose entries a tier stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All namespaces.
    #[default]
    All,
    /// Only this namespace.
    Only(Box<[u8]>),
    /// All namespaces except these.
    Except(Box<[Box<[u8]>]>),
}

impl Namespaces {
    /// Returns `true` if entries of this namespace are stored.
    #[must_use]
    pub fn contains(&self, namespace: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Only(one) => **one == *namespace,
            Self::Except(others) => !others.iter().any(|other| **other == *namespace),
        }
    }
}

impl TierSetup {
    /// Returns the settings of a tier that stores entries of all keys for their own lifetime.
    #[must_use]
    pub fn new(tier: Arc<dyn Tier>) -> Self {
        let name = tier.name();
        Self { tier, name, fresh_max: None, namespaces: Namespaces::All }
    }

    pub(super) fn takes(&self, primary: KeyRef<'_>) -> bool {
        self.namespaces.contains(primary.namespace()) && !primary.is_memory_only()
    }

    /// Returns the metadata with the maximum lifetime, if the entry's own is longer.
    pub(super) fn capped(&self, meta: &Meta) -> Option<Meta> {
        let lifetime = meta.lifetime();
        let fresh = self.fresh_max.filter(|max| *max < lifetime.fresh)?;
        let mut capped = meta.clone();
        capped.set_lifetime(Lifetime { fresh, ..lifetime });
        Some(capped)
    }
}

impl From<Arc<dyn Tier>> for TierSetup {
    fn from(tier: Arc<dyn Tier>) -> Self {
        Self::new(tier)
    }
}

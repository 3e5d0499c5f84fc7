//! Request of one caller.

use forebay_core::{Demand, KeyRef};

use crate::entry::select::{Credentials, Select};

/// Request of one caller. It borrows everything, because most requests are hits.
pub struct Lookup<'a> {
    /// Primary key.
    pub key: KeyRef<'a>,
    /// Requirements of the caller.
    pub demand: &'a Demand,
    /// Fields that select a variant.
    pub select: &'a dyn Select,
    /// Presence of credentials in the request.
    pub credentials: Credentials,
    /// Sharing of a load with other callers.
    pub coalesce: Coalesce,
}

/// Sharing of a load with other callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Coalesce {
    /// No sharing: the caller gets a load of its own.
    Never,
    /// Sharing with callers of this instance. Other instances are not waited for.
    Instance,
    /// Sharing with callers of all instances.
    #[default]
    Cluster,
}

impl Coalesce {
    /// Returns [`Cluster`](Self::Cluster) if sharing is allowed, otherwise [`Never`](Self::Never).
    #[must_use]
    pub const fn from_bool(is_allowed: bool) -> Self {
        if is_allowed { Self::Cluster } else { Self::Never }
    }

    /// Restricts sharing to callers of this instance.
    #[must_use]
    pub const fn within_instance(self) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Instance | Self::Cluster => Self::Instance,
        }
    }
}

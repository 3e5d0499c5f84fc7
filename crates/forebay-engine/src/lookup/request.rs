//! Request of one caller.

use forebay_core::{Demand, KeyRef};

use crate::entry::select::{Credentials, Select};

/// Request of one caller to the engine. It borrows all its parts, because most requests are hits.
pub struct Lookup<'a> {
    /// Primary key of the entry: the key that all its variants share.
    pub key: KeyRef<'a>,
    /// Requirements of the caller: maximum age, accepted staleness, and more.
    pub demand: &'a Demand,
    /// Request fields from which one of several variants is selected.
    pub select: &'a dyn Select,
    /// Says whether the request carries credentials, such as `Authorization` or `Cookie`.
    pub credentials: Credentials,
    /// Says with which other callers this request may share a load.
    pub coalesce: Coalesce,
}

/// Callers with which a request may share a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Coalesce {
    /// The request shares no load: the caller gets a load of its own.
    Never,
    /// The request shares a load with callers of this instance, and does not wait for other
    /// instances.
    Instance,
    /// The request shares a load with callers of all instances. This is the default.
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

//! Floors: versions below which values are not stored under a key for some time.
//!
//! An entry carries its version, but it can be removed, evicted, or exist in one tier only. So the
//! newest known version of a key is remembered as a floor: here, and by the shared tier for all
//! instances. A lost floor refuses nothing; then versions are compared with stored entries only.

use forebay_core::{KeyRef, Timestamp};

use crate::runtime::bounded_map::BoundedMap;
use crate::tiers::bus::Newer;

/// Bytes of one floor besides its key.
const OVERHEAD: u64 = 96;

/// Newest known version of each of some keys.
pub(crate) struct Floors(BoundedMap<Floor>);

#[derive(Clone, Copy, Debug)]
struct Floor {
    version: u64,
    until: Timestamp,
}

impl Floors {
    pub(crate) fn new() -> Self {
        Self(BoundedMap::new(OVERHEAD))
    }

    /// Returns the floor of a key.
    pub(crate) fn of(&self, key: KeyRef<'_>, now: Timestamp) -> Option<u64> {
        self.0.get(key).filter(|floor| now < floor.until).map(|floor| floor.version)
    }

    /// Sets the floor of a key to a newer version.
    pub(crate) fn raise(&self, key: KeyRef<'_>, newer: Newer, now: Timestamp) {
        let floor = Floor { version: newer.version, until: now.plus(newer.keep) };
        self.0.insert(key, floor);
    }
}

//! Locks, atomics and tasks of flights, bodies and the memory tier, in one place.
//!
//! Interleaving tests replace them by those of a scheduler, which may switch to another task at
//! each of them. Only unit tests are built that way, and not with the feature alone.

#[cfg(feature = "interleavings")]
#[cfg(test)]
mod scheduled;

#[cfg(all(test, feature = "interleavings"))]
pub(crate) use scheduled::{
    Cache, Mutex, MutexGuard, RwLock, atomic, finish_tasks, hasher, schedule, spawn, timeout,
};

#[cfg(not(all(test, feature = "interleavings")))]
pub(crate) use self::plain::*;

#[cfg(not(all(test, feature = "interleavings")))]
mod plain {
    pub(crate) use std::sync::atomic;

    pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
    pub(crate) use quick_cache::sync::Cache;
    pub(crate) use tokio::spawn;
    pub(crate) use tokio::time::timeout;

    /// Hash function with a random seed per process, so that colliding keys cannot be chosen.
    pub(crate) fn hasher() -> ahash::RandomState {
        ahash::RandomState::new()
    }
}

//! What flights, bodies and the memory tier synchronise with, in one place.
//!
//! Interleaving tests put a scheduler's own locks here, and let it switch to another task at each
//! of them. Nothing but unit tests is ever built that way: not with the feature alone, either.

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

    /// Keys are hashed with a seed of the process, so that nobody can choose ones that meet.
    pub(crate) fn hasher() -> ahash::RandomState {
        ahash::RandomState::new()
    }
}

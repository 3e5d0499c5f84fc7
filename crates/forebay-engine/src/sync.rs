//! The locks of flights, bodies and the memory tier, in one place, so that a build for
//! interleaving tests can put others there.

pub(crate) use parking_lot::{Mutex, MutexGuard};

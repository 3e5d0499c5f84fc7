//! Clock, random numbers, locks, tasks, events, and two small collections.
//!
//! Everything here is independent of caching, and uses no other folder of this crate. It never sees
//! an entry, a tier or a flight.

pub mod clock;
pub(crate) mod event;

pub(crate) mod bounded_map;
pub(crate) mod sync;
pub(crate) mod wakers;

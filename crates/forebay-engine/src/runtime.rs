//! Clock, random numbers, locks, tasks, events, and two small collections.
//!
//! Everything here is independent of caching, and uses no other folder of this crate. It never sees
//! an entry, a tier or a flight.

use std::any::Any;

pub mod clock;
pub(crate) mod event;

pub(crate) mod bounded_map;
pub(crate) mod sync;
pub(crate) mod wakers;

/// Returns the message of a caught panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

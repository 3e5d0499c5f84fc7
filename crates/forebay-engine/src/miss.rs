//! Requests that memory did not answer: following a flight, leading one, or loading alone.
//!
//! Ends with an entry, an error, or a stale fallback. This folder uses `engine`, `fill`, `flight`,
//! `lookup` and `runtime`; it never sees a tier, a lease or the body of an entry.

mod refresh;
mod wait;

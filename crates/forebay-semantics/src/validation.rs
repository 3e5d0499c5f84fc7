//! Conditional requests to the origin, 304 to clients, and updates of a stored response.
//!
//! This folder uses `message`, `freshness`, `forwarding` and `fields`.

pub mod freshen;
pub mod validate;

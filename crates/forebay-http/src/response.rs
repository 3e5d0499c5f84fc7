//! Responses to clients: from stored entries, with their bodies, and error pages.
//!
//! This folder uses `compress`, `load` (results for the request that loaded), `stored`, `origin` (bodies), `tunnel`,
//! `failure` and `request_guard`; it never sees sites or the engine's lookups.

pub(crate) mod body;
pub(crate) mod deliver;
pub(crate) mod encoded;
pub(crate) mod error_page;

//! Client connections: their start, the protocol on them, and their end.
//!
//! | module | contents |
//! |---|---|
//! | [`connection`] | one client connection |
//! | `frames` | guard below HTTP/2: control frames, slow heads |
//! | `http1` | one HTTP/1 connection, with hyper during an exchange |
//! | `http2` | one HTTP/2 connection |
//! | [`proxy_protocol`] | PROXY protocol headers at the start of a connection |
//! | `sniff` | preface of HTTP/2 on a cleartext connection |
//! | `streams` | streams of an HTTP/2 connection: early resets, slow readers |
//! | `woken_only` | futures that are polled only after they were woken |
//! | [`accept`] | start of a connection |
//! | [`address_limits`] | maximum number of connections per client address |
//!
//! This folder uses `direct`, `service`, `response` and `request_guard`; it never sees sites or loads.

pub mod accept;
pub mod address_limits;
pub mod connection;
mod frames;
mod http1;
mod http2;
pub mod proxy_protocol;
mod sniff;
mod streams;
mod woken_only;

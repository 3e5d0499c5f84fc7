//! Edge of the cache: what is known of the connection and the client of a request.
//!
//! | module | contents |
//! |---|---|
//! | `frames` | guard below HTTP/2: control frames, slow heads |
//! | `http2` | one HTTP/2 connection |
//! | [`peer`] | connection and client of a request |
//! | [`proxy_protocol`] | PROXY protocol headers at the start of a connection |
//! | `sniff` | preface of HTTP/2 on a cleartext connection |
//! | `streams` | streams of an HTTP/2 connection: early resets, slow readers |
//! | `secure` | redirect to https, and `Strict-Transport-Security` |
//! | [`accept`] | start of a connection |
//! | [`address_limits`] | maximum number of connections per client address |

pub mod accept;
pub mod address_limits;
mod frames;
mod http2;
pub mod peer;
pub mod proxy_protocol;
pub(crate) mod secure;
mod sniff;
mod streams;

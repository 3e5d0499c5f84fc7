//! Edge of the cache: what is known of the connection and the client of a request.
//!
//! | module | contents |
//! |---|---|
//! | [`peer`] | connection and client of a request |
//! | [`proxy_protocol`] | PROXY protocol headers at the start of a connection |
//! | `secure` | redirect to https, and `Strict-Transport-Security` |
//! | [`accept`] | start of a connection |
//! | [`address_limits`] | maximum number of connections per client address |

pub mod accept;
pub mod address_limits;
pub mod peer;
pub mod proxy_protocol;
pub(crate) mod secure;

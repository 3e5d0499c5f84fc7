//! TLS for forebay: certificates, their reload, server and client configurations.
//!
//! | module | contents |
//! |---|---|
//! | [`acme`] | automatic certificates |
//! | [`certificate`] | a certificate with its key, read from PEM files and checked |
//! | [`store`] | all certificates of a process; selection by server name; reload of changed files |
//! | [`client`] | client configurations, and the reasons for which a handshake fails |
//! | [`server`] | server configurations, and handshakes within bounds |
//!
//! Deliberately absent: HTTP servers, listeners and configuration files. No cipher suite and no version
//! below 1.2 can be selected, because the defaults of rustls are safe.

pub mod acme;
pub mod certificate;
pub mod client;
pub mod server;
pub mod store;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the cryptography provider of rustls, ring, which all configurations of this crate use.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

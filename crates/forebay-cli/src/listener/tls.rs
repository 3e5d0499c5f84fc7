//! TLS servers of the listeners, and the watch over certificate files.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use forebay_tls::acme::Acme;
use forebay_tls::server::{TlsServer, TlsSettings};
use forebay_tls::store::CertificateStore;
use tokio::sync::Semaphore;

use crate::config::Protocol;
use crate::config::resolved::{ResolvedConfig, ResolvedListener, ResolvedTls};

/// Maximum number of handshakes under way, for each worker. Handshakes are the most expensive part of
/// a connection.
const HANDSHAKES_PER_WORKER: usize = 256;

/// Certificates of the process, and the bound on handshakes.
pub(crate) struct Tls {
    pub(crate) store: Arc<CertificateStore>,
    /// Automatic certificates.
    pub(crate) acme: Option<Arc<Acme>>,
    handshakes: Arc<Semaphore>,
    settings: ResolvedTls,
}

impl Tls {
    /// Loads the certificates of the configuration. `None` if it has no `[tls]`.
    ///
    /// # Errors
    /// If a certificate cannot be loaded; the configuration check has loaded it already.
    pub(crate) fn load(config: &ResolvedConfig) -> anyhow::Result<Option<Self>> {
        let Some(settings) = config.tls.clone() else { return Ok(None) };
        let store = CertificateStore::load(&settings.certificates)?;
        let acme = settings.acme.clone().map(Acme::new);
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_PER_WORKER * config.threads));
        Ok(Some(Self { store, acme, handshakes, settings }))
    }

    /// Server of one listener.
    ///
    /// # Errors
    /// One sentence if the authority of client certificates cannot be used.
    pub(crate) fn server(&self, listener: &ResolvedListener) -> anyhow::Result<TlsServer> {
        let settings = TlsSettings {
            min_version: self.settings.min_version,
            protocols: listener.protocols.iter().map(|protocol| alpn(*protocol)).collect(),
            client_certificates: listener.client_certificates,
            authority: self.settings.authority.clone(),
            handshake_timeout: self.settings.handshake_timeout,
        };
        let server = TlsServer::new(&settings, self.store.clone(), self.handshakes.clone());
        let server = server
            .map_err(|sentence| anyhow::anyhow!("listener {}: {sentence}", listener.address))?;
        Ok(server.with_answers(self.acme.as_ref().map(|acme| acme.answers().clone())))
    }

    /// Starts to order automatic certificates, and to watch certificate files.
    ///
    /// # Errors
    /// If the automatic certificates cannot be started.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        if let Some(acme) = &self.acme {
            let started = acme.start(self.store.clone());
            started.context("automatic certificates cannot be started")?;
        }
        if !self.settings.watch.is_zero() {
            tokio::spawn(watch(self.store.clone(), self.settings.watch));
        }
        Ok(())
    }
}

/// Name of a protocol in TLS (RFC 7301).
fn alpn(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::H2 | Protocol::H2c => b"h2".to_vec(),
    }
}

/// Loads changed certificate files at an interval.
async fn watch(store: Arc<CertificateStore>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let refreshing = store.clone();
        let refreshed = tokio::task::spawn_blocking(move || refreshing.refresh()).await;
        let Ok((replaced, errors)) = refreshed else { continue };
        if replaced > 0 {
            tracing::info!(certificates = replaced, "changed certificates are in use");
        }
        for error in errors {
            tracing::error!("certificate not loaded, the previous one stays in use: {error}");
        }
    }
}

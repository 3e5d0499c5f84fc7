//! Answers to challenges. They are read from files, because any instance of a fleet may be asked.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;

use super::AcmeSettings;
use super::storage::AcmeStorage;

/// Application protocol of `tls-alpn-01` (RFC 8737 section 6.2).
const ACME_TLS_1: &[u8] = b"acme-tls/1";

/// Beginning of the URL path at which the authority asks for an answer to `http-01`; the token
/// follows it (RFC 8555 section 8.3).
pub const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// Reader of the answers to challenges, which any instance with the same storage has written.
#[derive(Debug)]
pub struct ChallengeAnswers {
    places: ArcSwap<Places>,
}

/// Names and files of one configuration.
#[derive(Debug)]
struct Places {
    storage: AcmeStorage,
    names: HashSet<Box<str>>,
}

impl Places {
    fn new(settings: &AcmeSettings) -> Self {
        let names = settings.names.iter().map(|name| name.as_str().into()).collect();
        Self { storage: AcmeStorage::new(settings), names }
    }
}

impl ChallengeAnswers {
    pub(super) fn new(settings: &AcmeSettings) -> Self {
        Self { places: ArcSwap::from_pointee(Places::new(settings)) }
    }

    pub(super) fn replace(&self, settings: &AcmeSettings) {
        self.places.store(Arc::new(Places::new(settings)));
    }

    /// Returns `true` if this host is one of the configured names of automatic certificates. It is
    /// given in lower case and without a port.
    #[must_use]
    pub fn has_name(&self, host: &str) -> bool {
        self.places.load().names.contains(host)
    }

    /// Returns the answer to the challenge `http-01` with this token; `None` if no order waits for
    /// one, or the token is not valid. Reads a file, so it must not be called by a thread that
    /// serves connections.
    #[must_use]
    pub fn http_01(&self, token: &str) -> Option<Vec<u8>> {
        // A dot is in the names of files of `tls-alpn-01`, which have private keys.
        let is_token = !token.contains('.');
        is_token.then(|| self.places.load().storage.challenge(token))?
    }

    /// Returns the configuration for a handshake of the challenge `tls-alpn-01`; `None` if the name
    /// is not configured, or no order for it waits for an answer. The name is in lower case. Reads
    /// a file, so it must not be called by a thread that serves connections.
    #[must_use]
    pub fn tls_alpn_01(&self, name: &str) -> Option<Arc<ServerConfig>> {
        let places = self.places.load();
        let pem = places.names.contains(name).then(|| places.storage.challenge(&file(name)))??;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let key = PrivateKeyDer::from_pem_slice(&pem).ok()?;
        let provider = crate::provider();
        let key = provider.key_provider.load_private_key(key).ok()?;
        // `CertifiedKey::from_der` refuses the critical extension of the certificate.
        let certified = Arc::new(CertifiedKey::new(chain.ok()?, key));
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::new(Fixed(certified)));
        config.alpn_protocols = vec![ACME_TLS_1.to_vec()];
        Some(Arc::new(config))
    }
}

/// Returns `true` if a client offers `acme-tls/1`, the protocol of the challenge `tls-alpn-01`, and
/// no other application protocol (RFC 8737 section 3).
#[must_use]
pub fn acme_tls_alpn(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|offered| offered.eq([ACME_TLS_1]))
}

/// Name of the file of a `tls-alpn-01` answer.
pub(super) fn file(name: &str) -> String {
    format!("{name}.pem")
}

/// Builds the certificate of `tls-alpn-01` with its key as PEM. `digest` is the SHA-256 of the key
/// authorization.
pub(super) fn certificate(name: &str, digest: &[u8; 32]) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(key.serialize_pem() + &certificate.pem())
}

/// Resolver with one certificate.
#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

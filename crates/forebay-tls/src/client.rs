//! Client configurations: TLS connections to servers, and the verification of their certificates.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
pub use rustls::pki_types::ServerName;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError,
    RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::certificate::{CertificateFiles, FileRole, load_pair, read_certificates};

/// Encrypted stream to a server.
pub type ClientStream<S> = tokio_rustls::client::TlsStream<S>;

/// Authorities that may sign the certificate of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// The roots of Mozilla, which are part of the binary.
    Mozilla,
    /// The roots that the operating system trusts when the client is built.
    System,
    /// The certificates of this PEM file, and no others.
    File(PathBuf),
}

/// Settings of the connections to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Authorities that may sign the server's certificate.
    pub authorities: Authorities,
    /// Verifies the certificate of the server if `true`; accepts every certificate if `false`.
    pub verify: bool,
    /// Certificate that is sent to a server that asks for one; `None` sends none.
    pub certificate: Option<CertificateFiles>,
}

/// TLS client for one server. Two clients are equal if their settings are, and the certificates in
/// their files; neither the private keys nor the system's roots are compared.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    settings: ClientSettings,
    /// Hash of the contents of the files.
    contents: u64,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && self.contents == other.contents
    }
}

/// File or trust store for which a [`TlsClient`] cannot be built; the message names it.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct ClientError {
    /// File to correct.
    pub role: ClientFile,
    sentence: String,
}

/// File that a [`ClientError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFile {
    /// File of the authorities, or the trust store of the system.
    Authorities,
    /// File of the client's certificate.
    Certificate,
    /// File of the private key.
    Key,
}

impl TlsClient {
    /// Reads the files and builds the client.
    ///
    /// # Errors
    /// If a file cannot be read or used, if the client's certificate has expired or its key does
    /// not match, or if the system trusts no authority.
    pub fn new(settings: ClientSettings) -> Result<Self, ClientError> {
        let of_authorities = |sentence| ClientError { role: ClientFile::Authorities, sentence };
        let mut contents = DefaultHasher::new();
        let roots = roots(&settings.authorities, &mut contents).map_err(of_authorities)?;
        let provider = crate::provider();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| of_authorities(error.to_string()))?;
        let builder = if settings.verify {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(|error| of_authorities(error.to_string()))?;
            builder.with_webpki_verifier(verifier)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified))
        };
        let config = match &settings.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let pair = load_pair(files, SystemTime::now()).map_err(|error| ClientError {
                    role: match error.role {
                        FileRole::Certificate => ClientFile::Certificate,
                        FileRole::Key => ClientFile::Key,
                    },
                    sentence: error.to_string(),
                })?;
                pair.cert.iter().for_each(|certificate| certificate.hash(&mut contents));
                builder
                    .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)))
            }
        };
        Ok(Self { config: Arc::new(config), settings, contents: contents.finish() })
    }

    /// Returns `true` if the certificate of the server is verified.
    #[must_use]
    pub const fn verifies(&self) -> bool {
        self.settings.verify
    }

    /// Encrypts a connection by a TLS handshake, without a time limit. The server is asked for the
    /// certificate of `name`, and for one of `protocols` (ALPN), the preferred one first.
    ///
    /// # Errors
    /// If the connection or the handshake fails; [`TlsFailure::of`] returns the reason in TLS.
    pub async fn connect<S>(
        &self,
        name: ServerName<'static>,
        io: S,
        protocols: &[&[u8]],
    ) -> io::Result<ClientStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let connector = TlsConnector::from(self.config.clone());
        connector.with_alpn(protocols).connect(name, io).await
    }
}

fn roots(
    authorities: &Authorities,
    contents: &mut DefaultHasher,
) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Authorities::Mozilla => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Authorities::System => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err("the operating system has no trusted certificates".to_owned());
            }
        }
        Authorities::File(path) => {
            let named = |reason| format!("{} {reason}", path.display());
            for certificate in read_certificates(path).map_err(named)? {
                certificate.hash(contents);
                let added = roots.add(certificate);
                added.map_err(|error| named(format!("is not a certificate: {error}")))?;
            }
        }
    }
    Ok(Arc::new(roots))
}

/// Reason for which a TLS connection to a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The server's certificate has expired, or is not valid yet.
    Expired,
    /// The server's certificate is for another name.
    WrongName,
    /// The server's certificate is not signed by a trusted authority.
    UnknownAuthority,
    /// The server sent the alert `certificate_required` of TLS 1.3: it received no certificate of
    /// this client.
    NoClientCertificate,
    /// Any other failure of TLS.
    Other,
}

impl TlsFailure {
    /// Returns the reason, if the error is one of TLS; `None` for other errors of a connection.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        let error = error.get_ref()?.downcast_ref::<TlsError>()?;
        Some(match error {
            TlsError::InvalidCertificate(reason) => match reason {
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Expired,
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
                // A bad signature comes from an authority of the same name with another key.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    Self::UnknownAuthority
                }
                _ => Self::Other,
            },
            TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
                Self::NoClientCertificate
            }
            _ => Self::Other,
        })
    }

    /// Returns the code of a failed connection to an origin, for logs and error responses.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Expired => "origin-certificate-expired",
            Self::WrongName => "origin-certificate-name",
            Self::UnknownAuthority => "origin-certificate-authority",
            Self::NoClientCertificate => "origin-client-certificate",
            Self::Other => "origin-tls",
        }
    }
}

/// Accepts every certificate (`verify = false`).
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = crate::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = crate::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crate::provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;

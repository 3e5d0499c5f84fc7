//! Server configurations, and handshakes within bounds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{Acceptor, ServerConfig, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use crate::acme::{ChallengeAnswers, acme_tls_alpn};
use crate::certificate::{read, roots};
use crate::store::CertificateStore;

/// Lowest TLS version that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2, so that TLS 1.2 and 1.3 are accepted.
    #[default]
    Tls12,
    /// TLS 1.3, so that TLS 1.2 is refused.
    Tls13,
}

/// Use of client certificates by a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// No certificate is requested.
    #[default]
    Off,
    /// A certificate is requested; a handshake with an invalid one fails, one without any does not.
    Optional,
    /// A certificate is requested; a handshake with an invalid one, or without any, fails.
    Required,
}

/// Files with which client certificates are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    /// PEM file with the certificates of the authorities that sign client certificates.
    pub ca: PathBuf,
    /// PEM file with revocation lists; `None` means that no revocation is checked. With a file,
    /// each certificate of a client's chain needs the list of its issuer, or it is refused. The
    /// expiry of the lists is not checked.
    pub crl: Option<PathBuf>,
}

/// Settings of the TLS server of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Lowest TLS version.
    pub min_version: MinVersion,
    /// Application protocols (ALPN) in the order of preference, such as `h2`.
    pub protocols: Vec<Vec<u8>>,
    /// Use of client certificates.
    pub client_certificates: ClientCertificates,
    /// Authority of client certificates; required unless `client_certificates` is `Off`.
    pub authority: Option<ClientAuthority>,
    /// Maximum time of a handshake, with the wait for a slot of the process.
    pub handshake_timeout: Duration,
}

/// TLS server of one listener.
#[derive(Clone, Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    store: Arc<CertificateStore>,
    handshake_timeout: Duration,
    handshakes: Arc<Semaphore>,
    answers: Option<Arc<ChallengeAnswers>>,
}

/// Connection after its handshake.
pub struct Handshake<S> {
    /// Encrypted stream.
    pub stream: TlsStream<S>,
    /// `true` if the handshake resumed an earlier session.
    pub is_resumed: bool,
    /// `true` if the handshake agreed on HTTP/2 (ALPN `h2`).
    pub is_h2: bool,
    /// Verified certificate of the client as a value of `Client-Cert` (RFC 9440 section 2.2);
    /// `None` if the client sent none.
    pub client_certificate: Option<String>,
}

/// Reason for which a handshake led to no connection.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The handshake was not complete within `handshake_timeout`.
    #[error("the TLS handshake was not complete within handshake_timeout")]
    Timeout,
    /// The server has no certificate for the server name that the client requested, or for a client
    /// that requests none; or no order waits for the challenge `tls-alpn-01` of that name.
    #[error(
        "there is no certificate, or challenge answer, for the server name that the client \
         requested, or the client requested none"
    )]
    UnknownName,
    /// The handshake was the challenge `tls-alpn-01` of a certificate authority. It was answered,
    /// and the connection was closed.
    #[error("the handshake was a challenge of a certificate authority, and was answered")]
    Challenge,
    /// The client violated the protocol, its certificate is not valid, or the connection failed.
    #[error(transparent)]
    Failed(#[from] std::io::Error),
}

impl HandshakeError {
    /// Returns the value of the label `result` in the metric `forebay_handshakes_total`.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::UnknownName => "unknown-name",
            Self::Challenge => "challenge",
            Self::Failed(_) => "failed",
        }
    }
}

/// Alert `unrecognized_name` (RFC 6066 section 3) as a record. The rustls server has no way to send
/// it.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

const ONLY_1_3: &[&SupportedProtocolVersion] = &[&TLS13];
const FROM_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

impl TlsServer {
    /// Builds the server. Each permit of `handshakes`, which the servers of a process share, allows
    /// one handshake at a time.
    ///
    /// # Errors
    /// One sentence if the authority of client certificates is absent although it is required, or
    /// it cannot be used, or TLS cannot be set up.
    pub fn new(
        settings: &TlsSettings,
        store: Arc<CertificateStore>,
        handshakes: Arc<Semaphore>,
    ) -> Result<Self, String> {
        let versions = match settings.min_version {
            MinVersion::Tls12 => FROM_1_2,
            MinVersion::Tls13 => ONLY_1_3,
        };
        let provider = crate::provider();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let builder = match (settings.client_certificates, &settings.authority) {
            (ClientCertificates::Off, _) => builder.with_no_client_auth(),
            (_, None) => return Err("client certificates need `client_ca`".to_owned()),
            (asked, Some(authority)) => {
                let roots = Arc::new(roots(&authority.ca)?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                if let Some(crl) = &authority.crl {
                    verifier = verifier.with_crls(revocation_lists(crl)?);
                }
                if asked == ClientCertificates::Optional {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier.build();
                let ca = authority.ca.display();
                let verifier = verifier.map_err(|error| format!("{ca} cannot be used: {error}"))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(store.clone());
        config.alpn_protocols.clone_from(&settings.protocols);
        // Without tickets, only the last 256 sessions could be resumed.
        config.ticketer = rustls::crypto::ring::Ticketer::new()
            .map_err(|error| format!("session tickets cannot be set up: {error}"))?;
        Ok(Self {
            config: Arc::new(config),
            store,
            handshake_timeout: settings.handshake_timeout,
            handshakes,
            answers: None,
        })
    }

    /// Returns the server with answers to the challenge `tls-alpn-01`. With `None`, a handshake of
    /// that challenge is handled like any other one.
    #[must_use]
    pub fn with_answers(self, answers: Option<Arc<ChallengeAnswers>>) -> Self {
        Self { answers, ..self }
    }

    /// Returns the certificates of the server.
    #[must_use]
    pub const fn store(&self) -> &Arc<CertificateStore> {
        &self.store
    }

    /// Carries out a handshake within `handshake_timeout`, with the wait while too many other
    /// handshakes are in progress.
    ///
    /// # Errors
    /// If the handshake fails or takes too long, if there is no certificate for the client, or if
    /// it was a challenge of a certificate authority.
    pub async fn accept<S>(&self, stream: S) -> Result<Handshake<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shaken = timeout(self.handshake_timeout, async {
            let _slot = self.handshakes.acquire().await.map_err(std::io::Error::other)?;
            self.shake(stream).await
        });
        shaken.await.unwrap_or(Err(HandshakeError::Timeout))
    }

    async fn shake<S>(&self, stream: S) -> Result<Handshake<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        if let Some(answers) =
            self.answers.as_ref().filter(|_| acme_tls_alpn(&start.client_hello()))
        {
            return Err(answer_challenge(start, answers.clone()).await?);
        }
        if !self.store.serves(start.client_hello().server_name()) {
            start.io.write_all(&UNRECOGNIZED_NAME).await?;
            start.io.shutdown().await?;
            return Err(HandshakeError::UnknownName);
        }
        let stream = start.into_stream(self.config.clone()).await?;
        let (_, connection) = stream.get_ref();
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let is_h2 = connection.alpn_protocol() == Some(b"h2");
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let client_certificate =
            certificate.map(|certificate| format!(":{}:", BASE64.encode(certificate)));
        Ok(Handshake { stream, is_resumed, is_h2, client_certificate })
    }
}

/// Answers a handshake of `tls-alpn-01`, and closes the connection.
async fn answer_challenge<S>(
    mut start: StartHandshake<S>,
    answers: Arc<ChallengeAnswers>,
) -> std::io::Result<HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = start.client_hello().server_name().map(str::to_ascii_lowercase);
    let config = spawn_blocking(move || answers.tls_alpn_01(&name?)).await;
    let Ok(Some(config)) = config else {
        start.io.write_all(&UNRECOGNIZED_NAME).await?;
        start.io.shutdown().await?;
        return Ok(HandshakeError::UnknownName);
    };
    start.into_stream(config).await?.shutdown().await?;
    Ok(HandshakeError::Challenge)
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let named = |reason: String| format!("{} {reason}", path.display());
    let pem = read(path).map_err(named)?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
    let lists = lists.map_err(|error| named(format!("is not a PEM file: {error}")))?;
    if lists.is_empty() {
        return Err(named("contains no revocation list in PEM form".to_owned()));
    }
    Ok(lists)
}

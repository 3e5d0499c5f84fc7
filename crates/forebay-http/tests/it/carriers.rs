//! Carriers between the HTTP/1 clients of scenarios and the server: TLS, or HTTP/2.
//!
//! A carrier listens for HTTP/1 clients. Over TLS it copies bytes in both directions; over HTTP/2 it
//! translates each request, so that the server speaks HTTP/2 with it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use forebay_http::edge::accept::AcceptRules;
use forebay_http::edge::address_limits::AddressLimits;
use forebay_tls::certificate::CertificateFiles;
use forebay_tls::server::{ClientCertificates, MinVersion, TlsServer, TlsSettings};
use forebay_tls::store::{CertificateSources, CertificateStore};
use http::header::{CONNECTION, COOKIE, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsConnector;

/// Way of the bytes between clients and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Carrier {
    /// Clients connect to the server.
    #[default]
    Direct,
    /// HTTP/1 in TLS.
    Tls,
    /// HTTP/2 without TLS.
    Http2,
}

/// Server name of the certificate.
const NAME: &str = "a.example";

/// TLS server with its certificate, and a client that trusts it.
struct Tls {
    server: TlsServer,
    client: Arc<ClientConfig>,
}

impl Tls {
    /// Returns the pair of this process.
    fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Tls> = OnceLock::new();
        if SHARED.get().is_none() {
            let _ = SHARED.set(Self::new()?);
        }
        SHARED.get().context("no TLS")
    }

    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
        let path = folder.path().join("a.pem");
        std::fs::write(&path, key.serialize_pem() + &certificate.pem())?;
        let files = CertificateFiles { certificate: path.clone(), key: path };
        let sources = CertificateSources { files: vec![files], ..CertificateSources::default() };
        let settings = TlsSettings {
            min_version: MinVersion::Tls12,
            protocols: vec![b"http/1.1".to_vec()],
            client_certificates: ClientCertificates::Off,
            authority: None,
            handshake_timeout: Duration::from_secs(10),
        };
        let store = CertificateStore::load(&sources)?;
        let server = TlsServer::new(&settings, store, Arc::new(Semaphore::new(64)));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(certificate.der().to_vec()))?;
        let client = ClientConfig::builder_with_provider(forebay_tls::provider());
        let client = client.with_safe_default_protocol_versions()?.with_root_certificates(roots);
        Ok(Self {
            server: server.map_err(anyhow::Error::msg)?,
            client: Arc::new(client.with_no_client_auth()),
        })
    }
}

impl Carrier {
    /// Returns the rules of the server's listener.
    pub(crate) fn rules(self) -> anyhow::Result<AcceptRules> {
        let rules = AcceptRules::cleartext("test", AddressLimits::new(0));
        Ok(match self {
            Self::Direct | Self::Http2 => rules,
            Self::Tls => AcceptRules { tls: Some(Tls::shared()?.server.clone()), ..rules },
        })
    }

    /// Starts the carrier in front of a server. Returns the address for clients, and the task that
    /// owns all connections.
    pub(crate) async fn start(
        self,
        server: SocketAddr,
    ) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while carried.try_join_next().is_some() {}
                carried.spawn(async move {
                    // The server or the client ended the connection.
                    let _ = match self {
                        Self::Http2 => carry_http2(client, server).await,
                        _ => carry_tls(client, server).await,
                    };
                });
            }
        });
        Ok((address, task))
    }
}

async fn carry_tls(mut client: TcpStream, server: SocketAddr) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let connector = TlsConnector::from(Tls::shared()?.client.clone());
    let mut stream = connector.connect(ServerName::try_from(NAME)?, stream).await?;
    tokio::io::copy_bidirectional(&mut client, &mut stream).await?;
    Ok(())
}

async fn carry_http2(client: TcpStream, server: SocketAddr) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = shaken.await?;
    let driver = tokio::spawn(connection);
    let translate = service_fn(move |request: Request<Incoming>| {
        let mut sender = sender.clone();
        async move {
            let mut response = sender.send_request(translated(request)?).await?;
            *response.version_mut() = Version::HTTP_11;
            anyhow::Ok(response)
        }
    });
    let builder = http1::Builder::new();
    let served = builder.serve_connection(TokioIo::new(client), translate).await;
    driver.abort();
    Ok(served?)
}

/// Request as HTTP/2 (RFC 9113 sections 8.2.2 and 8.3.1): the host in the target, and no fields of
/// the connection.
fn translated(mut request: Request<Incoming>) -> anyhow::Result<Request<Incoming>> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    let host = request.headers_mut().remove(HOST);
    if let (None, Some(host)) = (&target.authority, host) {
        target.authority = Some(Authority::try_from(host.as_bytes())?);
    }
    // The target of CONNECT has neither scheme nor path.
    if target.path_and_query.is_some() {
        target.scheme.get_or_insert(Scheme::HTTP);
    }
    *request.uri_mut() = Uri::from_parts(target)?;
    remove_connection_fields(request.headers_mut());
    *request.version_mut() = Version::HTTP_2;
    Ok(request)
}

/// Removes the fields of a connection, as each recipient of an HTTP/1 message must (RFC 9110 section
/// 7.6.1). `TE: trailers` exists in HTTP/2, too.
fn remove_connection_fields(headers: &mut HeaderMap) {
    let accepts_trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    let lines: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    let named = lines.iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let named = named.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    // A cookie belongs to the whole way (RFC 9110 section 7.6.1: such fields must not be named).
    for name in named.filter(|name| name != COOKIE) {
        headers.remove(name);
    }
    let proxy = ["keep-alive", "proxy-connection", "http2-settings"];
    let known = [CONNECTION, TE, UPGRADE, TRANSFER_ENCODING].into_iter();
    for name in known.chain(proxy.map(HeaderName::from_static)) {
        headers.remove(name);
    }
    if accepts_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

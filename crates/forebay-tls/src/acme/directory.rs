//! HTTPS client for the server of the authority.
//!
//! instant-acme's own client reads the trust store of the system, which is absent in an image
//! without files; this one has the roots of Mozilla, or those of a file.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request};
use http_body_util::Limited;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use super::AcmeSettings;
use crate::certificate::roots;

/// Maximum time of a request, with its connection.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// Maximum size of a response in bytes; a chain has some KiB.
const RESPONSE_MAX: usize = 1 << 20;

/// Client of one directory.
#[derive(Clone)]
pub(super) struct DirectoryClient {
    client: Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

/// Checks the PEM file of [`AcmeSettings::ca`]: it has at least one certificate, and all of them
/// can be used as authorities.
///
/// # Errors
/// One sentence that names the file, if it cannot be read or fails the check.
pub fn check_roots(ca: &Path) -> Result<(), String> {
    roots(ca).map(drop)
}

impl DirectoryClient {
    pub(super) fn new(settings: &AcmeSettings) -> Result<Self, String> {
        let roots = match &settings.ca {
            Some(ca) => roots(ca)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let builder = ClientConfig::builder_with_provider(crate::provider());
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        let connector = connector.https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, retry_after: Arc::default() })
    }

    /// Returns the `Retry-After` of the last error response since the last call.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        self.retry_after.lock().take()
    }
}

impl HttpClient for DirectoryClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (sent, noted) = (self.client.request(request), self.retry_after.clone());
        Box::pin(async move {
            let answered = timeout(REQUEST_MAX, sent).await;
            let late = || Error::Other(format!("no response within {REQUEST_MAX:?}").into());
            let response = answered.map_err(|_| late())?;
            let response = response.map_err(|error| Error::Other(Box::new(error)))?;
            if response.status().is_client_error() || response.status().is_server_error() {
                *noted.lock() = retry_after(response.headers());
            }
            let response = response.map(|body| Limited::new(body, RESPONSE_MAX));
            // A body that stops is as bad as none.
            let mut response = BytesResponse::from(response);
            let body = timeout(REQUEST_MAX, response.body.into_bytes()).await;
            let body = body.map_err(|_| late())?.map_err(Error::Other)?;
            response.body = BytesResponse::from(http::Response::new(full(body))).body;
            Ok(response)
        })
    }
}

fn full(body: Bytes) -> http_body_util::Full<Bytes> {
    http_body_util::Full::new(body)
}

/// Reads `Retry-After` (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

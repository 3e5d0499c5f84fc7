//! Client of the admin listener, for the commands that ask a running cache.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args as Group;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Maximum time for a whole exchange with the cache, and for the head of a stream.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Address of the admin listener, and its token.
#[derive(Debug, Group)]
pub(crate) struct AdminArgs {
    /// URL of the cache's admin listener.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub(crate) admin: String,
    /// File with the admin listener's token, if it requires one.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Client of one admin listener.
pub(crate) struct AdminClient {
    admin: String,
    authority: String,
    token: Option<String>,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl AdminClient {
    /// Creates the client. No connection is opened yet.
    ///
    /// # Errors
    /// If the URL is malformed, or the token cannot be read.
    pub(crate) fn new(args: &AdminArgs) -> anyhow::Result<Self> {
        let admin = &args.admin;
        let uri: http::Uri = admin.parse().with_context(|| format!("--admin {admin}"))?;
        let Some(authority) = uri.authority().filter(|_| uri.scheme_str() == Some("http")) else {
            bail!("--admin {admin}: must be a URL such as http://127.0.0.1:8081");
        };
        let token = args.token_file.as_deref().map(token).transpose()?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { admin: admin.clone(), authority: authority.to_string(), token, client })
    }

    /// Returns the URL of the listener.
    pub(crate) fn url(&self) -> &str {
        &self.admin
    }

    /// Sends a request, and returns the whole answer, of at most `answer_max` bytes.
    ///
    /// # Errors
    /// If the listener does not answer in time.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        answer_max: usize,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let exchange = async {
            let response = self.client.request(self.request(method, path, body)?).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), answer_max).collect().await;
            anyhow::Ok((status, body.map_err(|error| anyhow::anyhow!(error))?.to_bytes()))
        };
        let answered = tokio::time::timeout(TIMEOUT, exchange).await;
        answered.map_err(|_| self.is_silent())?.map_err(|error| self.is_away(&error))
    }

    /// Sends a GET, and returns the response with its body as a stream.
    ///
    /// # Errors
    /// If the listener does not answer in time.
    pub(crate) async fn stream(&self, path: &str) -> anyhow::Result<Response<Incoming>> {
        let request = self.request(Method::GET, path, None)?;
        let answered = tokio::time::timeout(TIMEOUT, self.client.request(request)).await;
        answered.map_err(|_| self.is_silent())?.map_err(|error| self.is_away(&error.into()))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let uri = format!("http://{}{path}", self.authority);
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        Ok(request.body(Full::new(Bytes::from(body)))?)
    }

    fn is_silent(&self) -> anyhow::Error {
        anyhow::anyhow!("the admin listener at {} did not answer within {TIMEOUT:?}", self.admin)
    }

    fn is_away(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow::anyhow!(
            "no cache answers at {} ({}); start it, or give the URL of its admin listener with \
             --admin",
            self.admin,
            error.root_cause()
        )
    }
}

/// Returns the sentence of an error answer.
pub(crate) fn sentence(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    body["error"].as_str().unwrap_or("The response gives no reason.").to_owned()
}

/// Runs an exchange on a runtime of its own.
///
/// # Errors
/// Those of the exchange.
pub(crate) fn run<T>(exchange: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(exchange)
}

fn token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("token file {} cannot be read", file.display()))?;
    Ok(text.trim().to_owned())
}

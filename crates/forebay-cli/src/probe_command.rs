//! `forebay probe`: readiness of a running cache, as an exit code.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::output::{FAILED, print_error, print_line};

/// Maximum time for the whole exchange: below the timeout of container health checks.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of the answer in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Asks for the readiness and prints the answer. Returns exit code 0 if the cache is ready.
///
/// # Errors
/// If the URL is not usable, or nothing answers there.
pub(crate) fn run(url: &str) -> anyhow::Result<u8> {
    let uri = readiness_of(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask(uri.clone())).await });
    let (status, answer) = asked
        .with_context(|| format!("not ready: {uri} did not answer within {TIMEOUT:?}"))?
        .with_context(|| format!("not ready: nothing answers at {uri}"))?;
    if status == StatusCode::OK {
        print_line(format_args!("{answer}"));
        return Ok(0);
    }
    print_error(format_args!("forebay: not ready: {uri} answered {status}: {answer}"));
    Ok(FAILED)
}

/// URL to ask: a path other than `/` stays as it is, otherwise it is `/readyz`.
fn readiness_of(url: &str) -> anyhow::Result<Uri> {
    let uri: Uri = url.parse().with_context(|| format!("probe {url}"))?;
    let Some(authority) = uri.authority().filter(|_| uri.scheme_str() == Some("http")) else {
        bail!("probe {url}: must be a URL such as http://127.0.0.1:8082");
    };
    if uri.path() != "/" {
        return Ok(uri);
    }
    Ok(format!("http://{authority}/readyz").parse()?)
}

async fn ask(uri: Uri) -> anyhow::Result<(StatusCode, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(Request::get(uri).body(Empty::<Bytes>::new())?).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok((status, String::from_utf8_lossy(body.trim_ascii()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_asks_for_the_readiness() {
        let asked = |url| readiness_of(url).map(|uri| uri.to_string()).map_err(|e| e.to_string());
        assert_eq!(asked("http://h:1").as_deref(), Ok("http://h:1/readyz"));
        assert_eq!(asked("http://h:1/").as_deref(), Ok("http://h:1/readyz"));
        assert_eq!(asked("http://h:1/livez").as_deref(), Ok("http://h:1/livez"));
        for wrong in ["h:1", "https://h:1", "/readyz"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}

//! `forebay purge`: sends a purge to the admin listener of a running cache.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::args::{PurgeArgs, PurgeWhat};
use crate::output::{USAGE, print_error, print_line};

/// Maximum time for the whole exchange with the cache.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the answer in bytes; it is one line of JSON.
const ANSWER_MAX: usize = 64 << 10;

/// Sends the purge and prints its result.
///
/// # Errors
/// If the cache cannot be reached, or refuses the purge.
pub(crate) fn run(args: &PurgeArgs) -> anyhow::Result<u8> {
    let what = &args.what;
    let named = [&what.url, &what.tag, &what.prefix, &what.site];
    if !what.all && named.iter().all(|one| one.is_none()) {
        let flags = "--url URL, --tag TAG, --prefix PREFIX, --site ID or --all";
        print_error(format_args!("forebay: name what to purge: {flags}"));
        return Ok(USAGE);
    }
    let request = request(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exchange = runtime.block_on(async { tokio::time::timeout(TIMEOUT, send(request)).await });
    let (status, body) = exchange
        .with_context(|| {
            format!("the admin listener at {} did not answer within {TIMEOUT:?}", args.admin)
        })?
        .map_err(|error| {
            anyhow::anyhow!(
                "no cache answers at {} ({}); start it, or give the URL of its admin listener with \
                 --admin",
                args.admin,
                error.root_cause()
            )
        })?;
    report(status, &body, &args.admin)
}

fn request(args: &PurgeArgs) -> anyhow::Result<Request<Full<Bytes>>> {
    let admin: Uri = args.admin.parse().with_context(|| format!("--admin {}", args.admin))?;
    let Some(authority) = admin.authority().filter(|_| admin.scheme_str() == Some("http")) else {
        bail!("--admin {}: must be a URL such as http://127.0.0.1:8081", args.admin);
    };
    let body = json_of(&args.what, args.hard).to_string();
    let mut request =
        Request::post(format!("http://{authority}/purge")).header(CONTENT_TYPE, "application/json");
    if let Some(file) = &args.token_file {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token(file)?));
    }
    Ok(request.body(Full::new(Bytes::from(body)))?)
}

fn token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("token file {} cannot be read", file.display()))?;
    Ok(text.trim().to_owned())
}

fn json_of(what: &PurgeWhat, hard: bool) -> Value {
    match (&what.url, &what.tag, &what.prefix, &what.site) {
        (Some(url), ..) => json!({ "url": url, "hard": hard }),
        (_, Some(tag), ..) => json!({ "tag": tag, "hard": hard }),
        (_, _, Some(prefix), _) => json!({ "prefix": prefix, "hard": hard }),
        (.., Some(site)) => json!({ "site": site, "hard": hard }),
        _ => json!({ "all": true, "hard": hard }),
    }
}

async fn send(request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Value)> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

/// Prints the result of the purge. Only some of the failures leave the cache unchanged.
fn report(status: StatusCode, body: &Value, admin: &str) -> anyhow::Result<u8> {
    let id = body["id"].as_str().unwrap_or("-");
    let sentence = body["error"].as_str().unwrap_or("The response gives no reason.");
    match status {
        StatusCode::OK => {}
        StatusCode::SERVICE_UNAVAILABLE => {
            bail!("purge {id} is complete on one instance only, that of {admin}. {sentence}")
        }
        StatusCode::INTERNAL_SERVER_ERROR => {
            bail!("the purge is carried out, but may be undone by a restart. {sentence}")
        }
        _ if status.is_client_error() => bail!("nothing was purged ({status}). {sentence}"),
        _ => bail!("{admin} answered the purge with {status}. {sentence}"),
    }
    let instances = &body["instances"];
    let found = if body["purged"] == 0 { "no stored entry matched" } else { "done" };
    print_line(format_args!("purge {id}: {found} (instances: {instances})"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "http://127.0.0.1:8081";

    fn failure(status: StatusCode, body: &Value) -> String {
        report(status, body, ADMIN).expect_err("no success").to_string()
    }

    #[test]
    fn a_failed_purge_says_what_was_carried_out() {
        let body = json!({ "id": "7", "error": "Reason." });
        let rows = [
            (StatusCode::SERVICE_UNAVAILABLE, "purge 7 is complete on one instance only"),
            (StatusCode::INTERNAL_SERVER_ERROR, "the purge is carried out, but may be undone by a"),
            (StatusCode::FORBIDDEN, "nothing was purged (403 Forbidden)"),
            (StatusCode::BAD_GATEWAY, "http://127.0.0.1:8081 answered the purge with 502"),
        ];
        for (status, begin) in rows {
            let text = failure(status, &body);
            assert!(text.starts_with(begin) && text.ends_with(" Reason."), "{text}");
        }
        let text = failure(StatusCode::BAD_REQUEST, &Value::Null);
        assert!(text.ends_with("The response gives no reason."), "{text}");
        assert_eq!(report(StatusCode::OK, &body, ADMIN).ok(), Some(0));
    }
}

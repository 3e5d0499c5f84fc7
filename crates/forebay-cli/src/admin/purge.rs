//! `POST /purge`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Purge, Reach};
use forebay_engine::{Purged, Told};
use forebay_http::Service;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::{Answer, json_answer, problem};

/// A purge names one thing; a URL is 16 KiB at most.
const BODY_MAX: usize = 32 << 10;

/// How long its sender may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is said of a purge that holds until the process ends, and perhaps no longer.
const NOT_PERSISTED: &str = "It is purged, but the disk tier could not write that down: what it holds \
                        may be served again after a restart.";

/// What is said of a purge that others do not know of. It is carried out here, and who asks again
/// does no harm; but who has asked wants to know that it does not hold everywhere yet.
const NOT_PUBLISHED: &str = "It is purged here, but the other instances could not be told yet; they are \
                        as soon as the shared tier answers.";

/// Purges so far, for the ids of those that nobody else is told of.
static PURGES: AtomicU64 = AtomicU64::new(0);

/// What may be asked for; exactly one of the targets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeRequest {
    url: Option<String>,
    tag: Option<String>,
    prefix: Option<String>,
    site: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    hard: bool,
}

/// Carries out the purge that a request asks for.
pub(super) async fn answer(service: &Service, request: Request<Incoming>) -> Answer {
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    let Ok(Ok(body)) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
        return problem(StatusCode::BAD_REQUEST, "The body did not arrive, or is too long.");
    };
    let request: PurgeRequest = match serde_json::from_slice(&body.to_bytes()) {
        Ok(request) => request,
        Err(error) => {
            let sentence = format!("The body is not a purge: {error}.");
            return problem(StatusCode::BAD_REQUEST, &sentence);
        }
    };
    // Another purge that fails at the same time counts against this one, too: once too often.
    let unkept = service.engine().unkept_purges();
    match carry_out(service, &request).await {
        Ok(purged) => {
            if service.engine().unkept_purges() != unkept {
                tracing::error!(purge = ?request, "the disk tier could not write a purge down");
                return problem(StatusCode::INTERNAL_SERVER_ERROR, NOT_PERSISTED);
            }
            acknowledge(&request, purged)
        }
        Err(sentence) => problem(StatusCode::BAD_REQUEST, &sentence),
    }
}

fn acknowledge(request: &PurgeRequest, Purged { found, told }: Purged) -> Answer {
    let local = || (PURGES.fetch_add(1, Ordering::Relaxed) + 1).to_string();
    let (id, instances, publish_error) = match told {
        Told::Everybody(published) => (published.id.into(), published.instances, None),
        Told::Nobody => (local(), 1, None),
        Told::Later(error) => (local(), 1, Some(error)),
    };
    let mut reply = json!({ "id": id, "instances": instances, "purged": u8::from(found) });
    match publish_error {
        None => {
            tracing::info!(id, instances, purge = ?request, purged = found, "purged");
            json_answer(StatusCode::OK, &reply)
        }
        Some(error) => {
            tracing::warn!(id, purge = ?request, %error, "purged here; others are told later");
            reply["error"] = NOT_PUBLISHED.into();
            json_answer(StatusCode::SERVICE_UNAVAILABLE, &reply)
        }
    }
}

async fn carry_out(service: &Service, request: &PurgeRequest) -> Result<Purged, String> {
    let reach = if request.hard { Reach::Hard } else { Reach::Soft };
    let PurgeRequest { url, tag, prefix, site, all, .. } = request;
    let purge = match (url, tag, prefix, site, all) {
        (Some(url), None, None, None, false) => return purge_url(service, url, reach).await,
        (None, Some(tag), None, None, false) => Purge::Tag(tag.as_str().into()),
        (None, None, Some(prefix), None, false) => {
            let purged = service.purge_prefix(prefix, reach).await;
            return purged.map_err(|error| error.to_string());
        }
        (None, None, None, Some(site), false) => {
            let known = service.sites().iter().any(|known| *known.settings.id == **site);
            if !known {
                return Err(format!("There is no site \"{site}\"."));
            }
            Purge::Site(site.as_str().into())
        }
        (None, None, None, None, true) => Purge::All,
        _ => return Err("Name exactly one of url, tag, prefix, site and all.".into()),
    };
    Ok(service.engine().purge(&purge, reach).await)
}

async fn purge_url(service: &Service, url: &str, reach: Reach) -> Result<Purged, String> {
    let whole =
        "A URL to purge is whole, such as http://shop.example/items/1, as clients ask for it.";
    let parsed: Uri = url.parse().map_err(|_| whole.to_owned())?;
    let authority = parsed.authority().ok_or_else(|| whole.to_owned())?;
    let path = parsed.path_and_query().map_or("/", |path| path.as_str());
    service
        .purge_url(authority.as_str(), path, reach)
        .await
        .ok_or_else(|| format!("No site is configured for {url}."))
}

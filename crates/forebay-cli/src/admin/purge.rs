//! `POST /purge`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::{Purge, Reach};
use forebay_engine::{Propagation, Purged};
use forebay_http::Service;
use forebay_semantics::Scheme;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::{Answer, audit, json_answer, problem};

/// Maximum size of a request body in bytes. It names one target, and a URL has at most 16 KiB.
const BODY_MAX: usize = 32 << 10;

/// Maximum time to receive the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Error for a purge that the disk tier could not persist: it ends with the process.
const NOT_PERSISTED: &str = "The running process serves no purged entry, but the disk tier could \
                             not record the purge, so a restarted process may serve purged \
                             entries from disk. Repeat the purge when the disk is writable.";

/// Error for a purge that was not published to the other instances. The client may repeat it.
const NOT_PUBLISHED: &str = "The purge could not be sent to the other instances through the shared \
                             tier (Redis), so they may serve purged entries. It is sent when that \
                             works again; repeat the purge if this instance is restarted before.";

/// Number of purges so far; the source of ids for purges that are not published.
static PURGES: AtomicU64 = AtomicU64::new(0);

/// Maximum number of tags in one purge: each is a message to all instances.
const TAGS_MAX: usize = 256;

/// JSON body of `POST /purge`; exactly one target must be set. `path_regex` may name a site.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeRequest {
    url: Option<String>,
    tag: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    prefix: Option<String>,
    path_regex: Option<String>,
    site: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    hard: bool,
}

/// Target of a purge as log fields.
struct Target<'a> {
    kind: &'static str,
    value: &'a str,
}

impl PurgeRequest {
    fn target(&self) -> Target<'_> {
        let named = [
            ("url", &self.url),
            ("tag", &self.tag),
            ("prefix", &self.prefix),
            ("path_regex", &self.path_regex),
            ("site", &self.site),
        ];
        let named = named.into_iter().find_map(|(kind, value)| Some((kind, value.as_deref()?)));
        // Of several tags the log has the first; all were purged.
        let tags = self.tags.first().map(|tag| ("tags", tag.as_str()));
        let (kind, value) = named.or(tags).unwrap_or(("all", "-"));
        Target { kind, value }
    }

    const fn reach_word(&self) -> &'static str {
        if self.hard { "hard" } else { "soft" }
    }

    fn log_failure(&self) {
        let Target { kind, value } = self.target();
        let reach = self.reach_word();
        tracing::error!(
            kind,
            value,
            reach,
            "purge carried out, but not recorded on disk: after a restart, purged entries may be \
             served from disk; repeat the purge when the disk is writable"
        );
    }
}

/// Carries out the purge that the request body names, and logs it.
pub(super) async fn answer(service: &Service, request: Request<Incoming>) -> Answer {
    let by = audit::client_of(&request);
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    let Ok(Ok(body)) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
        return problem(
            StatusCode::BAD_REQUEST,
            "The body of the purge request did not arrive within 10 s, or is larger than 32 KiB.",
        );
    };
    let request: PurgeRequest = match serde_json::from_slice(&body.to_bytes()) {
        Ok(request) => request,
        Err(error) => {
            let sentence = format!(
                "The body must be JSON such as {{\"tag\": \"shoes\", \"hard\": true}}, but is \
                 invalid: {error}."
            );
            return problem(StatusCode::BAD_REQUEST, &sentence);
        }
    };
    // A failure of a concurrent purge is counted here as well; the answer errs on the safe side.
    let unkept = service.engine().unkept_purges();
    match carry_out(service, &request).await {
        Ok(purged) => {
            if service.engine().unkept_purges() != unkept {
                request.log_failure();
                return problem(StatusCode::INTERNAL_SERVER_ERROR, NOT_PERSISTED);
            }
            acknowledge(&request, purged, &by)
        }
        Err(sentence) => problem(StatusCode::BAD_REQUEST, &sentence),
    }
}

fn acknowledge(request: &PurgeRequest, purged: Purged, by: &str) -> Answer {
    let Purged { found, propagation } = purged;
    let local = || (PURGES.fetch_add(1, Ordering::Relaxed) + 1).to_string();
    let (id, instances, publish_error) = match propagation {
        Propagation::Published(published) => (published.id.into(), published.instances, None),
        Propagation::None => (local(), 1, None),
        Propagation::Pending(error) => (local(), 1, Some(error)),
    };
    let mut reply = json!({ "id": id, "instances": instances, "purged": u8::from(found) });
    match publish_error {
        None => {
            let Target { kind, value } = request.target();
            let reach = request.reach_word();
            tracing::info!(kind, value, reach, id, instances, found, by, "purge carried out");
            json_answer(StatusCode::OK, &reply)
        }
        Some(error) => {
            let Target { kind, value } = request.target();
            let reach = request.reach_word();
            tracing::warn!(
                kind, value, reach, id, by, %error,
                "purge carried out on this instance only, because the shared tier failed; it is \
                 sent to the other instances when the shared tier works again, unless this \
                 instance stops before"
            );
            reply["error"] = NOT_PUBLISHED.into();
            json_answer(StatusCode::SERVICE_UNAVAILABLE, &reply)
        }
    }
}

async fn carry_out(service: &Service, request: &PurgeRequest) -> Result<Purged, String> {
    let reach = if request.hard { Reach::Hard } else { Reach::Soft };
    let PurgeRequest { url, tag, tags, prefix, path_regex, site, all, .. } = request;
    if let Some(expression) = path_regex {
        let is_alone = [url, tag, prefix].iter().all(|other| other.is_none());
        if !is_alone || !tags.is_empty() || *all {
            return Err(ONE_TARGET.into());
        }
        let purged = service.purge_path_regex(expression, site.as_deref(), reach).await;
        return purged.map_err(|error| error.to_string());
    }
    if !tags.is_empty() {
        let is_alone = [url, tag, prefix, site].iter().all(|other| other.is_none()) && !all;
        if !is_alone {
            return Err(ONE_TARGET.into());
        }
        return purge_tags(service, tags, reach).await;
    }
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
                return Err(format!("No site has the id \"{site}\"."));
            }
            Purge::Site(site.as_str().into())
        }
        (None, None, None, None, true) => Purge::All,
        _ => return Err(ONE_TARGET.into()),
    };
    Ok(service.engine().purge(&purge, reach).await)
}

/// Error for a purge without a target, or with several.
const ONE_TARGET: &str = "Set exactly one of url, tag, tags, prefix, path_regex, site and all.";

/// Purges several tags, one after the other.
async fn purge_tags(service: &Service, tags: &[String], reach: Reach) -> Result<Purged, String> {
    if tags.len() > TAGS_MAX {
        return Err(format!("There are {} tags; the maximum is {TAGS_MAX}.", tags.len()));
    }
    let mut purged: Option<Purged> = None;
    for tag in tags {
        let came = service.engine().purge(&Purge::Tag(tag.as_str().into()), reach).await;
        purged = Some(match purged {
            Some(before) => before.and(came),
            None => came,
        });
    }
    purged.ok_or_else(|| ONE_TARGET.into())
}

async fn purge_url(service: &Service, url: &str, reach: Reach) -> Result<Purged, String> {
    let whole =
        "The URL must be complete, as clients request it, such as http://shop.example/items/1.";
    let parsed: Uri = url.parse().map_err(|_| whole.to_owned())?;
    let authority = parsed.authority().ok_or_else(|| whole.to_owned())?;
    let scheme = parsed.scheme_str().and_then(Scheme::parse).ok_or_else(|| whole.to_owned())?;
    let path = parsed.path_and_query().map_or("/", |path| path.as_str());
    service
        .purge_url(scheme, authority.as_str(), path, reach)
        .await
        .ok_or_else(|| format!("No site is configured for {url}."))
}

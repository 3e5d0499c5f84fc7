//! Answers to the challenge `http-01` of a certificate authority (RFC 8555 section 8.3).

use std::sync::Arc;

use bytes::Bytes;
use forebay_tls::acme::{CHALLENGE_PATH, ChallengeAnswers};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use tokio::task::spawn_blocking;

use crate::authority::without_port;
use crate::response::body::ResponseBody;

/// Returns `true` if a request may be a challenge.
pub(super) fn is_challenge(parts: &Parts) -> bool {
    parts.uri.path().starts_with(CHALLENGE_PATH) && parts.method == Method::GET
}

/// Builds the response to a challenge. `None` if this cache has ordered no certificate for the
/// host, or there is no such token: the origin may have its own.
pub(super) async fn answer(
    answers: Arc<ChallengeAnswers>,
    authority: &str,
    path: &str,
) -> Option<Response<ResponseBody>> {
    let token = path.strip_prefix(CHALLENGE_PATH)?.to_owned();
    if !answers.has_name(without_port(authority)) {
        return None;
    }
    let answer = spawn_blocking(move || answers.http_01(&token)).await.ok()??;
    let mut response = Response::new(ResponseBody::whole(Bytes::from(answer)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}

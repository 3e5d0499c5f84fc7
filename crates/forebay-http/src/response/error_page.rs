//! Error responses: fields and text.

use bytes::Bytes;
use forebay_core::Why;
use forebay_semantics::status::CacheStatus;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::failure::{Failure, whole_seconds};
use crate::record::RequestId;
use crate::response::body::ResponseBody;
use crate::settings::Fallback;

/// Value of `Allow` in a 405 (RFC 9110 section 15.5.6): the supported methods.
const FORWARDED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE";

/// Context of an error response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// Header fields of the request, which select the content type.
    pub(crate) request_headers: &'a HeaderMap,
    /// Id of the request in the log.
    pub(crate) request: RequestId,
    /// Reason for which the request was forwarded to the origin, if it was.
    pub(crate) why: Option<Why>,
    /// Includes the cause in the response if `true`.
    pub(crate) expose: bool,
    /// Response of the site that replaces errors without a response of the origin.
    pub(crate) fallback: Option<&'a Fallback>,
}

/// Builds the response to a failed request.
#[must_use]
pub(crate) fn respond(failure: &Failure, page: Page<'_>) -> Response<ResponseBody> {
    if let Some(fallback) = page.fallback.filter(|_| failure.lacks_origin()) {
        return fall_back(failure, fallback, page.why);
    }
    let cause = failure.cause().filter(|_| page.expose);
    let json = wants_json(page.request_headers);
    let body = if json { as_json(failure, &page, cause) } else { as_text(failure, &page, cause) };
    let mut response = Response::new(ResponseBody::whole(Bytes::from(body)));
    *response.status_mut() = failure.status();
    let kind = if json { "application/json" } else { "text/plain; charset=utf-8" };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let status = CacheStatus::forward(page.why.unwrap_or(Why::Bypass));
    CacheStatus { detail: Some(failure.code()), ..status }.append_to(headers);
    if failure.status() == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from(failure.retry_after()));
    }
    if let Failure::RateLimited(wait) = failure {
        // Whole seconds, and never before the time.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure.status() == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
    }
    if failure.closes() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Builds the fallback response of a site.
fn fall_back(failure: &Failure, fallback: &Fallback, why: Option<Why>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(fallback.body.clone()));
    *response.status_mut() = fallback.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, fallback.content_type.clone());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let status = CacheStatus::forward(why.unwrap_or(Why::Bypass));
    CacheStatus { detail: Some(failure.code()), ..status }.append_to(headers);
    headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(fallback.retry_after)));
    response
}

fn as_text(failure: &Failure, page: &Page<'_>, cause: Option<String>) -> String {
    let status = failure.status();
    let cause = cause.map_or_else(String::new, |cause| format!("cause: {cause}\n"));
    format!("{status}\n{}\n{cause}request: {}\n", failure.sentence(), page.request)
}

fn as_json(failure: &Failure, page: &Page<'_>, cause: Option<String>) -> String {
    let mut text = format!(
        r#"{{"status":{},"error":{},"message":{}"#,
        failure.status().as_u16(),
        quoted(failure.code()),
        quoted(failure.sentence()),
    );
    if let Some(cause) = cause {
        text.push_str(&format!(r#","cause":{}"#, quoted(&cause)));
    }
    text.push_str(&format!(r#","request":"{}"}}"#, page.request));
    text.push('\n');
    text
}

/// Returns `text` as a JSON string (RFC 8259 section 7).
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn wants_json(request_headers: &HeaderMap) -> bool {
    let accepts = request_headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.into_iter().any(|accept| accept.contains("application/json"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use forebay_engine::LoadError;
    use http_body_util::BodyExt;

    use super::*;

    fn page(request_headers: &HeaderMap, expose: bool) -> Page<'_> {
        Page {
            request_headers,
            request: RequestId(7),
            why: Some(Why::UriMiss),
            expose,
            fallback: None,
        }
    }

    async fn text(response: Response<ResponseBody>) -> String {
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        String::from_utf8(body.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_fallback_replaces_only_errors_without_a_response_of_the_origin() {
        let fallback = Fallback {
            status: StatusCode::OK,
            body: Bytes::from_static(b"soon"),
            content_type: HeaderValue::from_static("text/html"),
            retry_after: Duration::from_millis(1_500),
        };
        let (left, recently) = (Duration::from_millis(100), Arc::new(LoadError::Answered(503)));
        let rows = [
            (Failure::Load(LoadError::Unavailable(left)), true),
            (Failure::Load(LoadError::TimedOut(left)), true),
            (Failure::Load(LoadError::unreachable("x")), true),
            (Failure::MustRevalidate(LoadError::unreachable("x")), true),
            (Failure::Load(LoadError::Answered(503)), false),
            (Failure::Load(LoadError::RecentlyFailed(recently)), false),
            (Failure::Load(LoadError::NotCached), false),
            (Failure::NoSite, false),
        ];
        let request_headers = HeaderMap::new();
        for (failure, expected) in rows {
            let page = Page { fallback: Some(&fallback), ..page(&request_headers, false) };
            let response = respond(&failure, page);
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            let is_fallback = response.headers().get(CONTENT_TYPE) == Some(&fallback.content_type);
            assert_eq!(is_fallback, expected, "{failure}");
            if expected {
                assert_eq!(
                    (response.status(), &response.headers()[RETRY_AFTER]),
                    (StatusCode::OK, &HeaderValue::from(2))
                );
                assert_eq!(text(response).await, "soon");
            }
        }
        let failure = Failure::Load(LoadError::Unavailable(Duration::from_millis(2_100)));
        let response = respond(&failure, page(&request_headers, false));
        assert_eq!(response.headers()[RETRY_AFTER], "3");
    }

    #[tokio::test]
    async fn the_cause_is_in_the_response_only_with_expose_errors() {
        let failure = Failure::Load(LoadError::origin("127.0.0.1:1: \"refused\""));
        let none = HeaderMap::new();
        let hidden = respond(&failure, page(&none, false));
        assert_eq!(hidden.status(), StatusCode::BAD_GATEWAY);
        let hidden = text(hidden).await;
        assert!(!hidden.contains("refused") && hidden.contains("request: 0000000000000007"));
        assert!(text(respond(&failure, page(&none, true))).await.contains("refused"));
    }

    #[tokio::test]
    async fn a_client_that_accepts_json_gets_json() {
        let mut request_headers = HeaderMap::new();
        request_headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let failure = Failure::Load(LoadError::origin("a \"quoted\"\ncause"));
        let response = respond(&failure, page(&request_headers, true));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let body = text(response).await;
        assert!(body.contains(r#""cause":"the origin failed: a \"quoted\"\u000acause""#), "{body}");
    }
}

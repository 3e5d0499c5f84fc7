//! Error responses: their status codes and texts.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::Why;
use forebay_engine::LoadError;
use forebay_semantics::status::CacheStatus;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::request_guard::{BODY_MAX, FIELDS_MAX, FramingError, HEAD_MAX, Rejection, TARGET_MAX};
use crate::response_body::ResponseBody;

/// Value of `Retry-After` in a 503, in seconds.
const RETRY_AFTER_SECS: u64 = 1;

/// Value of `Allow` in a 405 (RFC 9110 section 15.5.6): the supported methods.
const FORWARDED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE";

/// Reason for which a request gets an error response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// The request is invalid, for the given reason; the connection is closed after the response.
    BadRequest(&'static str),
    /// The request violates a framing rule or a limit; the connection is closed after the response.
    Refused(FramingError),
    /// The maximum number of client connections is reached.
    TooManyConnections,
    /// The request target is too long.
    TargetTooLong,
    /// The request did not arrive within the client timeouts.
    TooSlow,
    /// The client disconnected before the end of its request body.
    ClientGone,
    /// A cache in front of an origin does not support the method.
    MethodNotAllowed,
    /// No site matches the host and path.
    NoSite,
    /// The client may not use the site.
    AccessDenied,
    /// The listener does not serve the site of the request (RFC 9110 section 15.5.20).
    Misdirected,
    /// The request passed through this cache too often (RFC 9110 section 7.6.3).
    Loop,
    /// The load from the origin or a tier failed.
    Load(LoadError),
    /// The origin cannot be reached, and the stored response requires revalidation.
    MustRevalidate(LoadError),
    /// The stored response cannot be decoded.
    Unreadable,
}

impl Failure {
    /// Returns the status code of the response.
    #[must_use]
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Load(LoadError::Answered(status)) => {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Self::BadRequest(_) | Self::ClientGone => StatusCode::BAD_REQUEST,
            Self::Refused(why) => status_of(*why),
            Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoSite => StatusCode::NOT_FOUND,
            Self::AccessDenied => StatusCode::FORBIDDEN,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Load(LoadError::RecentlyFailed(cause)) => {
                Self::Load(LoadError::clone(cause)).status()
            }
            // RFC 9111 section 5.2.2.2: 504 if the stored response requires revalidation and the
            // origin cannot be reached.
            Self::Load(LoadError::TimedOut(_) | LoadError::NotCached) | Self::MustRevalidate(_) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Load(
                LoadError::Overloaded(_) | LoadError::Unavailable(_) | LoadError::Tier(..),
            ) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Load(LoadError::Panicked(_)) | Self::Unreadable => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Load(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns the code for logs and `Cache-Status`.
    #[must_use]
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad-request",
            Self::Refused(why) => why.label(),
            Self::TooManyConnections => "connections",
            Self::TargetTooLong => "target-too-long",
            Self::TooSlow => "client-too-slow",
            Self::ClientGone => "client-gone",
            Self::MethodNotAllowed => "method",
            Self::NoSite => "no-site",
            Self::AccessDenied => "access-denied",
            Self::Misdirected => "misdirected",
            Self::Loop => "loop",
            Self::Load(error) | Self::MustRevalidate(error) => crate::origin::code(error),
            Self::Unreadable => "unreadable-entry",
        }
    }

    /// Returns `true` if the connection must be closed, because its framing is in doubt.
    const fn closes(&self) -> bool {
        matches!(
            self,
            Self::BadRequest(_)
                | Self::Refused(_)
                | Self::TooManyConnections
                | Self::TargetTooLong
                | Self::TooSlow
                | Self::ClientGone
        )
    }

    /// Returns `true` for a failure that the client alone caused.
    #[must_use]
    pub(crate) const fn is_of_client(&self) -> bool {
        matches!(self, Self::BadRequest(_) | Self::Refused(_) | Self::TooSlow | Self::ClientGone)
    }

    /// Returns one sentence for the client, without internal details.
    pub(crate) const fn sentence(&self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::Refused(why) => sentence_of(*why),
            Self::TooManyConnections => "Too many connections are open. Try again later.",
            Self::TargetTooLong => "The request target is longer than 16 KiB.",
            Self::TooSlow => "The request did not arrive within the time limit.",
            Self::ClientGone => "The connection ended before the end of the request body.",
            Self::MethodNotAllowed => "This method is not supported. See the Allow header.",
            Self::NoSite => "No site is configured for this host and path.",
            Self::AccessDenied => "This client may not use this site.",
            Self::Misdirected => "This listener does not serve the requested host.",
            Self::Loop => {
                "The request came back to this cache: the origin of the site forwards to the cache."
            }
            Self::Load(LoadError::TimedOut(_)) => {
                "The origin server did not respond within the time limit."
            }
            Self::Load(LoadError::NotCached) => {
                "No fresh response is stored, and the request has Cache-Control: only-if-cached."
            }
            Self::Load(LoadError::Answered(_)) => "The origin server answered with an error.",
            Self::Load(LoadError::Overloaded(_)) => {
                "Too many requests are waiting for the origin server. Try again later."
            }
            Self::Load(LoadError::Unavailable(_)) => {
                "The origin server failed or was too slow, and is not asked for a while. Try again later."
            }
            Self::Load(LoadError::Tier(..)) => {
                "A cache tier that this site requires has failed. Try again later."
            }
            Self::Load(LoadError::Panicked(_)) | Self::Unreadable => {
                "The cache failed with an internal error. The request may be repeated."
            }
            Self::Load(LoadError::RecentlyFailed(_)) => {
                "The origin server failed less than a second ago. Try again later."
            }
            Self::MustRevalidate(_) => {
                "The origin server cannot be reached, and the stored response requires revalidation."
            }
            Self::Load(_) => {
                "The origin server cannot be reached, or its response is not valid HTTP."
            }
        }
    }

    /// Returns `true` if there is no response of the origin, so that a fallback may replace the error.
    fn lacks_origin(&self) -> bool {
        let error = match self {
            Self::Load(LoadError::RecentlyFailed(cause)) => cause,
            Self::Load(error) | Self::MustRevalidate(error) => error,
            _ => return false,
        };
        matches!(
            error,
            LoadError::Origin(_)
                | LoadError::Unreachable(_)
                | LoadError::TimedOut(_)
                | LoadError::Overloaded(_)
                | LoadError::Unavailable(_)
        )
    }

    /// Returns the value of `Retry-After` in seconds.
    fn retry_after(&self) -> u64 {
        match self {
            Self::Load(LoadError::Unavailable(left)) => whole_seconds(*left),
            _ => RETRY_AFTER_SECS,
        }
    }

    pub(crate) fn cause(&self) -> Option<String> {
        match self {
            Self::Load(error) | Self::MustRevalidate(error) => Some(error.to_string()),
            _ => None,
        }
    }
}

impl From<Rejection> for Failure {
    fn from(why: Rejection) -> Self {
        match why {
            Rejection::Framing(why) => Self::Refused(why),
            Rejection::HeadTimeout => Self::TooSlow,
            Rejection::TooManyConnections => Self::TooManyConnections,
        }
    }
}

const fn status_of(why: FramingError) -> StatusCode {
    match why {
        FramingError::HeadTooLarge | FramingError::TooManyFields => {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        }
        FramingError::TargetTooLong => StatusCode::URI_TOO_LONG,
        FramingError::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// Returns the sentence for the author of the client.
const fn sentence_of(why: FramingError) -> &'static str {
    const { assert!(HEAD_MAX == 64 << 10 && TARGET_MAX == 16 << 10) };
    const { assert!(FIELDS_MAX == 100 && BODY_MAX == 64 << 30) };
    match why {
        FramingError::RequestLine => "The request line is malformed.",
        FramingError::LineEnding => "A line of the request does not end with CR LF.",
        FramingError::Nul => "The request contains a NUL byte.",
        FramingError::Fold => "A header field is folded over several lines.",
        FramingError::FieldName => "The name of a header field is invalid.",
        FramingError::FieldValue => "A field value of the request contains a control character.",
        FramingError::Host => "The request must have exactly one valid Host header.",
        FramingError::ContentLength => {
            "The Content-Length of the request is repeated, a list, not a decimal number, or too \
             large."
        }
        FramingError::TransferEncoding => "Transfer-Encoding must be exactly chunked.",
        FramingError::BothFramings => "The request has both Content-Length and Transfer-Encoding.",
        FramingError::Chunk => "A chunk of the request body is malformed.",
        FramingError::Trailer => "A header field that is not allowed as a trailer was sent as one.",
        FramingError::BodyOverhead => {
            "The request body has too many chunk extensions and trailers."
        }
        FramingError::HeadTooLarge => "The request head is larger than 64 KiB.",
        FramingError::TooManyFields => "The request has more than 100 header fields.",
        FramingError::TargetTooLong => "The request target is longer than 16 KiB.",
        FramingError::BodyTooLarge => "The request body is larger than 64 GiB.",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())?;
        self.cause().map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

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

/// Response to requests for which there is no response of the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Status code.
    pub status: StatusCode,
    /// Body.
    pub body: Bytes,
    /// Value of `Content-Type`.
    pub content_type: HeaderValue,
    /// Time after which clients may try again; rounded up to whole seconds.
    pub retry_after: Duration,
}

/// Rounds up to whole seconds, at least one.
fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0)).max(1)
}

/// Id of a request in the log, shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
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
    if failure.status() == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static(FORWARDED_METHODS));
    }
    if failure.closes() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Builds the fallback response of a site.
fn fall_back(
    failure: &Failure,
    fallback: &Fallback,
    why: Option<Why>,
) -> Response<ResponseBody> {
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

    use forebay_engine::TierError;
    use http_body_util::BodyExt;

    use super::*;

    fn page(request_headers: &HeaderMap, expose: bool) -> Page<'_> {
        Page { request_headers, request: RequestId(7), why: Some(Why::UriMiss), expose, fallback: None }
    }

    async fn text(response: Response<ResponseBody>) -> String {
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        String::from_utf8(body.to_vec()).expect("text")
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
                assert_eq!((response.status(), &response.headers()[RETRY_AFTER]), (StatusCode::OK, &HeaderValue::from(2)));
                assert_eq!(text(response).await, "soon");
            }
        }
        let failure = Failure::Load(LoadError::Unavailable(Duration::from_millis(2_100)));
        let response = respond(&failure, page(&request_headers, false));
        assert_eq!(response.headers()[RETRY_AFTER], "3");
    }

    #[test]
    fn every_failure_has_its_status() {
        let rows = [
            (Failure::Load(LoadError::TimedOut(std::time::Duration::ZERO)), 504),
            (Failure::Load(LoadError::NotCached), 504),
            (Failure::Load(LoadError::Overloaded("x")), 503),
            (Failure::Load(LoadError::Unavailable(Duration::ZERO)), 503),
            (Failure::Load(LoadError::Tier("redis", TierError::TimedOut)), 503),
            (Failure::Load(LoadError::origin("x")), 502),
            (Failure::Load(LoadError::unreachable("x")), 502),
            (Failure::Load(LoadError::RecentlyFailed(Arc::new(LoadError::Answered(503)))), 503),
            (Failure::MustRevalidate(LoadError::unreachable("x")), 504),
            (Failure::Load(LoadError::Answered(500)), 500),
            (Failure::Load(LoadError::Panicked("x".into())), 500),
            (Failure::BadRequest("x"), 400),
            (Failure::TooSlow, 408),
            (Failure::ClientGone, 400),
            (Failure::TooManyConnections, 503),
            (Failure::Refused(FramingError::Nul), 400),
            (Failure::Refused(FramingError::BodyTooLarge), 413),
            (Failure::Refused(FramingError::TargetTooLong), 414),
            (Failure::Refused(FramingError::HeadTooLarge), 431),
            (Failure::Refused(FramingError::TooManyFields), 431),
            (Failure::TargetTooLong, 414),
            (Failure::NoSite, 404),
            (Failure::MethodNotAllowed, 405),
            (Failure::AccessDenied, 403),
            (Failure::Misdirected, 421),
        ];
        for (failure, status) in rows {
            assert_eq!(failure.status().as_u16(), status, "{failure}");
        }
    }
}

//! Response of the sample origin to one request.

use super::body::{Content, PacedBody, seed_of};
use super::counts::{CountedRequest, Counts};
use super::parameters::{Parameters, Target};
use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    SET_COOKIE, VARY,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{sleep, timeout};

const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");
/// Sequence number of the request, which tells a stored response from a new one.
const X_FETCH: HeaderName = HeaderName::from_static("x-fetch");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Maximum size of a request body in bytes. It is read and discarded; a longer one ends the
/// connection.
const REQUEST_BODY_MAX: usize = 16 << 20;
/// Maximum time to receive a request body; after it the response is sent without reading on.
const REQUEST_BODY_WAIT: Duration = Duration::from_secs(30);

const USAGE: &str = "\
This is the sample origin. Its URLs are
  GET /items/NAME  a response made from parameters: delay=MS cc=CACHE-CONTROL size=BYTES status=N etag=V
                   vary=FIELDS tag=T1,T2 cookie=V drip=MS
  GET /stats       request counters, as JSON
";

/// Answers a request.
pub(super) async fn answer(
    request: Request<Incoming>,
    counts: &Arc<Counts>,
) -> Response<PacedBody> {
    let (parts, body) = request.into_parts();
    match Target::of(parts.uri.path()) {
        Target::Item(name) => {
            let counted = counts.begin(name);
            discard(body).await;
            item(name, &parts, counted).await
        }
        Target::Stats if matches!(parts.method, Method::GET | Method::HEAD) => {
            plain(StatusCode::OK, JSON, counts.json())
        }
        Target::Stats => {
            let mut response =
                plain(StatusCode::METHOD_NOT_ALLOWED, TEXT, "/stats supports GET and HEAD only.\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        Target::Unknown => plain(StatusCode::NOT_FOUND, TEXT, USAGE),
    }
}

async fn item(name: &str, parts: &Parts, counted: CountedRequest) -> Response<PacedBody> {
    if parts.headers.contains_key(IF_NONE_MATCH) || parts.headers.contains_key(IF_MODIFIED_SINCE) {
        counted.conditional();
    }
    let parameters = match Parameters::of(&parts.uri) {
        Ok(parameters) => parameters,
        Err(reason) => return plain(StatusCode::BAD_REQUEST, TEXT, reason),
    };
    sleep(parameters.delay).await;
    let status = if is_unmodified(&parameters, parts) {
        StatusCode::NOT_MODIFIED
    } else {
        parameters.status
    };
    if status == StatusCode::NOT_MODIFIED {
        counted.not_modified();
    }
    let serial = counted.serial;
    let content = content(name, &parameters, parts, serial);
    let length = content.len();
    let body = if has_body(status) && parts.method != Method::HEAD {
        PacedBody::new(content, parameters.drip, Some(counted))
    } else {
        PacedBody::new(Content::Text(Bytes::new()), Duration::ZERO, None)
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(X_FETCH, HeaderValue::from(serial));
    if has_body(status) {
        fields.insert(CONTENT_TYPE, TEXT);
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let etag =
        parameters.etag.as_ref().and_then(|tag| HeaderValue::from_bytes(tag.as_bytes()).ok());
    let chosen = [
        (CACHE_CONTROL, parameters.cache_control),
        (ETAG, etag),
        (VARY, parameters.vary_value),
        (SURROGATE_KEY, parameters.tags),
        (SET_COOKIE, parameters.cookie),
    ];
    fields.extend(chosen.into_iter().filter_map(|(name, value)| Some((name, value?))));
    response
}

/// Returns whether the response is 304. Conditions apply only where it would be 2xx (RFC 9110
/// section 13.2.1), and 304 is for GET and HEAD (section 13.1.2).
fn is_unmodified(parameters: &Parameters, parts: &Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD)
        && parameters.status.is_success()
        && parameters.etag.as_ref().is_some_and(|tag| tag.is_named_by(&parts.headers))
}

/// Returns whether a status has content (RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5).
fn has_body(status: StatusCode) -> bool {
    use StatusCode as S;
    !matches!(status, S::NO_CONTENT | S::RESET_CONTENT | S::NOT_MODIFIED)
}

fn content(name: &str, parameters: &Parameters, parts: &Parts, serial: u64) -> Content {
    let selecting = parameters.vary.iter().flat_map(|name| {
        let values = parts.headers.get_all(name).iter();
        values.map(move |value| (name.as_str(), value.as_bytes()))
    });
    let tag = parameters.etag.as_ref();
    if let Some(size) = parameters.size {
        let fixed = [name.as_bytes(), tag.map_or(&b""[..], |tag| tag.as_bytes())];
        let selecting = selecting.flat_map(|(name, value)| [name.as_bytes(), value]);
        return Content::Pattern { seed: seed_of(fixed.into_iter().chain(selecting)), size };
    }
    let mut text = format!("This is item \"{name}\"");
    // A strong tag promises identical bytes, so the body may not contain the time or the number.
    match tag {
        Some(tag) if tag.is_strong() => {
            text.push_str(&format!(", version {}.\n", String::from_utf8_lossy(tag.as_bytes())));
        }
        _ => {
            let now = httpdate::fmt_http_date(SystemTime::now());
            text.push_str(&format!(", made on {now} for fetch number {serial} of its origin.\n"));
        }
    }
    for (name, value) in selecting {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "It varies: {name} is {}.", String::from_utf8_lossy(value));
    }
    Content::Text(text.into())
}

fn plain(status: StatusCode, kind: HeaderValue, text: impl Into<Bytes>) -> Response<PacedBody> {
    let body = PacedBody::new(Content::Text(text.into()), Duration::ZERO, None);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Reads and discards a request body, so that the connection can be reused.
async fn discard(mut body: Incoming) {
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > REQUEST_BODY_MAX {
                return;
            }
        }
    };
    // After a timeout, as after too long a body, the rest stays unread and the connection ends.
    let _ = timeout(REQUEST_BODY_WAIT, reading).await;
}

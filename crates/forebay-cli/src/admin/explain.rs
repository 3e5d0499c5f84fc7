//! `GET /explain`, which changes nothing, and `POST /explain`, which also asks the origin.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use forebay_http::explanation::Explanation;
use forebay_http::{ExplainRequest, Service};
use forebay_semantics::Scheme;
use http::header::{HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::{Answer, json_answer, problem};
use crate::log::access::Redaction;

/// Maximum number of header fields of a request.
const FIELDS_MAX: usize = 100;

/// Maximum size of a request body in bytes. It has one request without a body.
const BODY_MAX: usize = 128 << 10;

/// Maximum time to receive the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum time between two requests to origins for reports.
const LIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Time of the last request to an origin for a report.
static LAST_LIVE: Mutex<Option<Instant>> = Mutex::new(None);

/// Request to explain, as it is written in a query or in JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    url: String,
    #[serde(default)]
    headers: Vec<String>,
    method: Option<String>,
    client: Option<IpAddr>,
}

/// Explains the request in a query: `url`, and optionally `header` (several), `method`, `client`.
pub(super) async fn answer(service: &Service, redaction: &Redaction, query: &str) -> Answer {
    match Asked::of_query(query).and_then(Asked::request) {
        Ok(request) => report(service.explain(&request).await, redaction),
        Err(sentence) => problem(StatusCode::BAD_REQUEST, &sentence),
    }
}

/// Asks the origin, and explains the request with its response.
pub(super) async fn answer_live(
    service: &Service,
    redaction: &Redaction,
    request: Request<Incoming>,
) -> Answer {
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    let Ok(Ok(body)) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
        return problem(
            StatusCode::BAD_REQUEST,
            "The body of the request did not arrive within 10 s, or is larger than 128 KiB.",
        );
    };
    let asked: Result<Asked, _> = serde_json::from_slice(&body.to_bytes());
    let request = match asked.map_err(|error| error.to_string()).and_then(Asked::request) {
        Ok(request) => request,
        Err(error) => {
            let sentence = format!(
                "The body must be JSON such as {{\"url\": \"http://shop.example/\", \"headers\": \
                 [\"Accept: text/html\"]}}, but is invalid: {error}"
            );
            return problem(StatusCode::BAD_REQUEST, &sentence);
        }
    };
    if !may_ask() {
        return problem(
            StatusCode::TOO_MANY_REQUESTS,
            "Only one request a second is sent to origins for explanations. Try again.",
        );
    }
    let live = service.ask_for_explanation(&request).await;
    report(service.explain_with(&request, live).await, redaction)
}

/// Returns the explanation without the secret parameters of the URL.
fn report(mut explanation: Explanation, redaction: &Redaction) -> Answer {
    let targets = explanation.key.iter_mut().map(|key| &mut key.target);
    for text in targets.chain([&mut explanation.url]) {
        *text = redaction.target(text).into_owned();
    }
    match serde_json::to_value(&explanation) {
        Ok(value) => json_answer(StatusCode::OK, &value),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Returns true at most once per [`LIVE_INTERVAL`].
fn may_ask() -> bool {
    let mut last = LAST_LIVE.lock();
    let is_free = last.is_none_or(|last| last.elapsed() >= LIVE_INTERVAL);
    if is_free {
        *last = Some(Instant::now());
    }
    is_free
}

impl Asked {
    fn of_query(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8();
            let value = value.map_err(|_| format!("The parameter {name} is not UTF-8."))?;
            match name {
                "url" => asked.url = value.into_owned(),
                "header" => asked.headers.push(value.into_owned()),
                "method" => asked.method = Some(value.into_owned()),
                "client" => {
                    let client = value.parse();
                    asked.client = Some(client.map_err(|_| {
                        format!("The parameter client must be an IP address, but is {value}.")
                    })?);
                }
                _ => {
                    return Err(format!(
                        "There is no parameter {name}; use url, header, method and client."
                    ));
                }
            }
        }
        Ok(asked)
    }

    fn request(self) -> Result<ExplainRequest, String> {
        let whole = || {
            "The URL must be complete, as clients request it, such as \
             http://shop.example/items/1."
                .to_owned()
        };
        let uri: Uri = self.url.parse().map_err(|_| whole())?;
        let scheme = uri.scheme_str().and_then(Scheme::parse).ok_or_else(whole)?;
        let authority = uri.authority().ok_or_else(whole)?.to_string();
        let path = uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let method = self.method.as_deref().unwrap_or("GET");
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|_| "The method is not a token.".to_owned())?;
        if self.headers.len() > FIELDS_MAX {
            return Err(format!("A request has at most {FIELDS_MAX} header fields."));
        }
        let mut headers = HeaderMap::new();
        for field in &self.headers {
            let (name, value) = parse_field(field)
                .ok_or_else(|| format!("The header field must be Name: value, but is {field}."))?;
            headers.append(name, value);
        }
        let client = self.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Ok(ExplainRequest { scheme, authority, path, method, headers, client })
    }
}

fn parse_field(field: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = field.split_once(':')?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    Some((name, HeaderValue::from_str(value.trim()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_with_its_errors() {
        let query = "url=http%3A%2F%2Fshop.example%2Fa%3Fb%3D1&header=Accept:+text/html\
                     &header=Cookie:%20a%3Db&method=HEAD&client=192.0.2.1";
        let request = Asked::of_query(query).and_then(Asked::request).expect("valid");
        assert_eq!(request.url(), "http://shop.example/a?b=1");
        assert_eq!((request.method, request.headers.len()), (Method::HEAD, 2));
        assert_eq!(request.client.to_string(), "192.0.2.1");
        for (query, error) in [
            ("", "must be complete"),
            ("url=/a", "must be complete"),
            ("url=ftp://a/", "must be complete"),
            ("url=http://a/&header=nonsense", "must be Name: value"),
            ("url=http://a/&client=x", "must be an IP address"),
            ("url=http://a/&metod=GET", "no parameter metod"),
        ] {
            let sentence = Asked::of_query(query).and_then(Asked::request).expect_err(query);
            assert!(sentence.contains(error), "{query}: {sentence}");
        }
    }
}

//! Requests in the form of HTTP/2, and the meaning of its failures.

use std::error::Error;

use forebay_semantics::Scheme;
use h2::Reason;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Uri, Version};
use http_body::Body;

use crate::origin::no_body;
use crate::origin::progress::{Progress, TrackedBody};

/// Authority of a request without a usable `Host`. An origin rejects it or ignores it.
const NO_AUTHORITY: &str = "localhost";

/// Changes a request to the form of HTTP/2: scheme and authority are in its target (RFC 9113 section
/// 8.3.1), and no field describes the connection (section 8.2.2).
pub(super) fn to_http2(request: &mut Request<TrackedBody>, scheme: Scheme) {
    let headers = request.headers_mut();
    let host = headers.remove(HOST);
    headers.remove(TRANSFER_ENCODING);
    headers.remove(CONNECTION);
    let authority = host.as_ref().and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let authority = authority.unwrap_or_else(|| Authority::from_static(NO_AUTHORITY));
    let target = request.uri().path_and_query().cloned();
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let uri = Uri::builder().scheme(scheme.as_str()).authority(authority).path_and_query(target);
    if let Ok(uri) = uri.build() {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
}

/// Changes a request back to the form of HTTP/1.1, so that any connection can carry it.
pub(super) fn to_http1(request: &mut Request<TrackedBody>) {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    if let Some(Ok(host)) = authority.map(HeaderValue::try_from) {
        request.headers_mut().insert(HOST, host);
    }
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = target.map_or_else(Uri::default, Uri::from);
    if request.body().size_hint().exact().is_none() {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(TRANSFER_ENCODING, chunked);
    }
    *request.version_mut() = Version::HTTP_11;
}

/// Copy of a request without a body, from which it can be sent once more.
pub(super) struct Copied {
    head: Request<()>,
    progress: Progress,
}

impl Copied {
    /// Copies a request in the form of HTTP/1.1. `None` if it has a body, which is read once.
    pub(super) fn of(request: &Request<TrackedBody>) -> Option<Self> {
        if !request.body().is_end_stream() {
            return None;
        }
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        head.headers_mut().clone_from(request.headers());
        head.extensions_mut().clone_from(request.extensions());
        Some(Self { head, progress: request.body().progress().clone() })
    }

    /// Returns the request.
    pub(super) fn into_request(self) -> Box<Request<TrackedBody>> {
        Box::new(self.head.map(|()| self.progress.track(no_body())))
    }
}

/// Failure of one request on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The origin ends the connection, and did not process the request (RFC 9113 section 6.8).
    GoAway,
    /// The origin did not process the request (RFC 9113 section 8.7).
    Refused,
    /// The request may have been processed.
    Other,
}

impl Failure {
    /// Reads the failure in an error of hyper.
    ///
    /// h2 fails those requests with the GOAWAY that the origin has not processed. The others get
    /// their responses, or fail with the end of the connection.
    pub(super) fn of(error: &hyper::Error) -> Self {
        let mut sources = std::iter::successors(error.source(), |&source| source.source());
        let Some(error) = sources.find_map(|source| source.downcast_ref::<h2::Error>()) else {
            return Self::Other;
        };
        if error.is_go_away() && error.is_remote() {
            return Self::GoAway;
        }
        let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
        if is_refused && error.is_reset() && error.is_remote() {
            return Self::Refused;
        }
        Self::Other
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn request(fields: &[(&'static str, &'static str)]) -> Request<TrackedBody> {
        let mut request =
            Request::new(Progress::begin(tokio::time::Instant::now(), true).track(no_body()));
        *request.uri_mut() = Uri::from_static("/a?b");
        for (name, value) in fields {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request
    }

    #[test]
    fn the_target_has_scheme_and_authority_and_no_field_is_of_the_connection() {
        let rows = [
            ("shop.example", "https://shop.example/a?b"),
            ("shop.example:8443", "https://shop.example:8443/a?b"),
            ("a b", "https://localhost/a?b"),
        ];
        for (host, expected) in rows {
            let fields = [("host", host), ("transfer-encoding", "chunked"), ("x-a", "1")];
            let mut request = request(&fields);
            to_http2(&mut request, Scheme::Https);
            assert_eq!(request.uri(), expected);
            let names: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
            assert_eq!((names, request.version()), (vec!["x-a"], Version::HTTP_2));
            to_http1(&mut request);
            assert_eq!(request.uri(), "/a?b");
            assert_eq!(request.version(), Version::HTTP_11);
            let host = if host.contains(' ') { "localhost" } else { host };
            assert_eq!(request.headers()["host"], host);
        }
        let mut hostless = request(&[]);
        to_http2(&mut hostless, Scheme::Http);
        assert_eq!(hostless.uri(), "http://localhost/a?b");
    }

    #[test]
    fn a_copy_is_sent_as_the_first_request() {
        let mut first = request(&[("host", "h")]);
        *first.method_mut() = Method::POST;
        let copied = Copied::of(&first).expect("it has no body").into_request();
        assert_eq!((copied.method(), copied.uri()), (first.method(), first.uri()));
        assert_eq!(copied.headers(), first.headers());
    }
}

//! Responses from entries, and error responses.

use std::sync::atomic::Ordering;

use forebay_core::Why;
use forebay_engine::Outcome;
use http::Response;
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;

use super::route::{INVALID_HOST, LoggedRequest, Routed};
use super::{Service, secure};
use crate::client::logged_path;
use crate::compress::choose::Chosen;
use crate::failure::Failure;
use crate::load::LoadDetails;
use crate::record::{CacheResult, Labels, RequestId};
use crate::response::body::ResponseBody;
use crate::response::deliver::{deliver, deliver_loaded};
use crate::response::error_page::{Page, respond};

impl Service {
    pub(crate) fn deliver(
        &self,
        logged: LoggedRequest<'_>,
        obtained: &Outcome,
        chosen: Chosen<'_>,
    ) -> Response<ResponseBody> {
        deliver(logged.request, obtained, chosen, self.engine.clock().now())
            .unwrap_or_else(|| self.fail(&Failure::Unreadable, logged, obtained.why))
    }

    /// Creates the response from the result of a load.
    pub(crate) fn deliver_loaded(
        &self,
        logged: LoggedRequest<'_>,
        obtained: &Outcome,
        details: &LoadDetails,
        chosen: Chosen<'_>,
    ) -> Response<ResponseBody> {
        deliver_loaded(logged.request, obtained, details, chosen, self.engine.clock().now())
            .unwrap_or_else(|| self.fail(&Failure::Unreadable, logged, obtained.why))
    }

    /// Error response to a request that cannot be answered, with a warning.
    pub(crate) fn fail(
        &self,
        failure: &Failure,
        logged: LoggedRequest<'_>,
        why: Option<Why>,
    ) -> Response<ResponseBody> {
        let (id, site, code) = (logged.id, logged.site, failure.code());
        let (method, host, path) = (logged.request.method, logged.host, logged.path());
        if failure.is_of_client() {
            let site = &*site.settings.id;
            tracing::debug!(site, %method, host, path, request = %id, code, "{failure}");
        } else if let Some(suppressed) = site.warnings.admit(code, self.engine.clock().now()) {
            let has_fallback = site.settings.fallback.is_some() && failure.lacks_origin();
            tracing::warn!(
                site = &*site.settings.id,
                %method,
                host,
                path,
                request = %id,
                status = failure.status().as_u16(),
                code,
                cause = failure.cause(),
                served = if has_fallback { "fallback" } else { "error" },
                suppressed,
                "{}",
                failure.sentence()
            );
        }
        let expose = logged.site.settings.expose_errors;
        let fallback = logged.site.settings.fallback.as_ref();
        let request_headers = logged.request.headers;
        respond(failure, Page { request_headers, request: id, why, expose, fallback })
    }

    /// Redirects a request to https.
    #[cold]
    pub(super) fn redirect(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        port: u16,
    ) -> Response<ResponseBody> {
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let Some(mut response) = secure::redirect(&routed.authority, path, port) else {
            return self.refuse(&INVALID_HOST, parts, routed.id);
        };
        response.body_mut().set_labels(Labels::of(routed.slot, CacheResult::Redirect));
        response
    }

    /// Creates the response to a request that matches no site.
    pub(super) fn refuse(
        &self,
        failure: &Failure,
        parts: &Parts,
        id: RequestId,
    ) -> Response<ResponseBody> {
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        tracing::debug!(
            method = %parts.method,
            host,
            path = logged_path(parts.uri.path()),
            request = %id,
            code = failure.code(),
            "client request rejected: {failure}"
        );
        let request_headers = &parts.headers;
        let page = Page { request_headers, request: id, why: None, expose: false, fallback: None };
        let mut response = respond(failure, page);
        response.body_mut().set_labels(Labels::REFUSED);
        response
    }

    /// Returns the id of the next request.
    pub(crate) fn request_id(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }
}

//! Requests with `Upgrade`: they bypass the cache, and a 101 opens a tunnel.

use forebay_engine::LoadError;
use forebay_semantics::status::{CacheStatus, Forward as Hop, Handling};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::{LabelledResponse, OriginRequest, failure_of};
use crate::load::{ClientRequest, normalise_fields};
use crate::origin::{FetchRequest, SwitchOutcome, Urgency, is_idle_close, no_body};
use crate::record::CacheResult;
use crate::response::body::ResponseBody;
use crate::rules::Served;
use crate::tunnel::upgrade;

impl OriginRequest<'_> {
    /// Asks the origin for one of these protocols. A response other than 101 is forwarded like any
    /// that bypassed the cache.
    pub(crate) async fn switch(
        self,
        parts: Parts,
        protocols: HeaderValue,
    ) -> Response<ResponseBody> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let done = match self.client_request(parts.headers.into(), &parts.uri) {
            Ok(request) => match self.ask_for(&request, protocols).await {
                Ok(done) => done,
                Err(error) => self.failed(&failure_of(error), request.headers()),
            },
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(done)
    }

    async fn ask_for(
        &self,
        request: &ClientRequest,
        protocols: HeaderValue,
    ) -> Result<LabelledResponse, LoadError> {
        let origin = &request.site.origin;
        let asked = question(request, &protocols);
        request.check_request_transforms()?;
        let switched = match origin.switch(asked, &protocols).await {
            // RFC 9112 section 9.3.1: a GET may be retried on another connection.
            Err(error) if is_idle_close(&error) => {
                origin.switch(question(request, &protocols), &protocols).await?
            }
            answered => answered?,
        };
        Ok(match switched {
            SwitchOutcome::Declined(response) => {
                let mut response = response.map(ResponseBody::origin);
                request.edit_fields(response.status(), response.headers_mut());
                request.check_response_transforms()?;
                let mut done = self.bypass_response(response, CacheResult::Bypass);
                self.edit_response(&mut done.response, request.headers(), Served::Other);
                done
            }
            SwitchOutcome::Switched { headers, protocol, tunnel } => {
                let open = self.service.metrics().tunnel(&self.site.settings.id);
                let mut response = Response::new(ResponseBody::tunnel(tunnel.counted(open)));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = headers;
                let mut done = self.bypass_response(response, CacheResult::Tunnel);
                let headers = done.response.headers_mut();
                // RFC 9110 section 8.6: a 1xx has no Content-Length.
                headers.remove(CONTENT_LENGTH);
                upgrade::agree_on(headers, protocol);
                done
            }
        })
    }

    fn bypass_response(
        &self,
        mut response: Response<ResponseBody>,
        cache: CacheResult,
    ) -> LabelledResponse {
        let status = Some(response.status().as_u16());
        let headers = response.headers_mut();
        normalise_fields(headers, self.service.engine().clock().wall());
        let handling =
            Handling::Forward(Hop { why: self.why, status, stored: false, collapsed: false });
        CacheStatus { handling, ..CacheStatus::forward(self.why) }.append_to(headers);
        LabelledResponse { response, cache, why: Some(self.why), origin_time: None }
    }
}

fn question(request: &ClientRequest, protocols: &HeaderValue) -> Box<FetchRequest> {
    let mut headers = request.outgoing_fields();
    upgrade::ask_for(&mut headers, protocols.clone());
    Box::new(FetchRequest {
        method: Method::GET,
        target: request.target.clone(),
        headers,
        body: no_body(),
        interims: request.interims.clone(),
        urgency: Urgency::default(),
    })
}

//! A request for another protocol: past the cache, and perhaps into a tunnel.

use std::net::IpAddr;

use forebay_engine::LoadError;
use forebay_semantics::status::{CacheStatus, Fate, Forward as Hop};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::{Done, Errand, failure_of};
use crate::load::{Asking, tidy_fields};
use crate::origin::{FetchRequest, SwitchOutcome, is_idle_close, no_body};
use crate::response_body::ResponseBody;
use crate::upgrade;

impl Errand<'_> {
    /// Asks the origin for one of these protocols. An answer in HTTP is like any other that came
    /// past the cache.
    pub(crate) async fn switch(
        self,
        (parts, peer): (Parts, IpAddr),
        protocols: HeaderValue,
    ) -> Response<ResponseBody> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let done = match self.asking(parts.headers, peer) {
            Ok(asking) => match self.ask_for(&asking, protocols).await {
                Ok(done) => done,
                Err(error) => self.failed(&failure_of(error), &asking.headers),
            },
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(&Method::GET, done)
    }

    async fn ask_for(&self, asking: &Asking, protocols: HeaderValue) -> Result<Done, LoadError> {
        let origin = &asking.site.origin;
        let switched = match origin.switch(question(asking, &protocols), &protocols).await {
            // RFC 9112 section 9.3.1: a GET may be sent once more.
            Err(error) if is_idle_close(&error) => {
                origin.switch(question(asking, &protocols), &protocols).await?
            }
            answered => answered?,
        };
        Ok(match switched {
            SwitchOutcome::Declined(response) => {
                let response = response.map(ResponseBody::origin);
                self.past_the_cache(response, "bypass")
            }
            SwitchOutcome::Switched { headers, protocol, tunnel } => {
                let open = self.service.metrics().tunnel(&self.site.settings.id);
                let mut response = Response::new(ResponseBody::tunnel(tunnel.counted(open)));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = headers;
                let mut done = self.past_the_cache(response, "tunnel");
                let headers = done.response.headers_mut();
                // RFC 9110 section 8.6: not in a 1xx.
                headers.remove(CONTENT_LENGTH);
                upgrade::agree_on(headers, protocol);
                done
            }
        })
    }

    fn past_the_cache(&self, mut response: Response<ResponseBody>, cache: &'static str) -> Done {
        let status = Some(response.status().as_u16());
        let headers = response.headers_mut();
        tidy_fields(headers, self.service.engine().clock().wall());
        let fate = Fate::Forward(Hop { why: self.why, status, stored: false, collapsed: false });
        CacheStatus { fate, ..CacheStatus::forward(self.why) }.append_to(headers);
        Done { response, cache, why: Some(self.why) }
    }
}

fn question(asking: &Asking, protocols: &HeaderValue) -> FetchRequest {
    let mut headers = asking.outgoing_fields();
    upgrade::ask_for(&mut headers, protocols.clone());
    FetchRequest {
        method: Method::GET,
        target: asking.target.clone(),
        headers,
        body: no_body(),
        interims: asking.interims.clone(),
    }
}

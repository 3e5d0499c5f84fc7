//! Requests with a lookup by body (RFC 10008, RFC 9110 section 9.3.3).

use bytes::Bytes;
use forebay_engine::LookupResult;
use http::request::Parts;
use http::{HeaderMap, Method, Response};

use super::{LabelledResponse, LoadRequest, OriginRequest, failure_of};
use crate::failure::Failure;
use crate::load::{ByBodyLoad, ClientRequest, FetchMode, HttpLoad};
use crate::origin::{ClientFault, RequestBody};
use crate::response::body::ResponseBody;
use crate::service::by_body::{self, Collected, collect};
use crate::site::key;

impl OriginRequest<'_> {
    /// Reads the body, then looks up the response. A larger body than `body_max` bypasses the
    /// cache.
    pub(crate) async fn by_body(
        mut self,
        parts: Parts,
        body: RequestBody,
    ) -> Response<ResponseBody> {
        let body = match collect(body, self.site.settings.opt_ins.body_max).await {
            Ok(Collected::Whole(body)) => body,
            Ok(Collected::Larger(body)) => return self.forward(parts, body).await,
            Err(error) => {
                let failure = Failure::from(ClientFault::of_body(&*error));
                let done = self.failed(&failure, &parts.headers);
                return self.finish(done);
            }
        };
        let method = parts.method;
        let done = match self.client_request(parts.headers.into(), &parts.uri) {
            Ok(request) => self.answer_by_body(request, &method, body).await,
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(done)
    }

    async fn answer_by_body(
        &mut self,
        request: ClientRequest,
        method: &Method,
        body: Bytes,
    ) -> LabelledResponse {
        let demand = self.rules.demand(&self.site, request.headers());
        let mut target = key::primary(&self.site, self.peer.scheme, &self.authority, &self.target);
        self.rules.add_key_parts(&self.site, request.headers(), &mut target);
        let key = by_body::key(target, method, request.headers(), &body);
        let service = self.service;
        let engine = service.engine();
        let load =
            HttpLoad::new(request, engine.clone(), key.borrowed().to_key(), FetchMode::Whole);
        let load_request = LoadRequest { key: &key, demand: &demand, load: &load };
        let wanting = match engine.lookup(&self.ask(key.borrowed(), &demand, &load)) {
            LookupResult::Hit(obtained) => {
                service.metrics().count_found();
                return self.deliver(load_request, &obtained, method);
            }
            LookupResult::Miss(wanting) => wanting,
        };
        self.why = wanting.why();
        service.metrics().count_lookup(self.why);
        let _waits = service.metrics().waits(&self.site.settings.id);
        let ask = self.ask(key.borrowed(), &demand, &load);
        let asked = ByBodyLoad::new(load.clone(), method.clone(), body);
        match wanting.load(engine, &ask, asked).await {
            Ok(obtained) => self.deliver(load_request, &obtained, method),
            Err(error) => self.failed_load(&failure_of(error), load.request()),
        }
    }
}

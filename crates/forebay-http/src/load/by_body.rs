//! Loads of responses that are stored by request body.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::{
    Audience, Entry, Head, HeadCodec, Load, LoadError, LoadOptions, Loaded, Select, TierCall,
    Waiting,
};
use forebay_semantics::ResponseRef;
use forebay_semantics::lifetime::{initial_age, lifetime};
use forebay_semantics::storable::Unstorable;
use forebay_semantics::unsafe_methods::{invalidates, is_safe, states_freshness};
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Full};

use super::{ClientRequest, HttpLoad, Received};
use crate::load::invalidate;
use crate::origin::{FetchRequest, Outgoing};
use crate::site::tags;

/// Load of a response that is stored by request body.
#[derive(Clone)]
pub(crate) struct ByBodyLoad {
    load: HttpLoad,
    method: Method,
    body: Bytes,
}

impl ByBodyLoad {
    pub(crate) fn new(load: HttpLoad, method: Method, body: Bytes) -> Self {
        Self { load, method, body }
    }

    /// Sends the request. A stored response is never validated, because 304 is defined for GET and
    /// HEAD only (RFC 9110 section 15.4.5).
    async fn ask(&self, prior: Option<&Entry>, company: Audience) -> Result<Loaded, LoadError> {
        let request = self.load.request();
        let question = || self.question(request);
        let received = if is_safe(&self.method) {
            request.ask(question, company).await?
        } else {
            // RFC 9110 section 9.2.2: an unsafe request may already have taken effect, so it is not
            // retried.
            let unrepeated = Outgoing::Built(Box::new(question()), None);
            request.ask_once(unrepeated, company).await?
        };
        let status = received.response.status();
        let fields = received.response.headers().clone();
        let mut loaded = if self.may_be_stored(&received) {
            self.load.0.judge(received, prior)?
        } else {
            self.load.0.pass_unstored(received.response, Unstorable::NoFreshness)?
        };
        if let Loaded::Entry { meta, .. } = &mut loaded {
            let target = request.target.as_str();
            let bodies = tags::of_bodies(&request.site, request.host_origin(), target);
            meta.set_tags(tags::with(meta.tags(), &bodies));
        }
        if invalidates(&self.method, status) {
            let is_stored = matches!(loaded, Loaded::Entry { .. });
            self.invalidate(&fields, is_stored).await;
        }
        Ok(loaded)
    }

    fn question(&self, request: &ClientRequest) -> FetchRequest {
        let body = Full::new(self.body.clone()).map_err(|never| match never {}).boxed_unsync();
        FetchRequest { method: self.method.clone(), body, ..request.question(|_| {}) }
    }

    /// RFC 9110 section 9.3.3: the response to an unsafe method is stored only with explicit
    /// freshness.
    fn may_be_stored(&self, received: &Received) -> bool {
        let request = self.load.request();
        let (fields, now) = (received.response.headers(), request.clock.wall());
        let answered = ResponseRef { status: received.response.status(), headers: fields };
        let (rules, status) = (&request.rules, received.response.status());
        if rules.gives_query_lifetime(&request.site, status, fields) {
            return true;
        }
        let span = || lifetime(answered, &request.site.settings.rules, now).fresh;
        is_safe(&self.method)
            || states_freshness(fields) && span() > initial_age(fields, now, received.delay)
    }

    /// Invalidates what an unsafe request changed (RFC 9111 section 4.4). If its response is
    /// stored, site and origin have declared it a read, and only groups are invalidated. So it is for a
    /// GraphQL query.
    async fn invalidate(&self, fields: &HeaderMap, is_stored: bool) {
        let (engine, request) = (&self.load.0.engine, self.load.request());
        if is_stored || request.rules.is_query() {
            invalidate::groups(engine, request, &self.method, fields).await;
        } else {
            invalidate::all(engine, request, &self.method, fields).await;
        }
    }
}

impl Select for ByBodyLoad {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.load.field(name)
    }

    fn variants_max(&self) -> usize {
        self.load.variants_max()
    }
}

impl Load for ByBodyLoad {
    fn begins(&self, waiting: Waiting) {
        self.load.request().urgency.begins(waiting);
    }

    async fn load(
        &self,
        prior: Option<Arc<Entry>>,
        company: Audience,
    ) -> Result<Loaded, LoadError> {
        let request = self.load.request();
        let loaded = {
            let asked = pin!(self.ask(prior.as_deref(), company));
            request.with_timeout(&self.method, self.load.key(), asked).await
        };
        request.log_failure(&self.method, prior.as_deref(), &loaded);
        loaded
    }

    fn tier_called(&self, call: TierCall) {
        self.load.request().note_tier_call(call);
    }

    fn options(&self) -> LoadOptions {
        LoadOptions { answer_for: self.load.details().answer_for(), ..LoadOptions::default() }
    }
}

impl HeadCodec for ByBodyLoad {
    fn decode_head(&self, bytes: Bytes) -> Option<Head> {
        self.load.decode_head(bytes)
    }
}

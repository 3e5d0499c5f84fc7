//! Requests that memory did not answer: loaded through the engine, or forwarded past the cache.

mod by_body;
mod parts;
mod switch;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_core::{Demand, KeyBuf, KeyRef, OriginFailure, Why};
use forebay_engine::{Coalesce, LoadError, Lookup, Miss, Outcome, Source};
use forebay_semantics::{FieldLines, RawFields, cdn_loop, hop, validate};
use http::header::RANGE;
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, Method, Response, StatusCode, Version};

use crate::client::credentials;
use crate::client::peer::Peer;
use crate::failure::Failure;
use crate::load::{
    ClientFields, ClientRequest, DecisionRecorder, FetchMode, HandedResult, HttpLoad,
};
use crate::origin::{ClientFault, LoadUrgency, RequestBody, no_body};
use crate::record::decisions::hash;
use crate::record::{CacheResult, Labels, RequestId, RequestTrace, SiteSlot};
use crate::request_guard::Interims;
use crate::response::body::ResponseBody;
use crate::response::deliver::RequestHead;
use crate::rules::{RequestRules, RuleChanges, Served, Values, finish};
use crate::service::early_hints::early_hints;
use crate::service::forward::{Forward, is_last_hop};
use crate::service::{
    Context, LoggedRequest, PendingFetch, Routed, Service, secure, server_timing,
};
use crate::site::Site;

/// Request that needs the origin. It owns all that it uses of the client's request.
pub(crate) struct OriginRequest<'s> {
    service: &'s Service,
    site: Arc<Site>,
    slot: SiteSlot,
    id: RequestId,
    method: Method,
    authority: Box<str>,
    target: String,
    peer: Peer,
    why: Why,
    interims: Interims,
    rules: RequestRules,
    trace: Option<Arc<RequestTrace>>,
    handed: Option<Arc<HandedResult>>,
}

/// Key, demand and load of one request.
#[derive(Clone, Copy)]
struct LoadRequest<'a> {
    key: &'a KeyBuf,
    demand: &'a Demand,
    load: &'a HttpLoad,
}

/// Response with its labels for the metrics.
struct LabelledResponse {
    response: Response<ResponseBody>,
    cache: CacheResult,
    /// Reason for the forwarding, or `None` for a fresh hit and a request that the client did not
    /// finish.
    why: Option<Why>,
    /// Duration of the request to the origin, if this request caused it.
    origin_time: Option<Duration>,
}

impl<'s> OriginRequest<'s> {
    pub(crate) fn new(service: &'s Service, routed: &Routed<'_>, why: Why) -> Self {
        Self {
            service,
            site: routed.site.clone(),
            slot: routed.slot,
            id: routed.id,
            method: routed.method.clone(),
            authority: (&*routed.authority).into(),
            target: (&*routed.target).into(),
            peer: routed.peer.clone(),
            why,
            interims: Interims::default(),
            rules: routed.rules,
            trace: None,
            handed: None,
        }
    }

    /// Returns the site of the request in the metrics.
    pub(crate) const fn slot(&self) -> SiteSlot {
        self.slot
    }

    /// Connects the trace and the interim responses with the client. RFC 9110 section 15.2: interim
    /// responses are not sent to an HTTP/1.0 client.
    pub(in crate::service) fn with_context(
        mut self,
        context: Context<'_>,
        parts: &Parts,
    ) -> (Self, Interims) {
        self.trace = context.pending.trace().cloned();
        self.handed = context.pending.handed();
        if let Some(exchange) = context.exchange.filter(|_| parts.version >= Version::HTTP_11) {
            self.interims = exchange.interims();
        }
        let interims = self.interims.clone();
        (self, interims)
    }

    /// Loads the response that the lookup did not find.
    pub(crate) async fn obtain(
        self,
        parts: Parts,
        pending: PendingFetch,
    ) -> Response<ResponseBody> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let method = parts.method;
        if let Some(hints) = early_hints(&self.site, &parts.headers, &pending.wanting) {
            self.interims.send(StatusCode::EARLY_HINTS, &hints);
        }
        let done = match self.client_request(parts.headers.into(), &parts.uri) {
            Ok(request) if method == Method::HEAD && self.is_alone(&request, &pending) => {
                // Boxed, because otherwise each GET would reserve space for it.
                Box::pin(self.head(request, &pending)).await
            }
            Ok(request) => self.fetch(request, pending, &method).await,
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(done)
    }

    /// Forwards a request past the cache.
    pub(crate) async fn forward(self, parts: Parts, body: RequestBody) -> Response<ResponseBody> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let (method, mut headers, uri) = (parts.method, parts.headers, parts.uri);
        if is_last_hop(&method, &mut headers) {
            let done = self.failed(&Failure::MethodNotAllowed, &headers);
            return self.finish(done);
        }
        let done = match self.client_request(headers.into(), &uri) {
            Ok(request) => self.pass_on(request, method.clone(), body, CacheResult::Bypass).await,
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(done)
    }

    async fn fetch(
        &self,
        request: ClientRequest,
        pending: PendingFetch,
        method: &Method,
    ) -> LabelledResponse {
        let engine = self.service.engine().clone();
        let key = pending.key.borrowed().to_key();
        let fetch_mode = self.fetch_mode(method, request.headers(), &pending);
        let load = HttpLoad::new(request, engine, key, fetch_mode);
        let load_request = LoadRequest { key: &pending.key, demand: &pending.demand, load: &load };
        let has_range = *method == Method::GET && load.headers().contains_key(RANGE);
        if !has_range || pending.wanting.has_prior() {
            return self.fetch_whole(load_request, pending.wanting, method).await;
        }
        // Boxed, because otherwise each GET would reserve space for it.
        Box::pin(self.fetch_range(load_request, pending.wanting)).await
    }

    /// Returns `true` if no stored response can answer a HEAD or be updated by it.
    fn is_alone(&self, request: &ClientRequest, pending: &PendingFetch) -> bool {
        let wanting = &pending.wanting;
        !wanting.has_prior()
            || (!wanting.is_served_first() && self.is_known_private(request.headers(), pending))
    }

    fn is_known_private(&self, headers: &HeaderMap, pending: &PendingFetch) -> bool {
        let engine = self.service.engine();
        engine.is_known_private(pending.key.borrowed(), credentials(headers))
    }

    /// Selects the fetch mode. If a site disables coalescing, its storable responses are still
    /// fetched as a whole and stored.
    fn fetch_mode(
        &self,
        method: &Method,
        headers: &HeaderMap,
        pending: &PendingFetch,
    ) -> FetchMode {
        let shares = self.rules.coalesce(&self.site) != Coalesce::Never;
        let for_one = shares || pending.demand.no_store || self.is_known_private(headers, pending);
        let fetch_as_requested = validate::may_be_conditional(headers)
            && (headers.contains_key(RANGE) || validate::has_cache_conditions(headers));
        match *method {
            // A background refresh is shared, whichever request started it.
            Method::HEAD if !pending.wanting.is_served_first() => FetchMode::Head,
            _ if for_one && fetch_as_requested => FetchMode::AsRequested,
            _ => FetchMode::Whole,
        }
    }

    async fn fetch_whole(
        &self,
        load_request: LoadRequest<'_>,
        wanting: Miss,
        method: &Method,
    ) -> LabelledResponse {
        match self.obtain_whole(load_request, wanting).await {
            Ok(obtained) => self.deliver(load_request, &obtained, method),
            Err(failure) => self.failed_load(&failure, load_request.load.request()),
        }
    }

    async fn obtain_whole(
        &self,
        load_request: LoadRequest<'_>,
        wanting: Miss,
    ) -> Result<Outcome, Failure> {
        let LoadRequest { key, demand, load } = load_request;
        let ask = self.ask(key.borrowed(), demand, load);
        let bound = wanting.must_not_be_stale();
        let obtained = wanting.load(self.service.engine(), &ask, load.clone()).await;
        self.note_followed(key.borrowed(), &obtained);
        obtained.map_err(|error| load_failure(error, bound, demand))
    }

    /// Lets the trace refer to the load of another request, if it answered this one.
    fn note_followed(&self, key: KeyRef<'_>, obtained: &Result<Outcome, LoadError>) {
        let Some(trace) = &self.trace else { return };
        if obtained.as_ref().is_ok_and(|obtained| obtained.source != Source::Followed) {
            return;
        }
        trace.follow(hash(key));
    }

    fn ask<'a>(&self, key: KeyRef<'a>, demand: &'a Demand, load: &'a HttpLoad) -> Lookup<'a> {
        let coalesce = self.rules.coalesce(&self.site);
        Lookup { key, demand, select: load, credentials: credentials(load.headers()), coalesce }
    }

    fn deliver(
        &self,
        load_request: LoadRequest<'_>,
        obtained: &Outcome,
        method: &Method,
    ) -> LabelledResponse {
        self.count_sampled(load_request.key.borrowed(), obtained);
        let head = RequestHead { method, headers: load_request.load.headers() };
        let details = load_request.load.details();
        let ask = self.ask(load_request.key.borrowed(), load_request.demand, load_request.load);
        let chosen = self.service.choose(&self.site, &ask, head.headers, obtained);
        let logged = self.logged(head);
        let mut response = self.service.deliver_loaded(logged, obtained, details, chosen);
        if obtained.source == Source::Passed {
            self.service.encode(&self.site, head, &mut response);
        }
        let is_hit = obtained.source == Source::Hit;
        self.edit_response(&mut response, head.headers, served(obtained.source));
        let why = obtained.why.or_else(|| (!is_hit).then_some(self.why));
        let origin_time = origin_time(load_request, obtained);
        LabelledResponse { response, cache: cache_label(obtained), why, origin_time }
    }

    fn count(&self, obtained: &Outcome) {
        let now = self.service.engine().clock().now();
        let staleness = obtained.entry.meta.staleness(now);
        self.service.metrics().count_obtained(&self.site.settings.id, obtained, staleness);
    }

    /// Counts a response, and samples its key if its entry is stored.
    fn count_sampled(&self, key: KeyRef<'_>, obtained: &Outcome) {
        self.count(obtained);
        if !matches!(obtained.source, Source::Passed | Source::Led { stored: false, .. }) {
            let now = self.service.engine().clock().now();
            self.service.metrics().sample(key, &obtained.entry, now);
        }
    }

    /// Answers a HEAD without a usable stored response: it is forwarded, and its response is not
    /// stored. A GET in its place could transfer a body of any size that no client requested.
    async fn head(&self, request: ClientRequest, pending: &PendingFetch) -> LabelledResponse {
        if pending.demand.only_if_cached {
            return self.failed(&Failure::Load(LoadError::NotCached), request.headers());
        }
        self.pass_on(request, Method::HEAD, no_body(), CacheResult::Pass).await
    }

    async fn pass_on(
        &self,
        request: ClientRequest,
        method: Method,
        body: RequestBody,
        cache: CacheResult,
    ) -> LabelledResponse {
        let headers = request.headers().clone();
        let span = request.begin_span(&method, None);
        let clock = request.clock.clone();
        let begun = clock.exact();
        let forward = Forward { request, method: method.clone(), body, why: self.why };
        let sent = forward.send(self.service.engine()).await;
        let origin_time = Some(clock.exact().saturating_sub(begun));
        if let Some(span) = span {
            span.end(sent.as_ref().map(|response| Some(response.status().as_u16())));
        }
        match sent {
            Ok(mut response) => {
                let head = RequestHead { method: &method, headers: &headers };
                self.service.encode(&self.site, head, &mut response);
                self.edit_response(&mut response, &headers, Served::Other);
                LabelledResponse { response, cache, why: Some(self.why), origin_time }
            }
            Err(error) => {
                LabelledResponse { origin_time, ..self.failed(&failure_of(error), &headers) }
            }
        }
    }

    /// Returns the request in the form of a load. `uri` is that of the client's request.
    pub(in crate::service) fn client_request(
        &self,
        fields: ClientFields,
        uri: &Uri,
    ) -> Result<ClientRequest, Failure> {
        if is_loop(&fields, &self.site) {
            return Err(Failure::Loop);
        }
        let target = match uri.path_and_query().filter(|asked| asked.as_str() == self.target) {
            Some(asked) => asked.clone(),
            None => PathAndQuery::try_from(&*self.target)
                .map_err(|_| Failure::BadRequest("The request target is not a valid path."))?,
        };
        let routed = Routed {
            site: &self.site,
            peer: self.peer.clone(),
            method: &self.method,
            slot: self.slot,
            id: self.id,
            authority: Cow::Borrowed(&self.authority),
            target: Cow::Borrowed(&self.target),
            rules: self.rules,
        };
        let interims = self.interims.clone();
        Ok(ClientRequest {
            trace: self.trace.as_ref().map(|trace| trace.load().clone()),
            handed: self.handed.clone(),
            ..self.service.build_client_request(routed, target, fields, self.why, interims)
        })
    }

    /// Returns the error response after a load that failed or could not start.
    fn failed_load(&self, failure: &Failure, request: &ClientRequest) -> LabelledResponse {
        let origin_time = request.origin_time.get().copied();
        LabelledResponse { origin_time, ..self.failed(failure, request.headers()) }
    }

    fn failed(&self, failure: &Failure, headers: &HeaderMap) -> LabelledResponse {
        let head = RequestHead { method: &self.method, headers };
        let mut response = self.service.fail(failure, self.logged(head), Some(self.why));
        self.edit_response(&mut response, headers, Served::Other);
        // A request that its client did not finish is not counted as a miss.
        let (cache, why) = match failure.is_of_client() {
            true => (CacheResult::Refused, None),
            false => (CacheResult::Error, Some(self.why)),
        };
        LabelledResponse { response, cache, why, origin_time: None }
    }

    /// Applies the edits of rules to the response to the client.
    fn edit_response(
        &self,
        response: &mut Response<ResponseBody>,
        headers: &HeaderMap,
        served: Served,
    ) {
        if self.site.settings.rule_set.is_empty() {
            return;
        }
        let values = Values {
            id: &self.site.settings.id,
            authority: &self.authority,
            target: &self.target,
            headers: Some(headers),
            peer: Some(&self.peer),
            response: None,
        };
        finish(&self.rules, &self.site, response, &values, served);
    }

    fn logged<'a>(&'a self, request: RequestHead<'a>) -> LoggedRequest<'a> {
        let (id, site, target) = (self.id, &self.site, &self.target);
        LoggedRequest { request, site, host: &self.authority, id, target }
    }

    fn finish(&self, mut done: LabelledResponse) -> Response<ResponseBody> {
        let labels = Labels { why: done.why, ..Labels::of(self.slot, done.cache) };
        done.response.body_mut().set_labels(labels);
        secure::add_hsts(&mut done.response, &self.site, self.peer.scheme);
        server_timing::note(&mut done.response, &self.site, done.origin_time);
        done.response
    }
}

/// Returns `true` if a request has passed this site before, or this cache too often. One pass over the
/// names costs less than two lookups.
fn is_loop(headers: &impl FieldLines, site: &Site) -> bool {
    let is_mark =
        |name: &[u8]| [&b"via"[..], b"cdn-loop"].iter().any(|mark| name.eq_ignore_ascii_case(mark));
    headers.all().any(|(name, _)| is_mark(name))
        && (hop::loops(headers) || cdn_loop::has_passed(headers, &site.loop_marker))
}

impl Service {
    /// Builds the `ClientRequest` of a direct pass. `None` for a request loop or an invalid target.
    pub(crate) fn client_request(
        &self,
        routed: Routed<'_>,
        fields: RawFields,
        why: Why,
        interims: Interims,
    ) -> Option<ClientRequest> {
        if is_loop(&fields, routed.site) {
            return None;
        }
        let target = PathAndQuery::try_from(&*routed.target).ok()?;
        Some(self.build_client_request(routed, target, fields.into(), why, interims))
    }

    /// Builds a `ClientRequest`. `target` is the parsed target of `routed`.
    // Inlined, so that the large value is not copied again.
    #[inline]
    fn build_client_request(
        &self,
        routed: Routed<'_>,
        target: PathAndQuery,
        fields: ClientFields,
        why: Why,
        interims: Interims,
    ) -> ClientRequest {
        let Routed { site, peer, id, authority, rules, .. } = routed;
        ClientRequest {
            site: site.clone(),
            clock: self.engine().clock().clone(),
            target,
            authority: authority.into(),
            fields,
            peer,
            interims,
            rules,
            changes: RuleChanges::default(),
            id,
            recorder: DecisionRecorder {
                decisions: self.metrics().decisions().clone(),
                ended_loads: self.metrics().ended_loads().clone(),
                why,
            },
            urgency: LoadUrgency::default(),
            trace: None,
            origin_time: OnceLock::new(),
            handed: None,
        }
    }
}

/// Returns the failure of a load. `is_bound` is true if the stored entry must not be served stale.
pub(in crate::service) fn load_failure(
    error: LoadError,
    is_bound: bool,
    demand: &Demand,
) -> Failure {
    if is_bound && matches!(error.trouble(demand), OriginFailure::Unreachable(_)) {
        Failure::MustRevalidate(error)
    } else {
        failure_of(error)
    }
}

fn failure_of(error: LoadError) -> Failure {
    ClientFault::in_error(&error).map_or_else(|| Failure::Load(error), Failure::from)
}

/// Returns whether a response comes from storage.
const fn served(source: Source) -> Served {
    match source {
        Source::Hit | Source::Tier(_) | Source::Refreshing | Source::Fallback => Served::Stored,
        _ => Served::Other,
    }
}

/// Returns the duration of the load, if the response waited for it. A refresh may have ended by chance.
fn origin_time(load_request: LoadRequest<'_>, obtained: &Outcome) -> Option<Duration> {
    let waited = matches!(obtained.source, Source::Led { .. } | Source::Passed | Source::Fallback);
    load_request.load.request().origin_time.get().copied().filter(|_| waited)
}

const fn cache_label(obtained: &Outcome) -> CacheResult {
    match obtained.source {
        Source::Hit | Source::Tier(_) => CacheResult::Hit,
        Source::Refreshing => CacheResult::Stale,
        Source::Led { unchanged: true, .. } => CacheResult::Revalidated,
        Source::Led { .. } => CacheResult::Miss,
        Source::Followed | Source::Instance => CacheResult::Collapsed,
        Source::Passed => CacheResult::Pass,
        Source::Fallback => CacheResult::Fallback,
    }
}

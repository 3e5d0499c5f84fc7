//! One request: `dispatch` chooses the next step, `hit` answers from memory, all others become an
//! origin request.
//!
//! ```text
//! request ──► route ──► key, demand ──► lookup ─┬─ hit ───────────────────────► response
//!               │                               └─ miss ──► origin request ──► response
//!               └─ not cacheable ──► origin request ──► response
//! ```
//!
//! This folder uses all of `response`, `load`, `site`, `origin` and `tunnel`; it never sees
//! connections of clients.

pub(crate) mod by_body;
mod challenge;
mod compress;
mod dispatch;
mod early_hints;
mod ended;
pub mod explain;
pub(crate) mod forward;
mod hit;
mod operation;
mod origin_request;
mod pending;
mod purge_request;
mod purges;
mod recorder;
mod reloads;
mod respond;
mod route;
pub(crate) mod secure;
mod server_timing;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use bytes::Bytes;
use forebay_engine::Engine;
use forebay_rules::Operation;
use forebay_semantics::client_address::ProxyTrust;
use forebay_semantics::{PeerAddress, Scheme};
use forebay_tls::acme::ChallengeAnswers;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;

pub(crate) use hit::PendingFetch;
pub(crate) use pending::PendingRecord;
pub(crate) use route::{LoggedRequest, Routed};

use self::dispatch::{Arrived, Begun, Dispatch};
use self::forward::request_body;
use self::recorder::ResponseRecorder;
use self::route::authority;
use crate::client::peer::{ConnectionInfo, Peer};
use crate::compress::pool::CompressPool;
use crate::load::HandedRequest;
use crate::metrics::rules::SiteRules;
use crate::metrics::{Metrics, MetricsFormat, SiteOrigin};
use crate::origin::RequestBody;
use crate::phase::Phase;
use crate::record::{
    self, AccessLog, CacheResult, ConnectionEnd, Feed, Labels, OpenRecord, Record, RequestFields,
    RequestId, RequestTrace, SiteSlot, Tracer,
};
use crate::request_guard::{Exchange, GuardCounters};
use crate::response::body::ResponseBody;
use crate::settings::SiteSettings;
use crate::site::table::{Reloaded, SiteTable};
use crate::site::{Site, Sites};

/// Caching HTTP service: answers the requests of any number of sites with one engine.
pub struct Service {
    site_table: ArcSwap<SiteTable>,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    requests: AtomicU64,
    recorder: Arc<ResponseRecorder>,
    challenges: ArcSwapOption<ChallengeAnswers>,
    compress: CompressPool,
}

/// Boxed future of a response that needs the origin.
type ResponseFuture<'s> = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send + 's>>;

/// Surroundings of a request: its connection and its record.
#[derive(Clone, Copy)]
struct Context<'a> {
    connection: &'a ConnectionInfo,
    exchange: Option<&'a Exchange>,
    pending: &'a PendingRecord<'a>,
}

impl Service {
    /// Creates a service that answers the requests of these sites with this engine.
    #[must_use]
    pub fn new(sites: Sites, engine: Arc<Engine>, metrics: Arc<Metrics>) -> Self {
        let site_table = ArcSwap::from_pointee(SiteTable::new(sites, &metrics));
        let first = engine.clock().wall().as_secs() << 24;
        let requests = AtomicU64::new(first);
        let recorder = Arc::new(ResponseRecorder::new(metrics.clone(), engine.clock().clone()));
        let challenges = ArcSwapOption::empty();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let compress = CompressPool::new(workers, metrics.compression_queue());
        Self { site_table, engine, metrics, requests, recorder, challenges, compress }
    }

    /// Sets the number of threads that answer requests; a quarter as many compress, one at least.
    /// The default is the number of cores.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.compress = CompressPool::new(workers, self.metrics.compression_queue());
        self
    }

    /// Returns the phase of the process; [`Phase::Starting`] until [`enter`](Self::enter) is called.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.recorder.phase.get()
    }

    /// Enters a phase. From [`Phase::Draining`] on, each HTTP/1 response ends its connection.
    pub fn enter(&self, phase: Phase) {
        self.recorder.phase.set(phase);
    }

    /// Sets the access log of the responses that begin from now on. At first there is none.
    pub fn log_access(&self, log: Option<Box<dyn AccessLog>>) {
        self.recorder.log_access(log);
    }

    /// Opens or closes the feed of responses, for those that begin from now on. At first it is
    /// closed.
    pub fn open_feed(&self, is_open: bool) {
        self.recorder.open_feed(is_open);
    }

    /// Returns the feed of responses.
    #[must_use]
    pub fn feed(&self) -> &Arc<Feed> {
        self.recorder.feed()
    }

    /// Traces the requests that begin from now on. At first none are traced.
    pub fn trace(&self, tracer: Option<Arc<Tracer>>) {
        self.recorder.trace(tracer);
    }

    /// Returns `true` if the access log, the feed or the tracer may need the fields of a request.
    pub(crate) fn may_need_fields(&self) -> bool {
        self.recorder.may_need_fields()
    }

    /// Returns `true` if requests are traced.
    pub(crate) fn is_traced(&self) -> bool {
        self.recorder.is_traced()
    }

    /// Returns `true` if the access log or the feed needs the fields of every request.
    pub(crate) fn needs_fields(&self) -> bool {
        self.recorder.needs_fields()
    }

    /// Begins the trace of a request with this `traceparent`, if requests are traced.
    pub(crate) fn begin_trace(&self, traceparent: Option<&[u8]>) -> Option<Arc<RequestTrace>> {
        self.recorder.begin_trace(traceparent)
    }

    /// Begins the trace of a hit with this `traceparent`, if it is traced.
    pub(crate) fn begin_hit_trace<'a>(
        &self,
        traceparent: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<Arc<RequestTrace>> {
        self.recorder.begin_hit_trace(traceparent)
    }

    /// Replaces all sites. The ids must be unique.
    ///
    /// Requests in progress finish with their old site. Entries belong to the id of a site and are
    /// kept, even if that site is removed and added again later. A site keeps its connections and
    /// the state of its circuit breaker if `fetch_timeout` and `origin` are equal (except
    /// `origin.host`). It keeps the counts of its rate limit if `rate_limit` is equal.
    pub fn reload(&self, settings: &[SiteSettings]) -> Reloaded {
        let mut reloaded = Reloaded::default();
        // The closure is run again if another reload replaced the sites in between.
        self.site_table.rcu(|before| {
            let after = before.reconfigured(settings, &self.metrics);
            reloaded = after.changes_since(before);
            after
        });
        reloaded
    }

    /// Replaces the proxies that may name the client of a request. At first there are none.
    pub fn trust_proxies(&self, trust: &Arc<ProxyTrust>) {
        self.site_table.rcu(|before| before.with_trust(trust.clone()));
    }

    /// Sets the answers to challenges of certificate authorities. At first there are none.
    pub fn answer_challenges(&self, answers: Option<Arc<ChallengeAnswers>>) {
        self.challenges.store(answers);
    }

    /// Returns `true` if this address is that of a trusted proxy.
    #[must_use]
    pub fn trusts(&self, peer: PeerAddress) -> bool {
        self.site_table.load().trust().proxies.contains(peer)
    }

    /// Returns the client of a request on this connection.
    pub(crate) fn peer(&self, connection: &ConnectionInfo, headers: &HeaderMap) -> Peer {
        Peer::of(connection, self.site_table.load().trust(), headers)
    }

    /// Returns the cache engine of the service.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the metrics of the service.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns all metrics as text.
    #[must_use]
    pub fn render_metrics(&self, guard: &GuardCounters, format: MetricsFormat) -> String {
        let table = self.site_table.load();
        let rules = table.all().iter().map(|site| SiteRules {
            site: &site.settings.id,
            set: &site.settings.rule_set,
            counters: &site.rule_counters,
        });
        self.metrics.render(
            &self.engine,
            guard,
            table.all().iter().map(|site| SiteOrigin {
                site: &site.settings.id,
                breaker: site.breaker_state(),
                usage: site.origin_usage(),
                endpoints: site.endpoints(),
                retries: site.origin.retries(),
                load: site.origin.load(),
                budget: site.budget(),
            }),
            rules,
            format,
        )
    }

    /// Returns the current sites in the order of the configuration.
    #[must_use]
    pub fn sites(&self) -> Vec<Arc<Site>> {
        self.site_table.load().all().to_vec()
    }

    /// Answers one request; a failure yields an error response. Interim responses of the origin are
    /// discarded.
    pub fn handle<B>(
        &self,
        request: Request<B>,
        connection: &ConnectionInfo,
    ) -> impl Future<Output = Response<ResponseBody>> + Send
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.handle_during(request, connection, None, None)
    }

    /// Answers one request, and forwards interim responses to the client of `exchange`. `handed` is
    /// the request to the origin that the direct path has sent for it, if there is one.
    pub(crate) async fn handle_during<B>(
        &self,
        request: Request<B>,
        connection: &ConnectionInfo,
        exchange: Option<&Exchange>,
        handed: Option<HandedRequest>,
    ) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let pending = PendingRecord::begin(self, &request, connection, handed);
        let (parts, body) = request.into_parts();
        let context = Context { connection, exchange, pending: &pending };
        let mut response = self.answer(parts, body, context, None).await;
        pending.answered(&mut response);
        response
    }

    /// Lets a response be recorded when it ends.
    fn record(&self, response: &mut Response<ResponseBody>, mut record: Record) {
        if let Some(access) = &mut record.access {
            let origin_time = response.body().timing().origin;
            access.outcome =
                record::Outcome { origin_time, ..record::Outcome::of(response.headers()) };
        }
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        response.body_mut().set_record(OpenRecord::new(self.recorder.clone(), record, length));
    }

    /// Lets the response to bytes that are not a valid request be recorded.
    pub(crate) fn record_rejected(
        &self,
        response: &mut Response<ResponseBody>,
        id: RequestId,
        peer: &Peer,
    ) {
        let mut record = Record::rejected(response.status(), self.engine.clock().exact());
        let fields = || RequestFields::of(id, peer, None);
        record.access = self.recorder.needs_fields().then(fields);
        self.record(response, record);
    }

    /// Records responses that were written without [`handle`](Self::handle).
    pub(crate) fn record_direct(&self, records: &mut [Record], by: ConnectionEnd) {
        self.recorder.record_all(records, by);
    }

    async fn answer<B>(
        &self,
        mut parts: Parts,
        body: B,
        context: Context<'_>,
        read: Option<Option<Operation>>,
    ) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Context { connection, exchange: _, pending } = context;
        if challenge::is_challenge(&parts)
            && let Some(mut response) = Box::pin(self.challenge(&parts)).await
        {
            response.body_mut().set_labels(Labels::of(SiteSlot::NONE, CacheResult::Rule));
            return response;
        }
        let arrived = Arrived { id: pending.id(), read };
        let Begun { dispatch, edited } = self.begin(&parts, connection, &body, arrived);
        if let Some(edited) = edited {
            parts.headers = *edited;
        }
        let (origin_request, interims): (ResponseFuture<'_>, _) = match dispatch {
            Dispatch::Response(response) => return response,
            Dispatch::ReadBody(most) => {
                return self.answer_by_operation(parts, request_body(body), context, most).await;
            }
            Dispatch::Purge(purge) => return Box::pin(self.answer_purge(&purge, &parts)).await,
            // Boxed, because otherwise the future of every connection would reserve its size,
            // and every hit would move it.
            Dispatch::Switch(origin_request, protocols) => {
                pending.set_site(origin_request.slot());
                let (origin_request, interims) = origin_request.with_context(context, &parts);
                (Box::pin(origin_request.switch(parts, protocols)), interims)
            }
            Dispatch::Forward(origin_request) => {
                pending.set_site(origin_request.slot());
                let (origin_request, interims) = origin_request.with_context(context, &parts);
                (Box::pin(origin_request.forward(parts, request_body(body))), interims)
            }
            Dispatch::ByBody(origin_request) => {
                pending.set_site(origin_request.slot());
                let (origin_request, interims) = origin_request.with_context(context, &parts);
                (Box::pin(origin_request.by_body(parts, request_body(body))), interims)
            }
            Dispatch::Fetch(origin_request, fetch) => {
                pending.set_site(origin_request.slot());
                pending.set_key(fetch.key.borrowed());
                let (origin_request, interims) = origin_request.with_context(context, &parts);
                (Box::pin(origin_request.obtain(parts, *fetch)), interims)
            }
        };
        interims.before(origin_request).await
    }

    /// Reads the body of a request, because rules depend on its operation, and answers the request.
    fn answer_by_operation<'s>(
        &'s self,
        parts: Parts,
        body: RequestBody,
        context: Context<'s>,
        most: usize,
    ) -> ResponseFuture<'s> {
        Box::pin(async move {
            match operation::read(&parts, body, most).await {
                Ok((read, body)) => self.answer(parts, body, context, Some(read)).await,
                Err(failure) => self.refuse(&failure, &parts, context.pending.id()),
            }
        })
    }

    /// Answers a challenge of a certificate authority.
    #[cold]
    async fn challenge(&self, parts: &Parts) -> Option<Response<ResponseBody>> {
        let answers = self.challenges.load_full()?;
        let authority = authority(parts, Scheme::Http).ok()??;
        challenge::answer(answers, &authority, parts.uri.path()).await
    }

    /// Returns the current table of the sites.
    pub(crate) fn site_table(&self) -> Guard<Arc<SiteTable>> {
        self.site_table.load()
    }
}

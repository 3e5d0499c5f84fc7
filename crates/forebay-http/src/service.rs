//! Dispatch of requests: hits are answered here, all others become an origin request.
//!
//! ```text
//! request ──► route ──► key, demand ──► lookup ─┬─ hit ───────────────────────► response
//!               │                               └─ miss ──► origin request ──► response
//!               └─ not cacheable ──► origin request ──► response
//! ```
//!
//! This folder uses all of `response`, `load`, `site`, `origin` and `tunnel`; it never sees
//! connections of clients.

mod access;
pub(crate) mod by_body;
mod challenge;
mod ended;
pub(crate) mod forward;
mod origin_request;
mod reloads;
pub(crate) mod secure;

use crate::authority::normalise_authority;
use crate::client::{credentials, logged_path};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use bytes::Bytes;
use forebay_core::{Demand, Key, KeyBuf, Purge, Reach, Why};
use forebay_engine::{Engine, Lookup, LookupResult, Miss, Outcome, Purged, Select};
use forebay_rules::Target;
use forebay_rules::apply::InvalidTarget;
use forebay_semantics::client_address::ProxyTrust;
use forebay_semantics::{CacheStatus, PeerAddress, Scheme, validate};
use forebay_tls::acme::ChallengeAnswers;
use futures_util::future::join;
use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;

use crate::client::peer::{AddressOrigin, ConnectionInfo, Peer, Role};
use crate::failure::Failure;
use crate::load::{LoadDetails, selecting};
use crate::metrics::{CountedResponse, HitCounters, Metrics};
use crate::phase::{CurrentPhase, Phase};
use crate::request_guard::{Exchange, GuardCounters, TARGET_MAX};
use crate::response::body::ResponseBody;
use crate::response::deliver::{RequestHead, deliver, deliver_loaded};
use crate::response::error_page::{Page, RequestId, respond};
use crate::rules::{self, RequestRules, RoutedRequest, Served, Values, finish};
pub use crate::service::access::ACCESS;
use crate::service::access::{AccessEvent, PendingEvent};
use crate::service::forward::request_body;
use crate::service::origin_request::OriginRequest;
use crate::settings::SiteSettings;
use crate::site::prefix_purge::PrefixError;
use crate::site::rate_limits::RateLimiter;
use crate::site::table::{Reloaded, SiteTable};
use crate::site::tags::{self, HostOrigin};
use crate::site::{Site, Sites, key};
use crate::stored::partial;
use crate::tunnel::upgrade;

/// Caching HTTP service: answers the requests of any number of sites with one engine.
pub struct Service {
    site_table: ArcSwap<SiteTable>,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    requests: AtomicU64,
    access_log: AtomicBool,
    phase: CurrentPhase,
    challenges: ArcSwapOption<ChallengeAnswers>,
}

/// Request with its site, authority and target.
pub(crate) struct Routed<'r> {
    pub(crate) site: &'r Arc<Site>,
    pub(crate) peer: Peer,
    pub(crate) method: &'r Method,
    hits: Option<&'r HitCounters>,
    pub(crate) authority: Cow<'r, str>,
    pub(crate) target: Cow<'r, str>,
    pub(crate) rules: RequestRules,
}

/// Request with the names that its log line contains.
#[derive(Clone, Copy)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) request: RequestHead<'a>,
    pub(crate) site: &'a Site,
    pub(crate) host: &'a str,
    /// Path and query; only the path is logged, because a query may contain secrets.
    pub(crate) target: &'a str,
}

impl<'a> LoggedRequest<'a> {
    fn path(self) -> &'a str {
        logged_path(self.target)
    }
}

impl Routed<'_> {
    fn logged<'a>(&'a self, request: RequestHead<'a>) -> LoggedRequest<'a> {
        LoggedRequest { request, site: self.site, host: &self.authority, target: &self.target }
    }

    /// Returns the values of placeholders.
    fn values<'a>(&'a self, headers: &'a HeaderMap) -> Values<'a> {
        Values {
            id: &self.site.settings.id,
            authority: &self.authority,
            target: &self.target,
            headers: Some(headers),
            peer: Some(&self.peer),
            response: None,
        }
    }
}

/// Hit that was answered without a parsed request.
pub(crate) struct DirectHit<'a> {
    pub(crate) site: &'a Site,
    pub(crate) counters: &'a HitCounters,
    pub(crate) method: &'a Method,
    pub(crate) target: &'a str,
    pub(crate) peer: &'a Peer,
    pub(crate) status: StatusCode,
    /// Length of the body in bytes.
    pub(crate) body: u64,
    pub(crate) cache_status: CacheStatus,
}

/// Lookup that needs a load, with the reason.
pub(crate) struct PendingFetch {
    pub(crate) key: KeyBuf,
    pub(crate) demand: Demand,
    pub(crate) wanting: Miss,
}

/// Next step of a request, decided without waiting.
enum Dispatch<'s> {
    Response(Response<ResponseBody>),
    Forward(OriginRequest<'s>),
    ByBody(OriginRequest<'s>),
    Switch(OriginRequest<'s>, HeaderValue),
    Fetch(OriginRequest<'s>, Box<PendingFetch>),
}

/// Next step of a request, with the header fields that it continues with.
struct Begun<'s> {
    dispatch: Dispatch<'s>,
    /// Header fields after the edits of rules; absent if there were none.
    edited: Option<Box<HeaderMap>>,
}

impl<'s> From<Dispatch<'s>> for Begun<'s> {
    fn from(dispatch: Dispatch<'s>) -> Self {
        Self { dispatch, edited: None }
    }
}

/// Boxed future of a response that needs the origin.
type ResponseFuture<'s> = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send + 's>>;

/// Result of a lookup in memory.
enum CacheLookup {
    Hit(Response<ResponseBody>),
    Miss(Box<PendingFetch>),
}

impl Service {
    /// Creates a service that answers the requests of these sites with this engine.
    #[must_use]
    pub fn new(sites: Sites, engine: Arc<Engine>, metrics: Arc<Metrics>) -> Self {
        let site_table = ArcSwap::from_pointee(SiteTable::new(sites, &metrics));
        let first = engine.clock().wall().as_secs() << 24;
        let requests = AtomicU64::new(first);
        let (access_log, phase) = (AtomicBool::new(false), CurrentPhase::default());
        let challenges = ArcSwapOption::empty();
        Self { site_table, engine, metrics, requests, access_log, phase, challenges }
    }

    /// Returns the phase of the process; [`Phase::Starting`] until [`enter`](Self::enter) is called.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Enters a phase. From [`Phase::Draining`] on, each HTTP/1 response ends its connection.
    pub fn enter(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Enables or disables the access log for responses that begin from now on (target [`ACCESS`]).
    /// Disabled by default.
    pub fn log_access(&self, on: bool) {
        self.access_log.store(on, Ordering::Relaxed);
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

    /// Returns all metrics as text (Prometheus exposition format).
    #[must_use]
    pub fn render_metrics(&self, guard: &GuardCounters) -> String {
        let table = self.site_table.load();
        let state = |site: &Arc<Site>| site.origin.breaker_state();
        let breakers = table.all().iter();
        let breakers = breakers.filter_map(|site| Some((&*site.settings.id, state(site)?)));
        self.metrics.render(&self.engine, guard, breakers)
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
        self.handle_during(request, connection, None)
    }

    /// Answers one request, and forwards interim responses to the client of `exchange`.
    pub(crate) async fn handle_during<B>(
        &self,
        request: Request<B>,
        connection: &ConnectionInfo,
        exchange: Option<&Exchange>,
    ) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !self.access_log.load(Ordering::Relaxed) {
            return self.answer(request, connection, exchange).await;
        }
        let logged = PendingEvent::begin(self, &request, connection);
        let response = self.answer(request, connection, exchange).await;
        logged.answered(&response);
        response
    }

    async fn answer<B>(
        &self,
        request: Request<B>,
        connection: &ConnectionInfo,
        exchange: Option<&Exchange>,
    ) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        if challenge::is_challenge(&parts)
            && let Some(response) = Box::pin(self.challenge(&parts)).await
        {
            return response;
        }
        let Begun { dispatch, edited } = self.begin(&parts, connection, &body);
        if let Some(edited) = edited {
            parts.headers = *edited;
        }
        let (origin_request, interims): (ResponseFuture<'_>, _) = match dispatch {
            Dispatch::Response(response) => return response,
            // Boxed, because otherwise the future of every connection would reserve its size,
            // and every hit would move it.
            Dispatch::Switch(origin_request, protocols) => {
                let (origin_request, interims) = origin_request.with_interims(exchange, &parts);
                (Box::pin(origin_request.switch(parts, protocols)), interims)
            }
            Dispatch::Forward(origin_request) => {
                let (origin_request, interims) = origin_request.with_interims(exchange, &parts);
                (Box::pin(origin_request.forward(parts, request_body(body))), interims)
            }
            Dispatch::ByBody(origin_request) => {
                let (origin_request, interims) = origin_request.with_interims(exchange, &parts);
                (Box::pin(origin_request.by_body(parts, request_body(body))), interims)
            }
            Dispatch::Fetch(origin_request, pending) => {
                let (origin_request, interims) = origin_request.with_interims(exchange, &parts);
                (Box::pin(origin_request.obtain(parts, *pending)), interims)
            }
        };
        interims.before(origin_request).await
    }

    /// Answers a challenge of a certificate authority.
    #[cold]
    async fn challenge(&self, parts: &Parts) -> Option<Response<ResponseBody>> {
        let answers = self.challenges.load_full()?;
        let authority = authority(parts, Scheme::Http).ok()??;
        challenge::answer(answers, &authority, parts.uri.path()).await
    }

    /// Selects the next step. It does not wait, so that the site table is borrowed only for the
    /// duration of a lookup. An origin request owns its site.
    fn begin<B: Body>(&self, parts: &Parts, connection: &ConnectionInfo, body: &B) -> Begun<'_> {
        let site_table = self.site_table.load();
        let peer = Peer::of(connection, site_table.trust(), &parts.headers);
        if peer.origin() != AddressOrigin::Connection {
            self.metrics.count_forwarded(peer.origin());
        }
        let routed = match route(&site_table, parts, peer) {
            Ok(routed) => routed,
            Err(failure) => return Dispatch::Response(self.refuse(&failure, parts)).into(),
        };
        if let Some(sites) = &connection.sites
            && !sites.contains(&routed.site.settings.id)
        {
            return Dispatch::Response(self.refuse(&Failure::Misdirected, parts)).into();
        }
        if !routed.site.settings.access.admits(routed.peer.client) {
            self.metrics.count_denied(&routed.site.settings.id);
            return Dispatch::Response(self.refuse(&Failure::AccessDenied, parts)).into();
        }
        if let Role::Redirect(port) = connection.role {
            return Dispatch::Response(self.redirect(&routed, parts, port)).into();
        }
        let limiter = routed.site.rate_limiter.as_deref();
        if let Some(limiter) = limiter.filter(|limiter| limiter.counts_hits())
            && let Some(refused) = self.over_rate(limiter, &routed, parts)
        {
            return refused.into();
        }
        if routed.site.settings.rule_set.is_empty() {
            return self.dispatch(&routed, parts, &parts.headers, body).into();
        }
        self.begin_with_rules(routed, parts, body)
    }

    /// Applies the rules of the site to the request, then selects the next step.
    fn begin_with_rules<B: Body>(
        &self,
        mut routed: Routed<'_>,
        parts: &Parts,
        body: &B,
    ) -> Begun<'_> {
        let site = routed.site;
        let outcome = routed.rules.outcome(site);
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let raw = key::stripped(site, path).unwrap_or(Cow::Borrowed("/"));
        let values = Values {
            id: &site.settings.id,
            authority: &routed.authority,
            target: &raw,
            headers: Some(&parts.headers),
            peer: Some(&routed.peer),
            response: None,
        };
        if let Some(ended) = outcome.ended(Target::new(&raw).path) {
            let response = self.end(&routed, parts, ended::respond(ended, &values), &values);
            return Dispatch::Response(response).into();
        }
        let bypasses = outcome.bypasses();
        let by_body = by_body::is_looked_up(site, parts, body);
        let looked_up = !bypasses && (why_not_cached(parts, body).is_none() || by_body);
        let values = Values { target: &routed.target, ..values };
        let mut rules = routed.rules;
        let edited = rules.edited(site, &parts.headers, &values, looked_up);
        routed.rules = rules;
        let headers = edited.as_ref().unwrap_or(&parts.headers);
        let dispatch = if bypasses && upgrade::asked(parts).is_none() {
            if let Some(refused) = self.over_fetch_rate(&routed, parts) {
                return refused.into();
            }
            Dispatch::Forward(OriginRequest::new(self, &routed, Why::Rule))
        } else {
            self.dispatch(&routed, parts, headers, body)
        };
        Begun { dispatch, edited: edited.map(Box::new) }
    }

    /// Finishes the response of a rule that ends the request.
    fn end(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        response: Result<Response<ResponseBody>, InvalidTarget>,
        values: &Values<'_>,
    ) -> Response<ResponseBody> {
        let site = routed.site;
        let mut response = match response {
            Ok(response) => response,
            Err(InvalidTarget) => return self.refuse(&INVALID_TARGET, parts),
        };
        if parts.method == Method::HEAD {
            *response.body_mut() = ResponseBody::whole(Bytes::new());
        }
        CacheStatus::forward(Why::Rule).append_to(response.headers_mut());
        finish(&routed.rules, site, &mut response, values, Served::Other);
        secure::add_hsts(&mut response, site, routed.peer.scheme);
        let (method, status) = (&parts.method, response.status());
        let site = &*site.settings.id;
        self.metrics.count(CountedResponse { site, method, status, cache: "rule" }, None);
        response
    }

    /// Selects the next step of a request that no rule ends or forwards.
    fn dispatch<B: Body>(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        headers: &HeaderMap,
        body: &B,
    ) -> Dispatch<'_> {
        if let Some(why) = why_not_cached(parts, body) {
            if let Some(refused) = self.over_fetch_rate(routed, parts) {
                return refused;
            }
            let origin_request = OriginRequest::new(self, routed, why);
            let is_by_body = by_body::is_looked_up(routed.site, parts, body);
            return if is_by_body {
                Dispatch::ByBody(origin_request)
            } else {
                Dispatch::Forward(origin_request)
            };
        }
        if let Some(protocols) = upgrade::asked(parts) {
            if let Some(refused) = self.over_fetch_rate(routed, parts) {
                return refused;
            }
            return Dispatch::Switch(OriginRequest::new(self, routed, Why::Bypass), protocols);
        }
        match self.look(RequestHead { method: &parts.method, headers }, routed) {
            CacheLookup::Hit(response) => Dispatch::Response(response),
            CacheLookup::Miss(pending) => {
                if let Some(refused) = self.over_fetch_rate(routed, parts) {
                    return refused;
                }
                let why = pending.wanting.why();
                Dispatch::Fetch(OriginRequest::new(self, routed, why), pending)
            }
        }
    }

    /// Counts a request that no stored response answers, if the rate limit exempts hits. Returns the
    /// response if its client has sent too many.
    fn over_fetch_rate(&self, routed: &Routed<'_>, parts: &Parts) -> Option<Dispatch<'_>> {
        let limiter =
            routed.site.rate_limiter.as_deref().filter(|limiter| !limiter.counts_hits())?;
        self.over_rate(limiter, routed, parts)
    }

    /// Counts a request for the rate limit. Returns the response if its client has sent too many.
    /// A trusted proxy that names no client is not limited: it has the requests of many.
    #[inline(never)]
    fn over_rate(
        &self,
        limiter: &RateLimiter,
        routed: &Routed<'_>,
        parts: &Parts,
    ) -> Option<Dispatch<'_>> {
        if routed.peer.origin() == AddressOrigin::ProxyItself {
            return None;
        }
        let wait = limiter.admit(routed.peer.client, self.engine.clock().now()).err()?;
        self.metrics.count_rate_limited(&routed.site.settings.id);
        Some(Dispatch::Response(self.refuse(&Failure::RateLimited(wait), parts)))
    }

    /// Looks the request up in memory. This is the hit path: it does not wait, and copies nothing
    /// of the request.
    fn look(&self, head: RequestHead<'_>, routed: &Routed<'_>) -> CacheLookup {
        let counters = routed.hits;
        let begun = counters.filter(|c| c.sample()).map(|c| (c, self.engine.clock().exact()));
        let demand = routed.rules.demand(routed.site, head.headers);
        let mut key =
            key::primary(routed.site, routed.peer.scheme, &routed.authority, &routed.target);
        routed.rules.add_key_parts(routed.site, &mut key);
        let select = Fields { headers: head.headers, peer: &routed.peer };
        let ask = Lookup {
            key: key.borrowed(),
            demand: &demand,
            select: &select,
            credentials: credentials(head.headers),
            coalesce: routed.rules.coalesce(routed.site),
        };
        let obtained = match self.engine.lookup(&ask) {
            LookupResult::Hit(obtained) => obtained,
            LookupResult::Miss(wanting) => {
                match reloads::fresh_entry(&self.engine, &wanting, &ask, routed.site) {
                    Some(obtained) => obtained,
                    None => {
                        self.metrics.count_lookup(wanting.why());
                        return CacheLookup::Miss(Box::new(PendingFetch { key, demand, wanting }));
                    }
                }
            }
        };
        let mut response = self.deliver(routed.logged(head), &obtained);
        if !routed.site.settings.rule_set.is_empty() {
            let values = routed.values(head.headers);
            finish(&routed.rules, routed.site, &mut response, &values, Served::Stored);
        }
        secure::add_hsts(&mut response, routed.site, routed.peer.scheme);
        self.count_hit(routed.site, counters, head.method, response.status());
        if let Some((counters, begun)) = begun {
            counters.took(self.engine.clock().exact().saturating_sub(begun));
        }
        CacheLookup::Hit(response)
    }

    fn count_hit(
        &self,
        site: &Site,
        counters: Option<&HitCounters>,
        method: &Method,
        status: StatusCode,
    ) {
        counters.into_iter().for_each(HitCounters::count_lookup);
        match counters {
            Some(counters) if *method == Method::GET && status == 200 => counters.count(),
            _ => {
                let site = &*site.settings.id;
                let answered = CountedResponse { site, method, status, cache: "hit" };
                self.metrics.count(answered, None);
            }
        }
    }

    /// Returns the current table of the sites.
    pub(crate) fn site_table(&self) -> Guard<Arc<SiteTable>> {
        self.site_table.load()
    }

    /// Returns `true` if the access log is enabled.
    pub(crate) fn logs_access(&self) -> bool {
        self.access_log.load(Ordering::Relaxed)
    }

    /// Counts a hit that was answered without [`handle`](Self::handle), and logs it if the access
    /// log is enabled. `took` is known if the hit is logged.
    pub(crate) fn count_direct_hit(&self, hit: &DirectHit<'_>, took: Option<Duration>) {
        let DirectHit { method, status, .. } = *hit;
        self.count_hit(hit.site, Some(hit.counters), method, status);
        if self.logs_access() {
            let cache = hit.cache_status.to_bytes();
            let event = AccessEvent {
                status: status.as_u16(),
                bytes: Some(hit.body),
                took: took.unwrap_or_default(),
                cache: str::from_utf8(&cache).unwrap_or("-"),
            };
            event.write(method, hit.target, hit.peer);
        }
    }

    /// Logs the response to bytes that are not a valid request; only the peer is known.
    pub(crate) fn log_refusal(&self, response: &Response<ResponseBody>, peer: &Peer) {
        if self.access_log.load(Ordering::Relaxed) {
            AccessEvent::of(response, Duration::ZERO).write("-", "-", peer);
        }
    }

    pub(crate) fn deliver(
        &self,
        logged: LoggedRequest<'_>,
        obtained: &Outcome,
    ) -> Response<ResponseBody> {
        deliver(logged.request, obtained, self.engine.clock().now())
            .unwrap_or_else(|| self.fail(&Failure::Unreadable, logged, obtained.why))
    }

    /// Error response to a request that cannot be answered, with a warning.
    pub(crate) fn fail(
        &self,
        failure: &Failure,
        logged: LoggedRequest<'_>,
        why: Option<Why>,
    ) -> Response<ResponseBody> {
        let id = self.request_id();
        let (site, code) = (logged.site, failure.code());
        let (method, host, path) = (logged.request.method, logged.host, logged.path());
        if failure.is_of_client() {
            let site = &*site.settings.id;
            tracing::debug!(site, %method, host, path, request = %id, code, "{failure}");
        } else if let Some(suppressed) = site.warnings.admit(self.engine.clock().now()) {
            tracing::warn!(
                site = &*site.settings.id,
                %method,
                host,
                path,
                request = %id,
                status = failure.status().as_u16(),
                code,
                cause = failure.cause(),
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
    fn redirect(&self, routed: &Routed<'_>, parts: &Parts, port: u16) -> Response<ResponseBody> {
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let response = secure::redirect(&routed.authority, path, port)
            .unwrap_or_else(|| self.refuse(&INVALID_HOST, parts));
        let site = &*routed.site.settings.id;
        let (method, status) = (&parts.method, response.status());
        self.metrics.count(CountedResponse { site, method, status, cache: "redirect" }, None);
        response
    }

    /// Creates the response to a request that matches no site.
    fn refuse(&self, failure: &Failure, parts: &Parts) -> Response<ResponseBody> {
        let id = self.request_id();
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        tracing::debug!(
            method = %parts.method,
            host,
            target = %parts.uri,
            request = %id,
            code = failure.code(),
            "client request rejected: {failure}"
        );
        let request_headers = &parts.headers;
        let page = Page { request_headers, request: id, why: None, expose: false, fallback: None };
        let response = respond(failure, page);
        let answered = CountedResponse {
            site: "-",
            method: &parts.method,
            status: response.status(),
            cache: "refused",
        };
        self.metrics.count(answered, None);
        response
    }

    fn request_id(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates the response from the result of a load.
    pub(crate) fn deliver_loaded(
        &self,
        logged: LoggedRequest<'_>,
        obtained: &Outcome,
        details: &LoadDetails,
    ) -> Response<ResponseBody> {
        deliver_loaded(logged.request, obtained, details, self.engine.clock().now())
            .unwrap_or_else(|| self.fail(&Failure::Unreadable, logged, obtained.why))
    }

    /// Returns the key of a GET of this URL without fields, and the tag purges for responses stored
    /// by request body or with key parts of rules. `None` if no site matches.
    fn stored_key(&self, host: HostOrigin<'_>, path: &str) -> Option<(Key, Vec<Purge>)> {
        let scheme = host.scheme;
        let authority = normalise_authority(scheme, host.authority)?;
        let site_table = self.site_table.load();
        let site = site_table.find(&authority, path)?;
        let (authority, target) = rules::purge_target(site, scheme, authority, path)?;
        let host = HostOrigin { scheme, authority: &authority };
        let tags = tags::of_other_keys(site, host, &target).map(|tag| Purge::Tag(tag.into()));
        let key = key::primary(site, scheme, &authority, &target).borrowed().to_key();
        Some((key, tags.collect()))
    }

    /// Purges one URL with all its variants, its parts and the responses stored by request body.
    /// Returns `None` if no site matches.
    pub async fn purge_url(
        &self,
        scheme: Scheme,
        authority: &str,
        path: &str,
        reach: Reach,
    ) -> Option<Purged> {
        let (key, tags) = self.stored_key(HostOrigin { scheme, authority }, path)?;
        let mut tagged: Option<Purged> = None;
        for tag in tags {
            // The tag is purged without a lookup, because a lower tier may have matching entries.
            let purged = self.engine.purge(&tag, reach).await;
            tagged = Some(match tagged {
                Some(before) => before.and(purged),
                None => purged,
            });
        }
        let parts = Purge::Key(partial::key_of(key.borrowed()));
        let whole = Purge::Key(key);
        let (whole, parts) =
            join(self.engine.purge(&whole, reach), self.engine.purge(&parts, reach)).await;
        let purged = whole.and(parts);
        Some(match tagged {
            Some(tagged) => tagged.and(purged),
            None => purged,
        })
    }

    /// Purges all URLs with this prefix in every matching site: `/path` for all hosts, `host/path`
    /// for one. The path is the public one, with the site's prefix.
    ///
    /// # Errors
    ///
    /// [`PrefixError`] if the prefix is invalid or longer than 1,024 bytes, or if no site or more than
    /// 16 sites match.
    pub async fn purge_prefix(&self, prefix: &str, reach: Reach) -> Result<Purged, PrefixError> {
        let purges = self.site_table.load().prefix_purges(prefix)?;
        let mut purged: Option<Purged> = None;
        for purge in purges {
            let came = self.engine.purge(&purge, reach).await;
            purged = Some(match purged {
                Some(before) => before.and(came),
                None => came,
            });
        }
        purged.ok_or(PrefixError::NoSite)
    }
}

fn route<'r>(
    site_table: &'r SiteTable,
    parts: &'r Parts,
    peer: Peer,
) -> Result<Routed<'r>, Failure> {
    if parts.method == Method::CONNECT {
        return Err(Failure::MethodNotAllowed);
    }
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if path.len() > TARGET_MAX {
        return Err(Failure::TargetTooLong);
    }
    // RFC 9112 section 3.2.4: `*` is valid only for OPTIONS.
    if path == "*" && parts.method != Method::OPTIONS {
        return Err(Failure::BadRequest("Only OPTIONS may have the request target *."));
    }
    let (site, authority) = match authority(parts, peer.scheme)? {
        Some(authority) => (site_table.find(&authority, path).ok_or(Failure::NoSite)?, authority),
        None => {
            let site = site_table.find_without_host(path).ok_or(NO_HOST)?;
            (site, site.settings.origin.own_authority(peer.scheme).ok_or(INVALID_HOST)?)
        }
    };
    let hits = site_table.counters(site);
    let method = &parts.method;
    if site.settings.rule_set.is_empty() {
        let target = key::target(site, path).ok_or(Failure::NoSite)?;
        let rules = RequestRules::default();
        return Ok(Routed { site, peer, method, hits, authority, target, rules });
    }
    let target = key::stripped(site, path).ok_or(Failure::NoSite)?;
    let headers = &parts.headers;
    let request =
        RoutedRequest { method, authority: &authority, target: &target, headers, peer: &peer };
    let mut rules = RequestRules::new(site, &request);
    let target = rules.target(site, target).map_err(|InvalidTarget| INVALID_TARGET)?;
    let authority = rules.host(site).map_or(authority, Cow::Owned);
    Ok(Routed { site, peer, method, hits, authority, target, rules })
}

/// Selecting fields of the client's request, borrowed.
struct Fields<'a> {
    headers: &'a HeaderMap,
    peer: &'a Peer,
}

impl Select for Fields<'_> {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        selecting(self.headers, self.peer, name)
    }
}

/// Error for an HTTP/1.1 request without a usable Host field.
const NO_HOST: Failure = Failure::BadRequest("The request has no Host header.");

/// Error for a target that a rule made and that no request can have.
const INVALID_TARGET: Failure =
    Failure::BadRequest("The request target is not valid for this site.");

const INVALID_HOST: Failure =
    Failure::BadRequest("The Host header is not a host name with an optional port.");

/// RFC 9112 section 3.2.2: the authority of an absolute target overrides `Host`. `None` if both are
/// absent, which HTTP/1.0 permits and health checks of load balancers use.
fn authority(parts: &Parts, scheme: Scheme) -> Result<Option<Cow<'_, str>>, Failure> {
    let text = match (parts.uri.authority(), parts.uri.scheme_str()) {
        (Some(authority), Some(own)) if own == scheme.as_str() => authority.as_str(),
        // An authority target is for CONNECT (section 3.2.3); other schemes are not served.
        (Some(_), _) => {
            return Err(Failure::BadRequest(
                "The request target must be a path, or a URL with the scheme of the connection.",
            ));
        }
        (None, _) => match parts.headers.get(HOST) {
            Some(host) => host.to_str().map_err(|_| NO_HOST)?,
            None if parts.version < Version::HTTP_11 => return Ok(None),
            None => return Err(NO_HOST),
        },
    };
    normalise_authority(scheme, text).map(Some).ok_or(INVALID_HOST)
}

fn why_not_cached<B: Body>(parts: &Parts, body: &B) -> Option<Why> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Why::Method);
    }
    // The meaning of a body in a GET is undefined (RFC 9110 section 9.3.1), so the request bypasses
    // the cache.
    let bypass = !body.is_end_stream() || validate::must_forward(&parts.headers);
    bypass.then_some(Why::Bypass)
}

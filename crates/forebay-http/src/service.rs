//! The story of one request.
//!
//! ```text
//! request ──► screened ──► site, key, demand ──► look ─┬─ hit ─────────────────► delivered
//!                 │                                     └─ wanting ──► engine ──► delivered
//!                 └─ not for the cache ──► forwarded (and what it changes is invalidated)
//! ```

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, KeyBuf, Purge, Reach, Why};
use forebay_engine::{Ask, Credentials, Engine, LoadError, Look, Obtained, Select, Via, Wanting};
use forebay_semantics::demand::demand;
use forebay_semantics::validate;
use forebay_semantics::vary::selecting_value;
use http::header::{AUTHORIZATION, CACHE_STATUS, COOKIE, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;

use crate::deliver::{Asker, deliver};
use crate::failure::{self, Failure, Page, RequestId};
use crate::forward::{Forward, request_body};
use crate::front::TARGET_MAX;
use crate::key;
use crate::load::{Asking, HttpLoad};
use crate::metrics::{Answered, HitCounters, Metrics};
use crate::origin::ClientFault;
use crate::outgoing::Outgoing;
use crate::site::{Site, Sites};

/// Answers requests from one engine for any number of sites.
pub struct Service {
    sites: Sites,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    hits: Vec<(Arc<Site>, HitCounters)>,
    requests: AtomicU64,
    access_log: bool,
}

/// The log target of answers, one event each.
pub const ACCESS: &str = "forebay::access";

/// A request whose site is known.
struct Routed<'r> {
    site: &'r Arc<Site>,
    authority: Cow<'r, str>,
    target: Cow<'r, str>,
}

/// What a look left to do, and for what.
struct Pending {
    key: KeyBuf,
    demand: Demand,
    wanting: Wanting,
}

/// A response, and what it is called in the `cache` label.
struct Done {
    response: Response<Outgoing>,
    cache: &'static str,
}

impl Service {
    /// A service of these sites.
    #[must_use]
    pub fn new(sites: Sites, engine: Arc<Engine>, metrics: Arc<Metrics>) -> Self {
        let counters = |site: &Arc<Site>| (site.clone(), metrics.hit_counters(&site.settings.id));
        let hits = sites.all().iter().map(counters).collect();
        let first = engine.clock().wall().as_secs() << 24;
        let requests = AtomicU64::new(first);
        Self { sites, engine, metrics, hits, requests, access_log: false }
    }

    /// Whether each answer is written to the log, under the target [`ACCESS`].
    #[must_use]
    pub const fn with_access_log(mut self, on: bool) -> Self {
        self.access_log = on;
        self
    }

    /// The engine behind it.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Its sites.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Answers one request. Every failure is an answer too.
    pub async fn handle<B>(&self, request: Request<B>, peer: IpAddr) -> Response<Outgoing>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !self.access_log {
            return self.answer(request, peer).await;
        }
        let asked = (request.method().clone(), request.uri().clone());
        let begun = self.engine.clock().exact();
        let response = self.answer(request, peer).await;
        let took = self.engine.clock().exact().saturating_sub(begun);
        log_access(asked, &response, (peer, took));
        response
    }

    async fn answer<B>(&self, request: Request<B>, peer: IpAddr) -> Response<Outgoing>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let routed = match self.route(&parts) {
            Ok(routed) => routed,
            Err(failure) => return self.refuse(&failure, &parts),
        };
        if let Some(why) = why_not_cached(&parts, &body) {
            return self
                .forward(parts.method.clone(), why, (parts, request_body(body)), peer)
                .await;
        }
        match self.look(&parts, &routed) {
            Ok(response) => response,
            Err(pending) => {
                let routed = (routed.site.clone(), routed.authority.into(), routed.target.into());
                self.obtain(parts, pending, routed, peer).await
            }
        }
    }

    fn route<'r>(&'r self, parts: &'r Parts) -> Result<Routed<'r>, Failure> {
        if parts.method == Method::CONNECT {
            return Err(Failure::MethodNotAllowed);
        }
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        if path.len() > TARGET_MAX {
            return Err(Failure::TargetTooLong);
        }
        let authority = authority(parts)?;
        let site = self.sites.find(&authority, path).ok_or(Failure::NoSite)?;
        let target = key::target(site, path).ok_or(Failure::NoSite)?;
        Ok(Routed { site, authority, target })
    }

    /// The hit path: nothing here waits, and nothing of the request becomes owned.
    fn look(&self, parts: &Parts, routed: &Routed<'_>) -> Result<Response<Outgoing>, Pending> {
        let counters = self.counters(routed.site);
        let begun = counters.filter(|c| c.sample()).map(|c| (c, self.engine.clock().exact()));
        let demand = demand(&parts.headers, routed.site.settings.early_refresh_beta);
        let key = key::primary(routed.site, &routed.authority, &routed.target);
        let select = Fields(&parts.headers);
        let ask = Ask {
            key: key.borrowed(),
            demand: &demand,
            select: &select,
            credentials: credentials(&parts.headers),
            coalesce: routed.site.settings.coalesce,
        };
        let obtained = match self.engine.look(&ask) {
            Look::Served(obtained) => obtained,
            Look::Wanting(wanting) => return Err(Pending { key, demand, wanting }),
        };
        let asker = Asker { method: &parts.method, headers: &parts.headers };
        let response = self.deliver(asker, &obtained, routed.site);
        match counters {
            Some(counters) if parts.method == Method::GET && response.status() == 200 => {
                counters.count();
            }
            _ => self.count(routed.site, &parts.method, (&response, "hit"), Duration::ZERO),
        }
        if let Some((counters, begun)) = begun {
            counters.took(self.engine.clock().exact().saturating_sub(begun));
        }
        Ok(response)
    }

    async fn obtain(
        &self,
        parts: Parts,
        pending: Pending,
        (site, authority, target): (Arc<Site>, String, String),
        peer: IpAddr,
    ) -> Response<Outgoing> {
        let begun = self.engine.clock().exact();
        let why = pending.wanting.why();
        self.metrics.count_miss(&site.settings.id, why);
        let _waits = self.metrics.waits(&site.settings.id);
        let method = parts.method.clone();
        let asking = match self.asking(parts, (site.clone(), authority, &target), peer) {
            Ok(asking) => asking,
            Err(failure) => return self.fail(&failure, &site, &HeaderMap::new(), Some(why)),
        };
        let done = if method == Method::HEAD && !pending.wanting.is_servable() {
            self.head(asking, pending).await
        } else {
            self.fetch(asking, pending, &method).await
        };
        let took = self.engine.clock().exact().saturating_sub(begun);
        self.count(&site, &method, (&done.response, done.cache), took);
        done.response
    }

    async fn fetch(&self, asking: Asking, pending: Pending, method: &Method) -> Done {
        let site = asking.site.clone();
        let load = HttpLoad::new(asking);
        let ask = Ask {
            key: pending.key.borrowed(),
            demand: &pending.demand,
            select: &load,
            credentials: credentials(load.headers()),
            coalesce: site.settings.coalesce,
        };
        let why = pending.wanting.why();
        match self.engine.fetch(&ask, pending.wanting, load.clone()).await {
            Ok(obtained) => {
                let staleness = obtained.entry.meta.staleness(self.engine.clock().now());
                self.metrics.count_obtained(&site.settings.id, &obtained, staleness);
                let asker = Asker { method, headers: load.headers() };
                let response = self.deliver(asker, &obtained, &site);
                Done { response, cache: cache_label(&obtained) }
            }
            Err(error) => self.failed(error, &site, load.headers(), why),
        }
    }

    /// A HEAD that nothing stored can answer goes to the origin as it is.
    async fn head(&self, asking: Asking, pending: Pending) -> Done {
        let why = pending.wanting.why();
        let (site, headers) = (asking.site.clone(), asking.headers.clone());
        if pending.demand.only_if_cached {
            return self.failed(LoadError::NotCached, &site, &headers, why);
        }
        let body = crate::origin::no_body();
        match (Forward { asking, method: Method::HEAD, body, why }).send(&self.engine).await {
            Ok(response) => Done { response, cache: "pass" },
            Err(error) => self.failed(error, &site, &headers, why),
        }
    }

    async fn forward(
        &self,
        method: Method,
        why: Why,
        (parts, body): (Parts, crate::origin::RequestBody),
        peer: IpAddr,
    ) -> Response<Outgoing> {
        let begun = self.engine.clock().exact();
        let routed = match self.route(&parts) {
            Ok(routed) => {
                (routed.site.clone(), routed.authority.into(), routed.target.into_owned())
            }
            Err(failure) => return self.refuse(&failure, &parts),
        };
        let (site, authority, target) = routed;
        let _waits = self.metrics.waits(&site.settings.id);
        let headers = parts.headers.clone();
        let asking = match self.asking(parts, (site.clone(), authority, &target), peer) {
            Ok(asking) => asking,
            Err(failure) => return self.fail(&failure, &site, &headers, Some(why)),
        };
        let forward = Forward { asking, method: method.clone(), body, why };
        let done = match forward.send(&self.engine).await {
            Ok(response) => Done { response, cache: "bypass" },
            Err(error) => self.failed(error, &site, &headers, why),
        };
        let took = self.engine.clock().exact().saturating_sub(begun);
        self.count(&site, &method, (&done.response, done.cache), took);
        done.response
    }

    fn asking(
        &self,
        parts: Parts,
        (site, authority, target): (Arc<Site>, String, &str),
        peer: IpAddr,
    ) -> Result<Asking, Failure> {
        let target = PathAndQuery::try_from(target)
            .map_err(|_| Failure::BadRequest("The request target makes no sense."))?;
        let clock = self.engine.clock().clone();
        let headers = parts.headers;
        Ok(Asking { site, clock, target, authority: authority.into(), headers, peer })
    }

    fn deliver(&self, asker: Asker<'_>, obtained: &Obtained, site: &Site) -> Response<Outgoing> {
        deliver(asker, obtained, self.engine.clock().now())
            .unwrap_or_else(|| self.fail(&Failure::Unreadable, site, asker.headers, obtained.why))
    }

    fn failed(&self, error: LoadError, site: &Site, headers: &HeaderMap, why: Why) -> Done {
        let failure = ClientFault::in_error(&error).map_or(Failure::Load(error), Failure::from);
        Done { response: self.fail(&failure, site, headers, Some(why)), cache: "error" }
    }

    fn fail(
        &self,
        failure: &Failure,
        site: &Site,
        asker: &HeaderMap,
        why: Option<Why>,
    ) -> Response<Outgoing> {
        let request = self.request_id();
        tracing::warn!(site = %site.settings.id, %request, code = failure.code(), "{failure}");
        let expose = site.settings.expose_errors;
        failure::respond(failure, Page { asker, request, why, expose })
    }

    /// A request that belongs to no site.
    fn refuse(&self, failure: &Failure, parts: &Parts) -> Response<Outgoing> {
        let request = self.request_id();
        tracing::debug!(%request, code = failure.code(), "{failure}");
        let page = Page { asker: &parts.headers, request, why: None, expose: false };
        let response = failure::respond(failure, page);
        let answered = Answered {
            site: "-",
            method: &parts.method,
            status: response.status(),
            cache: "refused",
        };
        self.metrics.count(answered, Duration::ZERO);
        response
    }

    fn count(
        &self,
        site: &Site,
        method: &Method,
        (response, cache): (&Response<Outgoing>, &'static str),
        took: Duration,
    ) {
        let site = &*site.settings.id;
        self.metrics.count(Answered { site, method, status: response.status(), cache }, took);
    }

    fn counters(&self, site: &Arc<Site>) -> Option<&HitCounters> {
        self.hits.iter().find(|(known, _)| Arc::ptr_eq(known, site)).map(|(_, counters)| counters)
    }

    fn request_id(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Purges one URL, with all its variants. `None` if no site takes it.
    #[must_use]
    pub fn purge_url(&self, authority: &str, path: &str, reach: Reach) -> Option<bool> {
        let authority = key::normalise_authority(authority)?;
        let site = self.sites.find(&authority, path)?;
        let target = key::target(site, path)?;
        let key = key::primary(site, &authority, &target).borrowed().to_key();
        Some(self.engine.purge(&Purge::Key(key), reach))
    }
}

/// One answer in the log. A parsed target holds no control bytes; credentials are not in it.
fn log_access(
    (method, target): (Method, http::Uri),
    response: &Response<Outgoing>,
    (peer, took): (IpAddr, Duration),
) {
    let cache = response.headers().get_all(CACHE_STATUS).iter().next_back();
    let cache = cache.and_then(|value| value.to_str().ok()).unwrap_or("-");
    let bytes = response.body().size_hint().exact();
    let (status, micros) = (response.status().as_u16(), took.as_micros());
    tracing::info!(target: ACCESS, %peer, %method, %target, status, bytes, micros, cache);
}

/// The client's fields, borrowed, as they choose a variant.
struct Fields<'a>(&'a HeaderMap);

impl Select for Fields<'_> {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        selecting_value(self.0, name)
    }
}

/// RFC 9112 section 3.2.2: the authority of an absolute target overrides `Host`.
fn authority(parts: &Parts) -> Result<Cow<'_, str>, Failure> {
    let text = match parts.uri.authority() {
        Some(authority) => authority.as_str(),
        None => parts
            .headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .ok_or(Failure::BadRequest("The request names no host."))?,
    };
    key::normalise_authority(text).ok_or(Failure::BadRequest("The host makes no sense."))
}

fn why_not_cached<B: Body>(parts: &Parts, body: &B) -> Option<Why> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Why::Method);
    }
    // A body on a GET has no defined meaning (RFC 9110 section 9.3.1): only the origin knows it.
    let bypass = !body.is_end_stream() || validate::must_forward(&parts.headers);
    bypass.then_some(Why::Bypass)
}

fn credentials(headers: &HeaderMap) -> Credentials {
    if headers.contains_key(AUTHORIZATION) || headers.contains_key(COOKIE) {
        Credentials::Presented
    } else {
        Credentials::Anonymous
    }
}

const fn cache_label(obtained: &Obtained) -> &'static str {
    match obtained.via {
        Via::Hit => "hit",
        Via::Refreshing => "stale",
        Via::Led { unchanged: true, .. } => "revalidated",
        Via::Led { .. } => "miss",
        Via::Followed => "collapsed",
        Via::Passed => "pass",
        Via::Fallback => "fallback",
    }
}

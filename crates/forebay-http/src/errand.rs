//! What a look could not answer: the way to the origin and back.

mod by_body;
mod parts;
mod switch;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Demand, KeyBuf, KeyRef, Trouble, Why};
use forebay_engine::{Ask, Coalesce, LoadError, Obtained, Via, Wanting};
use forebay_semantics::{hop, validate};
use http::header::RANGE;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, Version};

use crate::deliver::Asker;
use crate::failure::Failure;
use crate::forward::{Forward, is_last_hop};
use crate::load::{Asking, HttpLoad, Wish};
use crate::metrics::CountedResponse;
use crate::origin::{ClientFault, RequestBody, no_body};
use crate::request_guard::{Exchange, Interims};
use crate::response_body::ResponseBody;
use crate::service::{Named, Pending, Routed, Service, credentials};
use crate::site::Site;
use parts::Partly;

/// One request that goes to the origin. From here on nothing is borrowed from it.
pub(crate) struct Errand<'s> {
    service: &'s Service,
    site: Arc<Site>,
    method: Method,
    authority: Box<str>,
    target: String,
    why: Why,
    begun: Duration,
    interims: Interims,
}

/// What is sought, and how it is loaded if need be.
#[derive(Clone, Copy)]
struct Sought<'a> {
    key: &'a KeyBuf,
    demand: &'a Demand,
    load: &'a HttpLoad,
}

/// A response, and what it is called in the `cache` label.
struct Done {
    response: Response<ResponseBody>,
    cache: &'static str,
    /// What it turned out to be, more than the look could know; nothing for a fresh hit.
    why: Option<Why>,
}

impl<'s> Errand<'s> {
    pub(crate) fn new(service: &'s Service, routed: &Routed<'_>, why: Why) -> Self {
        Self {
            service,
            site: routed.site.clone(),
            method: routed.method.clone(),
            authority: (&*routed.authority).into(),
            target: (&*routed.target).into(),
            why,
            begun: service.engine().clock().exact(),
            interims: Interims::default(),
        }
    }

    /// Gives interim responses a way to the client. RFC 9110 section 15.2: there is none to one
    /// that speaks HTTP/1.0.
    pub(crate) fn heard_in(
        mut self,
        exchange: Option<&Exchange>,
        parts: &Parts,
    ) -> (Self, Interims) {
        if let Some(exchange) = exchange.filter(|_| parts.version >= Version::HTTP_11) {
            self.interims = exchange.interims();
        }
        let interims = self.interims.clone();
        (self, interims)
    }

    /// Obtains what a look found wanting.
    pub(crate) async fn obtain(
        self,
        (parts, peer): (Parts, IpAddr),
        pending: Pending,
    ) -> Response<ResponseBody> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let method = parts.method;
        let done = match self.asking(parts.headers, peer) {
            Ok(asking) if method == Method::HEAD && self.is_alone(&asking, &pending) => {
                self.head(asking, &pending).await
            }
            Ok(asking) => self.fetch(asking, pending, &method).await,
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(&method, done)
    }

    /// Sends a request past the cache.
    pub(crate) async fn forward(
        self,
        (parts, peer): (Parts, IpAddr),
        body: RequestBody,
    ) -> Response<ResponseBody> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let (method, mut headers) = (parts.method, parts.headers);
        if is_last_hop(&method, &mut headers) {
            let done = self.failed(&Failure::MethodNotAllowed, &headers);
            return self.finish(&method, done);
        }
        let done = match self.asking(headers, peer) {
            Ok(asking) => self.pass_on(asking, (method.clone(), body), "bypass").await,
            Err(failure) => self.failed(&failure, &HeaderMap::new()),
        };
        self.finish(&method, done)
    }

    async fn fetch(&self, asking: Asking, pending: Pending, method: &Method) -> Done {
        let place = (self.service.engine().clone(), pending.key.borrowed().to_key());
        let wish = self.wish(method, &asking.headers, &pending);
        let load = HttpLoad::new(asking, place, wish);
        let sought = Sought { key: &pending.key, demand: &pending.demand, load: &load };
        if *method != Method::GET || pending.wanting.has_prior() {
            return self.fetch_whole(sought, pending.wanting, method).await;
        }
        match self.answer_partly(sought).await {
            Partly::Done(done) => done,
            Partly::Whole(parts) => self.whole_or_part(sought, pending.wanting, parts).await,
        }
    }

    /// Returns `true` if no stored response can answer a HEAD or be updated by it.
    fn is_alone(&self, asking: &Asking, pending: &Pending) -> bool {
        let wanting = &pending.wanting;
        !wanting.has_prior()
            || (!wanting.is_served_first() && self.is_known_private(&asking.headers, pending))
    }

    fn is_known_private(&self, headers: &HeaderMap, pending: &Pending) -> bool {
        let engine = self.service.engine();
        engine.is_known_private(pending.key.borrowed(), credentials(headers))
    }

    /// What is asked of the origin. A site that wants no request to share a load still wants what
    /// can be stored to be stored.
    fn wish(&self, method: &Method, headers: &HeaderMap, pending: &Pending) -> Wish {
        let shares = self.site.settings.coalesce != Coalesce::Nowhere;
        let for_one = shares || pending.demand.no_store || self.is_known_private(headers, pending);
        let as_asked = headers.contains_key(RANGE) || validate::asks_whether_modified(headers);
        match *method {
            // A refresh behind an answer is for everybody, whoever brought it about.
            Method::HEAD if !pending.wanting.is_served_first() => Wish::Head,
            _ if for_one && as_asked => Wish::AsAsked,
            _ => Wish::Whole,
        }
    }

    async fn fetch_whole(&self, sought: Sought<'_>, wanting: Wanting, method: &Method) -> Done {
        match self.obtain_whole(sought, wanting).await {
            Ok(obtained) => self.deliver(sought, &obtained, method),
            Err(failure) => self.failed(&failure, sought.load.headers()),
        }
    }

    async fn obtain_whole(
        &self,
        sought: Sought<'_>,
        wanting: Wanting,
    ) -> Result<Obtained, Failure> {
        let Sought { key, demand, load } = sought;
        let ask = self.ask(key.borrowed(), demand, load);
        let bound = wanting.must_not_be_stale();
        let obtained = self.service.engine().fetch(&ask, wanting, load.clone()).await;
        obtained.map_err(|error| {
            if bound && matches!(error.trouble(demand), Trouble::Unreachable(_)) {
                Failure::MustRevalidate(error)
            } else {
                failure_of(error)
            }
        })
    }

    fn ask<'a>(&self, key: KeyRef<'a>, demand: &'a Demand, load: &'a HttpLoad) -> Ask<'a> {
        let coalesce = self.site.settings.coalesce;
        Ask { key, demand, select: load, credentials: credentials(load.headers()), coalesce }
    }

    fn deliver(&self, sought: Sought<'_>, obtained: &Obtained, method: &Method) -> Done {
        self.count(obtained);
        let asker = Asker { method, headers: sought.load.headers() };
        let loaded = (obtained, sought.load.learned());
        let response = self.service.deliver_loaded(self.named(asker), loaded);
        let is_hit = obtained.via == Via::Hit;
        let why = obtained.why.or_else(|| (!is_hit).then_some(self.why));
        Done { response, cache: cache_label(obtained), why }
    }

    fn count(&self, obtained: &Obtained) {
        let now = self.service.engine().clock().now();
        let staleness = obtained.entry.meta.staleness(now);
        self.service.metrics().count_obtained(&self.site.settings.id, obtained, staleness);
    }

    /// A HEAD for which nothing is stored goes to the origin as it is, and its answer is for its
    /// client: a GET in its place could bring a body that nobody has asked for, of any size. Where
    /// something is stored, a validator brings it up to date for everybody; without one, a HEAD
    /// says whether it has changed.
    async fn head(&self, asking: Asking, pending: &Pending) -> Done {
        if pending.demand.only_if_cached {
            return self.failed(&Failure::Load(LoadError::NotCached), &asking.headers);
        }
        self.pass_on(asking, (Method::HEAD, no_body()), "pass").await
    }

    async fn pass_on(
        &self,
        asking: Asking,
        (method, body): (Method, RequestBody),
        cache: &'static str,
    ) -> Done {
        let headers = asking.headers.clone();
        let forward = Forward { asking, method, body, why: self.why };
        match forward.send(self.service.engine()).await {
            Ok(response) => Done { response, cache, why: Some(self.why) },
            Err(error) => self.failed(&failure_of(error), &headers),
        }
    }

    fn asking(&self, headers: HeaderMap, peer: IpAddr) -> Result<Asking, Failure> {
        if hop::loops(&headers) {
            return Err(Failure::Loop);
        }
        let target = PathAndQuery::try_from(&*self.target)
            .map_err(|_| Failure::BadRequest("The request target is not a valid path."))?;
        let clock = self.service.engine().clock().clone();
        let (site, authority) = (self.site.clone(), self.authority.clone());
        let interims = self.interims.clone();
        Ok(Asking { site, clock, target, authority, headers, peer, interims })
    }

    fn failed(&self, failure: &Failure, asker: &HeaderMap) -> Done {
        let asker = Asker { method: &self.method, headers: asker };
        let response = self.service.fail(failure, self.named(asker), Some(self.why));
        // A request that its client did not finish is no miss.
        let (cache, why) =
            if failure.is_of_client() { ("refused", None) } else { ("error", Some(self.why)) };
        Done { response, cache, why }
    }

    fn named<'a>(&'a self, asker: Asker<'a>) -> Named<'a> {
        Named { asker, site: &self.site, host: &self.authority, target: &self.target }
    }

    fn finish(&self, method: &Method, done: Done) -> Response<ResponseBody> {
        let took = self.service.engine().clock().exact().saturating_sub(self.begun);
        let site = &*self.site.settings.id;
        let status = done.response.status();
        let answered = CountedResponse { site, method, status, cache: done.cache };
        if let Some(why) = done.why {
            self.service.metrics().count_miss(site, why);
        }
        self.service.metrics().count(answered, Some(took));
        done.response
    }
}

fn failure_of(error: LoadError) -> Failure {
    ClientFault::in_error(&error).map_or_else(|| Failure::Load(error), Failure::from)
}

const fn cache_label(obtained: &Obtained) -> &'static str {
    match obtained.via {
        Via::Hit | Via::Tier(_) => "hit",
        Via::Refreshing => "stale",
        Via::Led { unchanged: true, .. } => "revalidated",
        Via::Led { .. } => "miss",
        Via::Followed | Via::Elsewhere => "collapsed",
        Via::Passed => "pass",
        Via::Fallback => "fallback",
    }
}

//! What a look could not answer: the way to the origin and back.

mod switch;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Trouble, Why};
use forebay_engine::{Ask, LoadError, Obtained, Via};
use forebay_semantics::hop;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response};

use crate::deliver::Asker;
use crate::failure::Failure;
use crate::forward::{Forward, is_last_hop};
use crate::load::{Asking, HttpLoad};
use crate::metrics::Answered;
use crate::origin::{ClientFault, RequestBody, no_body};
use crate::outgoing::Outgoing;
use crate::service::{Pending, Routed, Service, credentials};
use crate::site::Site;

/// One request that goes to the origin. From here on nothing is borrowed from it.
pub(crate) struct Errand<'s> {
    service: &'s Service,
    site: Arc<Site>,
    authority: Box<str>,
    target: String,
    why: Why,
    begun: Duration,
}

/// A response, and what it is called in the `cache` label.
struct Done {
    response: Response<Outgoing>,
    cache: &'static str,
    /// What it turned out to be: more than the look could know.
    why: Why,
}

impl<'s> Errand<'s> {
    pub(crate) fn new(service: &'s Service, routed: &Routed<'_>, why: Why) -> Self {
        Self {
            service,
            site: routed.site.clone(),
            authority: (&*routed.authority).into(),
            target: (&*routed.target).into(),
            why,
            begun: service.engine().clock().exact(),
        }
    }

    /// Obtains what a look found wanting.
    pub(crate) async fn obtain(
        self,
        (parts, peer): (Parts, IpAddr),
        pending: Pending,
    ) -> Response<Outgoing> {
        let _waits = self.service.metrics().waits(&self.site.settings.id);
        let method = parts.method;
        let done = match self.asking(parts.headers, peer) {
            Ok(asking) if method == Method::HEAD && !pending.wanting.has_prior() => {
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
    ) -> Response<Outgoing> {
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
        let engine = self.service.engine();
        let load = HttpLoad::new(asking);
        let ask = Ask {
            key: pending.key.borrowed(),
            demand: &pending.demand,
            select: &load,
            credentials: credentials(load.headers()),
            coalesce: self.site.settings.coalesce,
        };
        let bound = pending.wanting.must_not_be_stale();
        match engine.fetch(&ask, pending.wanting, load.clone()).await {
            Ok(obtained) => {
                let staleness = obtained.entry.meta.staleness(engine.clock().now());
                let metrics = self.service.metrics();
                metrics.count_obtained(&self.site.settings.id, &obtained, staleness);
                let asker = Asker { method, headers: load.headers() };
                let response = self.service.deliver(asker, &obtained, &self.site);
                let why = obtained.why.unwrap_or(self.why);
                Done { response, cache: cache_label(&obtained), why }
            }
            Err(error)
                if bound && matches!(error.trouble(&pending.demand), Trouble::Unreachable(_)) =>
            {
                self.failed(&Failure::MustRevalidate(error), load.headers())
            }
            Err(error) => self.failed(&failure_of(error), load.headers()),
        }
    }

    /// A HEAD for which nothing is stored goes to the origin as it is. Where something is, a GET
    /// brings it up to date, for everybody.
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
            Ok(response) => Done { response, cache, why: self.why },
            Err(error) => self.failed(&failure_of(error), &headers),
        }
    }

    fn asking(&self, headers: HeaderMap, peer: IpAddr) -> Result<Asking, Failure> {
        if hop::loops(&headers) {
            return Err(Failure::Loop);
        }
        let target = PathAndQuery::try_from(&*self.target)
            .map_err(|_| Failure::BadRequest("The request target makes no sense."))?;
        let clock = self.service.engine().clock().clone();
        let (site, authority) = (self.site.clone(), self.authority.clone());
        Ok(Asking { site, clock, target, authority, headers, peer })
    }

    fn failed(&self, failure: &Failure, asker: &HeaderMap) -> Done {
        let response = self.service.fail(failure, &self.site, (asker, Some(self.why)));
        Done { response, cache: "error", why: self.why }
    }

    fn finish(&self, method: &Method, done: Done) -> Response<Outgoing> {
        let took = self.service.engine().clock().exact().saturating_sub(self.begun);
        let site = &*self.site.settings.id;
        let status = done.response.status();
        let answered = Answered { site, method, status, cache: done.cache };
        self.service.metrics().count_miss(site, done.why);
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
        Via::Followed => "collapsed",
        Via::Passed => "pass",
        Via::Fallback => "fallback",
    }
}

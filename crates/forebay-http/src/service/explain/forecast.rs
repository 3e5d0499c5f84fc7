//! Expected course of a request.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Demand, Key, KeyBuf, Why};
use forebay_engine::{
    Body, Entry, Forecast, Head, LoadError, Lookup, LookupResult, Miss, Outcome, RunningLoad,
    Source, TierReport,
};
use forebay_rules::Ended;
use forebay_semantics::status::CacheStatus;
use http::header::{CACHE_STATUS, RANGE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::Empty;

use super::Subject;
use super::key::key_report;
use crate::client::credentials;
use crate::client::peer::{AddressOrigin, ConnectionInfo, Peer};
use crate::compress::choose::choose;
use crate::explanation::{KeyReport, Would};
use crate::failure::Failure;
use crate::load::{ClientRequest, LoadDetails};
use crate::record::RequestId;
use crate::response::body::ResponseBody;
use crate::response::deliver::{RequestHead, deliver, deliver_part};
use crate::response::error_page::{Page, respond};
use crate::service::Service;
use crate::service::dispatch::{RuleCourse, apply_rules, asked_purge, why_not_cached};
use crate::service::hit::{EqualQuery, Fields};
use crate::service::origin_request::{OriginRequest, load_failure};
use crate::service::reloads::{Purpose, fresh_entry};
use crate::service::route::{Routed, route};
use crate::site::table::SiteTable;
use crate::site::{Site, key};
use crate::stored::partial::{self, Partial};
use crate::tunnel::upgrade;

/// Course of a request.
pub(super) enum Course {
    /// A stored entry answers.
    Served(Served),
    /// Memory does not answer; the course depends on the engine and the tiers.
    Looked(Miss),
    /// The request waits for a load that is under way.
    Waits(RunningLoad, Why),
    /// The request starts a load.
    Loads(Why),
    /// The request is forwarded past the cache.
    Forwarded(Why),
    /// A rule answers the request.
    ByRule(StatusCode),
    /// The request gets an error response.
    Refused(Refused),
}

/// Answer from storage.
pub(super) struct Served {
    pub(super) why: Option<Why>,
    pub(super) is_renewed: bool,
    pub(super) tier: &'static str,
    status: StatusCode,
    cache_status: String,
}

/// Error response.
pub(super) struct Refused {
    pub(super) code: &'static str,
    pub(super) sentence: String,
    pub(super) why: Option<Why>,
    status: StatusCode,
    cache_status: String,
}

/// Step of a request that is decided without waiting, with the facts that it is based on.
pub(super) struct Step {
    pub(super) course: Course,
    pub(super) site: Option<Arc<Site>>,
    pub(super) key: Option<KeyReport>,
    pub(super) lookup_key: Key,
    pub(super) demand: Demand,
    pub(super) client_request: Option<ClientRequest>,
}

/// Requests that a rate limit counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// All requests, before the lookup.
    All,
    /// Requests that memory does not answer.
    Fetches,
}

impl Step {
    fn of(course: Course, site: Option<Arc<Site>>) -> Self {
        let lookup_key = KeyBuf::default().borrowed().to_key();
        let demand = Demand::default();
        Self { course, site, key: None, lookup_key, demand, client_request: None }
    }
}

impl Refused {
    fn of(failure: &Failure, headers: &HeaderMap, why: Option<Why>, site: Option<&Site>) -> Self {
        let fallback = site.and_then(|site| site.settings.fallback.as_ref());
        let (request, expose) = (RequestId(0), false);
        let page = Page { request_headers: headers, request, why, expose, fallback };
        let response = respond(failure, page);
        let (status, cache_status) = (response.status(), cache_status(&response));
        Self { code: failure.code(), sentence: failure.to_string(), why, status, cache_status }
    }
}

impl Served {
    fn of(response: &Response<ResponseBody>, outcome: &Outcome) -> Self {
        let tier = match outcome.source {
            Source::Tier(name) => name,
            _ => "memory",
        };
        let (status, cache_status) = (response.status(), cache_status(response));
        Self { why: outcome.why, is_renewed: false, tier, status, cache_status }
    }
}

fn cache_status(response: &Response<ResponseBody>) -> String {
    let status = response.headers().get_all(CACHE_STATUS).iter().next_back();
    status.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

impl Service {
    /// Returns the step that [`Service::handle`] would take first: as `begin` in `dispatch.rs`,
    /// without its counters.
    pub(super) fn next_step(
        &self,
        table: &SiteTable,
        parts: &Parts,
        connection: &ConnectionInfo,
    ) -> Step {
        let peer = Peer::of(connection, table.trust(), &parts.headers);
        let refused = |failure: &Failure, site: Option<Arc<Site>>| {
            Step::of(Course::Refused(Refused::of(failure, &parts.headers, None, None)), site)
        };
        let mut routed = match route(table, parts, peer, RequestId(0), None, false) {
            Ok(routed) => routed,
            Err(failure) => return refused(&failure, None),
        };
        let site = routed.site.clone();
        if !site.settings.access.admits(routed.peer.client) {
            return refused(&Failure::AccessDenied, Some(site));
        }
        if let Some(failure) = self.rate_limited(&routed, Counted::All) {
            return refused(&failure, Some(site));
        }
        let body = Empty::<Bytes>::new();
        let (mut course, mut edited) = (RuleCourse::Dispatched, None);
        if !site.settings.rule_set.is_empty() {
            let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
            let raw = key::stripped(&site, path).unwrap_or(Cow::Borrowed("/"));
            match asked_purge(&routed, parts, &raw) {
                Some(Ok(_)) => return Step::of(Course::ByRule(StatusCode::OK), Some(site)),
                Some(Err(failure)) => return refused(&failure, Some(site)),
                None => {}
            }
            (course, edited) = apply_rules(&mut routed, parts, &raw, &body);
        }
        let headers = edited.as_ref().unwrap_or(&parts.headers);
        let why = match course {
            RuleCourse::Ended(Ended::Redirect(redirect)) => {
                return Step::of(Course::ByRule(redirect.status), Some(site));
            }
            RuleCourse::Ended(Ended::Respond(respond)) => {
                return Step::of(Course::ByRule(respond.status), Some(site));
            }
            RuleCourse::Answered(response) => {
                return Step::of(Course::ByRule(response.status()), Some(site));
            }
            RuleCourse::Failed => {
                return Step::of(Course::ByRule(StatusCode::INTERNAL_SERVER_ERROR), Some(site));
            }
            RuleCourse::Bypassed => Some(Why::Rule),
            RuleCourse::Dispatched => {
                let switch = || upgrade::asked(parts).is_some().then_some(Why::Bypass);
                why_not_cached(parts, &body).or_else(switch)
            }
        };
        self.looked_up(&routed, parts, headers, why)
    }

    /// Continues with the lookup, or with the request to the origin if `why` is a reason against
    /// it.
    fn looked_up(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        headers: &HeaderMap,
        why: Option<Why>,
    ) -> Step {
        let (site, peer) = (routed.site, &routed.peer);
        let demand = routed.rules.transformed_demand(site, headers, &routed.values(headers));
        let mut key = key::primary(site, peer.scheme, &routed.authority, &routed.target);
        routed.rules.add_key_parts(site, headers, &mut key);
        let lookup = Lookup {
            key: key.borrowed(),
            demand: &demand,
            select: &Fields { headers, routed },
            credentials: credentials(headers),
            coalesce: routed.rules.coalesce(site),
        };
        let mut course = match why {
            Some(why) => Course::Forwarded(why),
            None => self.peek(routed, parts, headers, &lookup),
        };
        let mut lookup_key = key.borrowed().to_key();
        if let Course::Looked(miss) = &course
            && miss.why() == Why::UriMiss
            && let Some((equal, served)) = self.peek_equal_query(routed, parts, headers, &lookup)
        {
            (lookup_key, course) = (equal, served);
        }
        let why = course.why().unwrap_or(Why::UriMiss);
        let client_request = OriginRequest::new(self, routed, why);
        let client_request = client_request.client_request(headers.clone().into(), &parts.uri);
        if matches!(course, Course::Looked(_) | Course::Forwarded(_)) {
            let limited = self.rate_limited(routed, Counted::Fetches);
            let rejected = || {
                let is_forwarded = matches!(course, Course::Forwarded(_));
                site.origin.rejects(&parts.method).filter(|_| is_forwarded).map(Failure::Load)
            };
            let refused = |failure: &Failure| {
                Course::Refused(Refused::of(failure, headers, Some(why), Some(site)))
            };
            let loop_found = client_request.as_ref().err().map(&refused);
            let refusal = limited.as_ref().map(&refused).or(loop_found);
            if let Some(refusal) = refusal.or_else(|| rejected().as_ref().map(&refused)) {
                course = refusal;
            }
        }
        Step {
            course,
            site: Some(site.clone()),
            key: Some(key_report(routed, parts, &key.borrowed().to_key())),
            lookup_key,
            client_request: client_request.ok(),
            demand,
        }
    }

    /// Looks in memory as `look` in `hit.rs` does, without counting.
    fn peek(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        headers: &HeaderMap,
        lookup: &Lookup<'_>,
    ) -> Course {
        let (engine, site) = (&self.engine, routed.site);
        let found = match engine.peek(lookup) {
            LookupResult::Hit(found) => found,
            LookupResult::Miss(miss) => {
                match fresh_entry(engine, &miss, lookup, site, Purpose::Report) {
                    Some(found) => found,
                    None => return Course::Looked(miss),
                }
            }
        };
        self.memory_hit(routed, parts, headers, &found)
    }

    /// Looks for a stored response to another query as `look_for_equal_query` in `hit.rs` does.
    /// Returns its key.
    fn peek_equal_query(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        headers: &HeaderMap,
        lookup: &Lookup<'_>,
    ) -> Option<(Key, Course)> {
        let equal = EqualQuery::find(routed, headers)?;
        let key = equal.key.borrowed();
        let found = self.engine.peek(&Lookup { key, ..*lookup });
        let found = equal.answer(found, &routed.target)?;
        Some((key.to_key(), self.memory_hit(routed, parts, headers, &found)))
    }

    /// Returns the course of a request that memory answers.
    fn memory_hit(
        &self,
        routed: &Routed<'_>,
        parts: &Parts,
        headers: &HeaderMap,
        found: &Outcome,
    ) -> Course {
        let (engine, site) = (&self.engine, routed.site);
        let head = RequestHead { method: &parts.method, headers };
        let chosen = choose(site.settings.compress.as_ref(), headers, &found.entry);
        match deliver(head, found, chosen, engine.clock().now()) {
            Some(response) => Course::Served(Served::of(&response, found)),
            None => {
                let failure = Failure::Unreadable;
                Course::Refused(Refused::of(&failure, headers, found.why, Some(site)))
            }
        }
    }

    /// Returns the failure of a client that has sent too many requests.
    fn rate_limited(&self, routed: &Routed<'_>, counted: Counted) -> Option<Failure> {
        let limiter = routed.site.rate_limiter.as_deref()?;
        let is_counted = limiter.counts_hits() == (counted == Counted::All);
        if !is_counted || routed.peer.origin() == AddressOrigin::ProxyItself {
            return None;
        }
        let wait = limiter.wait(routed.peer.client, self.engine.clock().now())?;
        Some(Failure::RateLimited(wait))
    }
}

impl Subject<'_> {
    /// Returns the course of a request that memory does not answer.
    pub(super) fn course_of_miss(&self, miss: &Miss, method: &Method) -> Course {
        let lookup = self.lookup();
        if *method == Method::HEAD && self.is_head_alone(&lookup, miss) {
            return self.course_of_head(miss);
        }
        if *method == Method::GET
            && !miss.has_prior()
            && let Some(served) = self.stored_part(&lookup, method)
        {
            return Course::Served(served);
        }
        match self.engine.forecast(&lookup, miss) {
            Forecast::Served { outcome, is_renewed } => self.served(&outcome, method, is_renewed),
            Forecast::Failed(error) => self.failed(error, miss),
            Forecast::Follows(running) => Course::Waits(running, miss.why()),
            Forecast::Loads { why, .. } => {
                if self.searches_tiers(&lookup, miss, why)
                    && let Some(course) = self.tier_hit(method, why)
                {
                    return course;
                }
                let Some(error) = self.site.origin.rejects(&Method::GET) else {
                    return self.course_of_load(&lookup, miss, method, why);
                };
                match self.engine.answer_after(&lookup, miss, error) {
                    Ok(outcome) => self.served(&outcome, method, false),
                    Err(error) => self.failed(error, miss),
                }
            }
        }
    }

    /// Returns the course of a request that loads. Above the budget of the origin, a stale response
    /// answers at once if there is one; other requests wait.
    fn course_of_load(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
        method: &Method,
        why: Why,
    ) -> Course {
        if let Some(error @ LoadError::OverBudget) = self.site.origin.obstacle()
            && let Ok(outcome) = self.engine.answer_after(lookup, miss, error)
        {
            return self.served(&outcome, method, false);
        }
        Course::Loads(why)
    }

    /// Returns true if a HEAD is forwarded as it is, as `is_alone` in `origin_request.rs` decides.
    fn is_head_alone(&self, lookup: &Lookup<'_>, miss: &Miss) -> bool {
        let is_private = || self.engine.is_known_private(lookup.key, lookup.credentials);
        !miss.has_prior() || (!miss.is_served_first() && is_private())
    }

    fn course_of_head(&self, miss: &Miss) -> Course {
        let error = if self.demand.only_if_cached {
            Some(LoadError::NotCached)
        } else {
            self.site.origin.rejects(&Method::GET)
        };
        match error {
            Some(error) => self.refused(&Failure::Load(error), miss.why()),
            None => Course::Forwarded(miss.why()),
        }
    }

    /// Returns true if a load searches the lower tiers, as `load_alone` in the engine decides.
    fn searches_tiers(&self, lookup: &Lookup<'_>, miss: &Miss, why: Why) -> bool {
        let is_unfresh =
            || self.engine.pass_marker(lookup).is_some_and(|marker| !marker.is_private);
        !self.demand.no_store && (why != Why::PassMarked || (is_unfresh() && !miss.has_prior()))
    }

    fn tier_hit(&self, method: &Method, why: Why) -> Option<Course> {
        let usable =
            |report: &&TierReport| report.entry.as_ref().is_some_and(|entry| entry.is_usable);
        let report = self.tiers.iter().find(usable)?;
        let found = report.entry.as_ref()?;
        let head = Head::new(found.head.clone());
        let entry = Arc::new(Entry::new(found.meta.clone(), head, Body::default()));
        let outcome = Outcome { entry, source: Source::Tier(report.name), why: Some(why) };
        Some(self.served(&outcome, method, false))
    }

    /// Returns the answer from stored parts of the body, if they have all requested bytes.
    fn stored_part(&self, lookup: &Lookup<'_>, method: &Method) -> Option<Served> {
        let headers = self.request.headers();
        if !headers.contains_key(RANGE) {
            return None;
        }
        let key = partial::key_of(lookup.key);
        let Lookup { demand, select, credentials, coalesce, .. } = *lookup;
        let lookup = Lookup { key: key.borrowed(), demand, select, credentials, coalesce };
        let LookupResult::Hit(found) = self.engine.peek(&lookup) else { return None };
        if Partial::of(&found.entry)?.parts.spans().is_empty() {
            return None;
        }
        let head = RequestHead { method, headers };
        let now = self.engine.clock().now();
        let response = deliver_part(head, &found, &LoadDetails::default(), now)?;
        Some(Served::of(&response, &found))
    }

    fn served(&self, outcome: &Outcome, method: &Method, is_renewed: bool) -> Course {
        let headers = self.request.headers();
        let head = RequestHead { method, headers };
        let settings = self.request.site.settings.compress.as_ref();
        let chosen = choose(settings, headers, &outcome.entry);
        match deliver(head, outcome, chosen, self.engine.clock().now()) {
            Some(response) => {
                Course::Served(Served { is_renewed, ..Served::of(&response, outcome) })
            }
            None => self.refused(&Failure::Unreadable, Why::UriMiss),
        }
    }

    fn failed(&self, error: LoadError, miss: &Miss) -> Course {
        self.refused(&load_failure(error, miss.must_not_be_stale(), &self.demand), miss.why())
    }

    fn refused(&self, failure: &Failure, why: Why) -> Course {
        let headers = self.request.headers();
        Course::Refused(Refused::of(failure, headers, Some(why), Some(self.site)))
    }
}

impl Course {
    /// Returns the reason why the request is no fresh hit.
    pub(super) const fn why(&self) -> Option<Why> {
        match self {
            Self::Served(served) => served.why,
            Self::Looked(miss) => Some(miss.why()),
            Self::Waits(_, why) | Self::Loads(why) | Self::Forwarded(why) => Some(*why),
            Self::ByRule(_) => Some(Why::Rule),
            Self::Refused(refused) => refused.why,
        }
    }

    /// Returns the report, without causes.
    pub(super) fn would(&self) -> Would {
        match self {
            Self::Served(served) => Would {
                outcome: if served.is_renewed { "served-while-renewed" } else { "served" }.into(),
                why: served.why.map(|why| why.code().into()),
                cache_status: served.cache_status.clone(),
                status: Some(served.status.as_u16()),
                tier: Some(served.tier.into()),
                ..Would::default()
            },
            Self::Waits(running, why) => {
                let waits = asking("waits", *why);
                let cache_status = format!("{}; collapsed", waits.cache_status);
                Would { cache_status, waiting: Some(running.followers), ..waits }
            }
            Self::Loads(why) => asking("loads", *why),
            Self::Looked(miss) => asking("loads", miss.why()),
            Self::Forwarded(why) => asking("forwarded", *why),
            Self::ByRule(status) => {
                Would { status: Some(status.as_u16()), ..asking("answered-by-rule", Why::Rule) }
            }
            Self::Refused(refused) => Would {
                outcome: "refused".into(),
                why: Some(refused.why.map_or(refused.code, Why::code).into()),
                cache_status: refused.cache_status.clone(),
                status: Some(refused.status.as_u16()),
                ..Would::default()
            },
        }
    }
}

/// Returns the report of a request that is not answered from storage.
fn asking(outcome: &'static str, why: Why) -> Would {
    let status = CacheStatus::forward(why).to_value();
    Would {
        outcome: outcome.into(),
        why: Some(why.code().into()),
        cache_status: status.to_str().unwrap_or_default().to_owned(),
        ..Would::default()
    }
}

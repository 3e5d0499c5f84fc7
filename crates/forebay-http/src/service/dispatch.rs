//! Next step of a request: a hit, a response of its own, or an origin request.

use std::borrow::Cow;

use bytes::Bytes;
use forebay_core::Why;
use forebay_engine::LoadError;
use forebay_rules::apply::InvalidTarget;
use forebay_rules::{Ended, Kind, Operation, Target};
use forebay_semantics::{CacheStatus, validate};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body::Body;

use super::hit::{CacheLookup, PendingFetch};
use super::origin_request::OriginRequest;
use super::purge_request::PurgeRequest;
use super::route::{INVALID_TARGET, Routed, route};
use super::{Service, by_body, ended, secure, server_timing};
use crate::client::peer::{AddressOrigin, ConnectionInfo, Peer, Role};
use crate::failure::Failure;
use crate::metrics::rules::RuleError;
use crate::record::{CacheResult, Labels, RequestId};
use crate::response::body::ResponseBody;
use crate::response::deliver::RequestHead;
use crate::rules::{EditedRequest, Served, TransformNext, Values, finish};
use crate::site::rate_limits::RateLimiter;
use crate::site::{Site, key};
use crate::tunnel::upgrade;

/// Next step of a request, decided without waiting.
pub(super) enum Dispatch<'s> {
    Response(Response<ResponseBody>),
    Forward(OriginRequest<'s>),
    ByBody(OriginRequest<'s>),
    Switch(OriginRequest<'s>, HeaderValue),
    Fetch(OriginRequest<'s>, Box<PendingFetch>),
    Purge(Box<PurgeRequest>),
    /// The body is read first, up to this number of bytes: a rule has a condition on it.
    ReadBody(usize),
}

/// Facts about a request besides its head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) id: RequestId,
    /// GraphQL operation in the body; absent if the body was not read.
    pub(super) read: Option<Option<Operation>>,
}

/// Next step of a request, with the header fields that it continues with.
pub(super) struct Begun<'s> {
    pub(super) dispatch: Dispatch<'s>,
    /// Header fields after the edits of rules; absent if there were none.
    pub(super) edited: Option<Box<HeaderMap>>,
}

impl<'s> From<Dispatch<'s>> for Begun<'s> {
    fn from(dispatch: Dispatch<'s>) -> Self {
        Self { dispatch, edited: None }
    }
}

impl Service {
    /// Selects the next step. It does not wait, so that the site table is borrowed only for the
    /// duration of a lookup. An origin request owns its site.
    pub(super) fn begin<B: Body>(
        &self,
        parts: &Parts,
        connection: &ConnectionInfo,
        body: &B,
        arrived: Arrived,
    ) -> Begun<'_> {
        let Arrived { id, read } = arrived;
        let site_table = self.site_table.load();
        let peer = Peer::of(connection, site_table.trust(), &parts.headers);
        if peer.origin() != AddressOrigin::Connection {
            self.metrics.count_forwarded(peer.origin());
        }
        let routed = match route(&site_table, parts, peer, id, read.flatten(), true) {
            Ok(routed) => routed,
            Err(failure) => return Dispatch::Response(self.refuse(&failure, parts, id)).into(),
        };
        if let Some(sites) = &connection.sites
            && !sites.contains(&routed.site.settings.id)
        {
            return Dispatch::Response(self.refuse(&Failure::Misdirected, parts, id)).into();
        }
        if !routed.site.settings.access.admits(routed.peer.client) {
            self.metrics.count_denied(&routed.site.settings.id);
            return Dispatch::Response(self.refuse(&Failure::AccessDenied, parts, id)).into();
        }
        if let Role::Redirect(port) = connection.role {
            return Dispatch::Response(self.redirect(&routed, parts, port)).into();
        }
        if read.is_none() && reads_body(routed.site, parts, body) {
            return Dispatch::ReadBody(routed.site.settings.opt_ins.body_max).into();
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
        routed.rules.count_matches(routed.site);
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let raw = key::stripped(routed.site, path).unwrap_or(Cow::Borrowed("/"));
        if let Some(purge) = asked_purge(&routed, parts, &raw) {
            return self.purge(purge, parts, routed.id).into();
        }
        let (course, edited) = apply_rules(&mut routed, parts, &raw, body);
        let headers = edited.as_ref().unwrap_or(&parts.headers);
        let dispatch = match course {
            RuleCourse::Ended(ended) => {
                let values = values_of(&routed, parts, &raw);
                let response = self.end(&routed, parts, ended::respond(ended, &values), &values);
                return Dispatch::Response(response).into();
            }
            RuleCourse::Answered(response) => {
                let values = values_of(&routed, parts, &raw);
                let response = Ok(response.map(ResponseBody::whole));
                let response = self.end(&routed, parts, response, &values);
                return Dispatch::Response(response).into();
            }
            RuleCourse::Failed => {
                let failure = Failure::Load(LoadError::Panicked("a transform failed".into()));
                return Dispatch::Response(self.refuse(&failure, parts, routed.id)).into();
            }
            RuleCourse::Bypassed => {
                if let Some(refused) = self.over_fetch_rate(&routed, parts) {
                    return refused.into();
                }
                Dispatch::Forward(OriginRequest::new(self, &routed, Why::Rule))
            }
            RuleCourse::Dispatched => self.dispatch(&routed, parts, headers, body),
        };
        Begun { dispatch, edited: edited.map(Box::new) }
    }

    /// Returns the next step of a request that asks for a purge.
    fn purge(
        &self,
        purge: Result<PurgeRequest, Failure>,
        parts: &Parts,
        id: RequestId,
    ) -> Dispatch<'_> {
        match purge {
            Ok(purge) => Dispatch::Purge(Box::new(purge)),
            Err(failure) => Dispatch::Response(self.refuse(&failure, parts, id)),
        }
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
            Err(InvalidTarget) => {
                routed.rules.count_error_of(site, Kind::Redirect, RuleError::Target);
                return self.refuse(&INVALID_TARGET, parts, routed.id);
            }
        };
        if parts.method == Method::HEAD {
            *response.body_mut() = ResponseBody::whole(Bytes::new());
        }
        CacheStatus::forward(Why::Rule).append_to(response.headers_mut());
        finish(&routed.rules, site, &mut response, values, Served::Other);
        secure::add_hsts(&mut response, site, routed.peer.scheme);
        response.body_mut().set_labels(Labels::of(routed.slot, CacheResult::Rule));
        server_timing::note(&mut response, site, None);
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
            let is_by_body = by_body::is_looked_up(routed, parts, body);
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
        Some(Dispatch::Response(self.refuse(&Failure::RateLimited(wait), parts, routed.id)))
    }
}

/// Course of a request under the rules of its site.
pub(super) enum RuleCourse<'s> {
    /// A rule answers the request.
    Ended(Ended<'s>),
    /// A transform answers the request.
    Answered(Box<Response<Bytes>>),
    /// A transform failed.
    Failed,
    /// A rule bypasses the cache.
    Bypassed,
    /// The request goes on, with the edits of the rules.
    Dispatched,
}

/// Applies the rules of the site to the request. Returns its course, and its header fields if a rule
/// has edited them. `raw` is the target before any edit.
pub(super) fn apply_rules<'s, B: Body>(
    routed: &mut Routed<'s>,
    parts: &Parts,
    raw: &str,
    body: &B,
) -> (RuleCourse<'s>, Option<HeaderMap>) {
    let site = routed.site;
    let outcome = routed.rules.outcome(site);
    if let Some(ended) = outcome.ended(Target::new(raw).path) {
        return (RuleCourse::Ended(ended), None);
    }
    let bypasses = outcome.bypasses();
    let by_body = by_body::is_looked_up(routed, parts, body);
    let is_cached = why_not_cached(parts, body).is_none() && upgrade::asked(parts).is_none();
    let looked_up = !bypasses && (is_cached || by_body);
    let mut rules = routed.rules;
    let values = values_of(routed, parts, &routed.target);
    let edited = rules.edited(site, &parts.method, &parts.headers, &values, looked_up);
    routed.rules = rules;
    let EditedRequest { headers: edited, is_too_long, next } = edited;
    let is_switched = upgrade::asked(parts).is_some();
    let course = match next {
        Some(TransformNext::Respond(response)) => RuleCourse::Answered(response),
        Some(TransformNext::Fail) => RuleCourse::Failed,
        Some(TransformNext::Bypass) if !is_switched => RuleCourse::Bypassed,
        _ if (bypasses || is_too_long) && !is_switched => RuleCourse::Bypassed,
        _ => RuleCourse::Dispatched,
    };
    (course, edited)
}

/// Returns the purge that the request asks for, or the failure if it may not. `None` if it asks for
/// none.
pub(super) fn asked_purge(
    routed: &Routed<'_>,
    parts: &Parts,
    raw: &str,
) -> Option<Result<PurgeRequest, Failure>> {
    let set = &routed.site.settings.rule_set;
    if !set.uses(Kind::Purge) {
        return None;
    }
    match routed.rules.outcome(routed.site).purge() {
        Some(purge) => Some(PurgeRequest::read(routed, parts, purge, raw)),
        None if set.is_purge_method(&parts.method) => Some(Err(Failure::PurgeDenied)),
        None => None,
    }
}

/// Returns the values of placeholders for this target.
fn values_of<'a>(routed: &'a Routed<'_>, parts: &'a Parts, target: &'a str) -> Values<'a> {
    Values {
        id: &routed.site.settings.id,
        authority: &routed.authority,
        target,
        headers: Some(&parts.headers),
        peer: Some(&routed.peer),
        response: None,
    }
}

/// Returns true if rules depend on the body of the request: a POST of JSON that is not announced as
/// larger than `cache_body_max`.
fn reads_body<B: Body>(site: &Site, parts: &Parts, body: &B) -> bool {
    let kind = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    site.settings.rule_set.reads_body()
        && parts.method == Method::POST
        && kind.eq_ignore_ascii_case(b"application/json")
        && !parts.headers.contains_key(CONTENT_ENCODING)
        && body.size_hint().lower() <= site.settings.opt_ins.body_max as u64
}

pub(super) fn why_not_cached<B: Body>(parts: &Parts, body: &B) -> Option<Why> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Why::Method);
    }
    // The meaning of a body in a GET is undefined (RFC 9110 section 9.3.1), so the request bypasses
    // the cache.
    let bypass = !body.is_end_stream() || validate::must_forward(&parts.headers);
    bypass.then_some(Why::Bypass)
}

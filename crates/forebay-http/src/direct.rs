//! Direct responses: to plain requests, without hyper.
//!
//! The request guard passes received bytes here first. A GET or HEAD without body,
//! range, upgrade or other special fields, whose stored response is fresh, is a direct hit: it is
//! answered with the stored bytes. Nothing is allocated, and no header map is built. A GET whose
//! responses are unshared may be a direct pass: it is fetched without a flight of the engine. Every
//! other request continues to hyper and [`Service::handle`].
//!
//! Both paths decide with the same functions: those for key, demand, selecting fields and
//! conditions read fields through [`FieldLines`](forebay_semantics::FieldLines).
//!
//! | file | contents |
//! |---|---|
//! | `request.rs` | the request, as slices of its head |
//! | `response.rs` | the response, from the stored bytes |
//! | `pass.rs` | direct passes |

mod pass;
mod request;
mod response;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::KeyRef;
use forebay_engine::{Lookup, Select};
use forebay_semantics::CacheStatus;
use forebay_semantics::FieldLines as _;
use forebay_semantics::client_address::{AddressField, ProxyTrust};
use http::Version;
use parking_lot::Mutex;

use crate::authority::normalise_authority;
use crate::client::credentials;
use crate::client::peer::{ConnectionInfo, Peer, Role};
use crate::compress::choose::choose_as;
use crate::load::{HandedRequest, selecting};
use crate::phase::Phase;
use crate::record::{
    CacheResult, ConnectionEnd, IS_RECORDED, Labels, LoggedHead, Outcome, Record, RequestFields,
    RequestId, TRACEPARENT, key_hash,
};
use crate::request_guard::{DirectAnswer, DirectOutput, DirectResponder, Exchanges};
use crate::rules::{RequestRules, RoutedRequest};
use crate::service::{Service, secure};
use crate::site::{Site, key};

use pass::DirectMiss;
use request::PlainRequest;
use response::Written;

/// Answers plain requests of one connection.
pub(crate) struct DirectResponses {
    service: Arc<Service>,
    connection: ConnectionInfo,
    handover: Handover,
}

/// Slot for the result of a fetch, which the service takes with the next request from hyper.
#[derive(Clone, Default)]
pub(crate) struct Handover(Arc<Mutex<Option<HandedRequest>>>);

impl Handover {
    /// Takes the result.
    pub(crate) fn take(&self) -> Option<HandedRequest> {
        self.0.lock().take()
    }

    fn put(&self, handed: HandedRequest) {
        *self.0.lock() = Some(handed);
    }
}

impl DirectResponses {
    /// Creates the responder for a connection.
    pub(crate) fn new(
        service: Arc<Service>,
        connection: ConnectionInfo,
        handover: Handover,
    ) -> Arc<Self> {
        Arc::new(Self { service, connection, handover })
    }

    /// Returns `true` if hyper must handle all requests of the connection.
    #[inline]
    fn needs_hyper(&self, trust: &ProxyTrust) -> bool {
        let connection = &self.connection;
        // A trusted proxy names the client in fields, and a certificate may select a variant.
        let names_client = trust.proxies.contains(connection.peer)
            || matches!(trust.field, AddressField::Single(_));
        let is_special = connection.role != Role::Serve || connection.certificate.is_some();
        // While the process drains, hyper ends each connection with its response.
        is_special || names_client || self.service.phase() == Phase::Draining
    }

    fn answer(
        &self,
        received: &[u8],
        output: &mut DirectOutput,
        exchanges: &Exchanges,
    ) -> Option<DirectAnswer> {
        let connection = &self.connection;
        let request = PlainRequest::parse(received)?;
        let site_table = self.service.site_table();
        let trust = site_table.trust();
        if self.needs_hyper(trust) {
            return None;
        }
        let peer = Peer::of_connection(connection);
        let authority = normalise_authority(peer.scheme, request.head.host)?;
        let site = site_table.find(&authority, request.head.target)?;
        let is_served = |sites: &[Box<str>]| sites.contains(&site.settings.id);
        let is_allowed = connection.sites.as_deref().is_none_or(is_served)
            && site.settings.access.admits(peer.client);
        let has_direct_hits = site.settings.direct_hits && !site.settings.server_timing;
        if !is_allowed || !has_direct_hits {
            return None;
        }
        let Ruled { rules, target } = ruled(site, &request, &authority, &peer)?;
        let slot = site_table.slot(site);
        let engine = self.service.engine();
        let begun = if IS_RECORDED { engine.clock().exact() } else { Duration::ZERO };
        let demand = rules.demand(site, &request);
        let mut key = key::primary(site, peer.scheme, &authority, &target);
        rules.add_key_parts(site, &request, &mut key);
        let select = Fields { request: &request, peer: &peer, site };
        let lookup = Lookup {
            key: key.borrowed(),
            demand: &demand,
            select: &select,
            credentials: credentials(&request),
            coalesce: rules.coalesce(site),
        };
        let limiter = site.rate_limiter.as_deref().filter(|limiter| limiter.counts_hits());
        let Some(outcome) = engine.hit(&lookup) else {
            let (request, peer, lookup) = (&request, &peer, &lookup);
            let (authority, target) = (&*authority, &*target);
            let head = &received[..request.head.length];
            let missed =
                DirectMiss { head, request, site, slot, peer, authority, target, lookup, begun };
            return self.begin_pass(&missed, exchanges).map(DirectAnswer::Begun);
        };
        if let Some(limiter) = limiter
            && !limiter.would_admit(peer.client, engine.clock().now())
        {
            return None;
        }
        let added = secure::hsts(site, peer.scheme);
        let now = engine.clock().now();
        let negotiated = |offered| request.negotiate(offered);
        let chosen = choose_as(site.settings.compress.as_ref(), &outcome.entry, negotiated);
        if let Some(coding) = chosen.request(&outcome.entry) {
            self.service.make_form(site, &lookup, &outcome.entry, coding);
        }
        let written = response::write(&request, &outcome.entry, chosen, added, now, output)?;
        if let Some(limiter) = limiter {
            // Another connection of the client may be faster; one request more is no harm.
            let _ = limiter.admit(peer.client, now);
        }
        self.service.metrics().count_found();
        self.service.metrics().sample(key.borrowed(), &outcome.entry, now);
        if !site.settings.rule_set.is_empty() {
            rules.count_matches(site);
        }
        let labels = Labels::of(slot, CacheResult::Hit);
        let mut record = Record::new(labels, request.method(), written.status, begun);
        record.bytes = written.body;
        if self.service.may_need_fields() {
            record.access = self.access_fields(&request, &peer, &written, key.borrowed());
        }
        output.add_record(record);
        Some(DirectAnswer::Written(request.head.length))
    }

    /// Collects the facts about a hit for the access log, or for its trace.
    #[cold]
    fn access_fields(
        &self,
        request: &PlainRequest<'_>,
        peer: &Peer,
        written: &Written,
        key: KeyRef<'_>,
    ) -> Option<Box<RequestFields>> {
        let trace = self.service.begin_hit_trace(|| request.lines_named(TRACEPARENT).next());
        if trace.is_none() && !self.service.needs_fields() {
            return None;
        }
        let mut fields = request_fields(request, peer, self.service.request_id());
        let CacheStatus { ttl, detail, .. } = written.cache_status;
        let (age, detail) = (Some(written.age), detail.map(Into::into));
        fields.outcome = Outcome { ttl, age, detail, ..Outcome::default() };
        fields.key = Some(key_hash(key));
        fields.trace = trace;
        Some(fields)
    }
}

/// Collects the facts about a request for the access log.
fn request_fields(request: &PlainRequest<'_>, peer: &Peer, id: RequestId) -> Box<RequestFields> {
    let head = LoggedHead {
        method: request.method(),
        target: request.head.target,
        version: Version::HTTP_11,
        host: request.head.host,
        user_agent: request.user_agent(),
        referer: request.referer(),
    };
    RequestFields::of(id, peer, Some(head))
}

/// Target of a request after the rules of its site, and the rules that match.
struct Ruled<'t> {
    rules: RequestRules,
    target: Cow<'t, str>,
}

/// Applies the rules of a site. Returns `None` if a rule prevents a direct hit.
fn ruled<'t>(
    site: &Site,
    request: &PlainRequest<'t>,
    authority: &str,
    peer: &Peer,
) -> Option<Ruled<'t>> {
    if site.settings.rule_set.is_empty() {
        let target = key::target(site, request.head.target)?;
        return Some(Ruled { rules: RequestRules::default(), target });
    }
    let target = key::stripped(site, request.head.target)?;
    let routed = RoutedRequest {
        method: request.method(),
        authority,
        target: &target,
        headers: request,
        peer,
        operation: None,
        // A request that is no direct hit takes the ordinary path, which counts.
        is_counted: false,
    };
    let mut rules = RequestRules::new(site, &routed);
    if rules.prevents_direct_hit(site, request) {
        return None;
    }
    let target = rules.target(site, target).ok()?;
    Some(Ruled { rules, target })
}

impl DirectResponder for DirectResponses {
    fn respond(
        &self,
        received: &[u8],
        output: &mut DirectOutput,
        exchanges: &Exchanges,
    ) -> DirectAnswer {
        self.answer(received, output, exchanges).unwrap_or(DirectAnswer::Declined)
    }

    fn record(&self, records: &mut [Record], by: ConnectionEnd) {
        self.service.record_direct(records, by);
    }
}

/// Selecting fields of a plain request.
struct Fields<'a> {
    request: &'a PlainRequest<'a>,
    peer: &'a Peer,
    site: &'a Site,
}

impl Select for Fields<'_> {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        selecting(self.request, self.peer, self.site, name)
    }
}

//! Direct passes: unshared responses that are fetched and written without hyper's server, and without a
//! flight of the engine.
//!
//! Only a request whose key has a pass marker begins here. If the response does not qualify (it may be
//! stored, it is large or broken, the origin failed), the request goes on to hyper, and the result of
//! the fetch replaces the first request of its load.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Key, Why};
use forebay_engine::{Credentials, Lookup, LookupResult};
use forebay_semantics::{FieldLines as _, FieldSink as _, RawFields};
use futures_util::FutureExt as _;
use http::StatusCode;
use http::header::{AGE, CACHE_STATUS, CONTENT_LENGTH, STRICT_TRANSPORT_SECURITY};

use super::request::PlainRequest;
use super::response::is_framed_by_length;
use super::{DirectResponses, Handover, request_fields};
use crate::client::peer::Peer;
use crate::head_writer::HeadWriter;
use crate::load::{
    ClientRequest, Fetched, HandedRequest, HandedResult, PASS_REMEMBER, PassedResponse,
    write_normalised,
};
use crate::origin::PlainResponse;
use crate::phase::Phase;
use crate::record::{CacheResult, Labels, Outcome, Record, SiteSlot};
use crate::request_guard::{DirectFetch, DirectResponse, Exchanges};
use crate::response::deliver::pass_status;
use crate::rules::RequestRules;
use crate::service::{PendingRecord, Routed, Service, secure};
use crate::site::Site;

/// Plain request that no fresh response in memory answers.
#[derive(Clone, Copy)]
pub(super) struct DirectMiss<'a> {
    /// Bytes of the head.
    pub(super) head: &'a [u8],
    pub(super) request: &'a PlainRequest<'a>,
    pub(super) site: &'a Arc<Site>,
    pub(super) slot: SiteSlot,
    pub(super) peer: &'a Peer,
    pub(super) authority: &'a str,
    pub(super) target: &'a str,
    pub(super) lookup: &'a Lookup<'a>,
    /// Time of the request, on the clock of the engine.
    pub(super) begun: Duration,
}

/// Request that is passed to the origin.
struct Pass {
    service: Arc<Service>,
    handover: Handover,
    slot: SiteSlot,
    key: Key,
    credentials: Credentials,
    why: Why,
    request: ClientRequest,
}

impl DirectResponses {
    /// Begins a direct pass, if the request permits one.
    #[inline(never)]
    pub(super) fn begin_pass(
        &self,
        missed: &DirectMiss<'_>,
        exchanges: &Exchanges,
    ) -> Option<Box<DirectFetch>> {
        let DirectMiss { head, request, site, slot, peer, authority, target, lookup, begun } =
            *missed;
        let (service, engine) = (&self.service, self.service.engine());
        if !site.allows_direct_passes || !may_pass(request, lookup) || service.is_traced() {
            return None;
        }
        let Lookup { key, credentials, .. } = *lookup;
        if !engine.is_known_private(key, credentials) {
            return None;
        }
        let LookupResult::Miss(miss) = engine.lookup(lookup) else { return None };
        if miss.has_prior() {
            return None;
        }
        let (fields, why) = (RawFields::copied(head, request.all()), miss.why());
        let head = fields.bytes().clone();
        let routed = Routed {
            site,
            peer: peer.clone(),
            method: request.method(),
            slot,
            id: service.request_id(),
            authority: Cow::Borrowed(authority),
            target: Cow::Borrowed(target),
            rules: RequestRules::default(),
        };
        let interims = exchanges.open_interims();
        let client_request = service.client_request(routed, fields, why, interims.clone())?;
        let labels = Labels::of(slot, CacheResult::Refused);
        let mut record = Record::new(labels, request.method(), StatusCode::OK, begun);
        if service.needs_fields() {
            record.access = Some(request_fields(request, peer, client_request.id));
        }
        let pass = Pass {
            service: service.clone(),
            handover: self.handover.clone(),
            slot,
            key: key.to_key(),
            credentials,
            why,
            request: client_request,
        };
        let response = Box::pin(async move {
            // After a panic, hyper handles the request like one that was not begun.
            let answer = pin!(AssertUnwindSafe(pass.run(record)).catch_unwind());
            interims.before(answer).await.unwrap_or_default()
        });
        Some(Box::new(DirectFetch { head, response }))
    }
}

impl Pass {
    /// Fetches the response. Returns `None` if hyper must handle the request.
    async fn run(&self, record: Record) -> Option<DirectResponse> {
        let Self { service, key, request, .. } = self;
        let (id, begun) = (request.id, record.begun);
        let pending = PendingRecord::of(service, id, record);
        pending.set_key(key.borrowed());
        let _waits = service.metrics().waits(&request.site.settings.id);
        let (sent, purges) = (service.engine().clock().exact(), service.engine().purges_so_far());
        let accepts = |status| is_framed_by_length(status) && service.phase() != Phase::Draining;
        match request.fetch_for_one(sent, accepts).await {
            Fetched::Passed(passed) => {
                let cost = request.origin_time.get().copied().unwrap_or_default();
                let (engine, key) = (service.engine(), key.borrowed());
                let is_renewed = engine.note_passed(key, self.credentials, cost, PASS_REMEMBER);
                request.record_pass(key, &passed, is_renewed);
                service.metrics().count_lookup(self.why);
                finish(request, pending, self.slot, passed)
            }
            Fetched::NeedsFlight(result) => {
                pending.leave();
                let site = request.site.clone();
                let result = Arc::new(HandedResult::new(*result, site, sent, purges));
                self.handover.put(HandedRequest { begun, id, result });
                None
            }
        }
    }
}

/// Returns `true` for a GET without conditions and without directives that restrict which response it
/// accepts.
fn may_pass(request: &PlainRequest<'_>, lookup: &Lookup<'_>) -> bool {
    let demand = lookup.demand;
    let is_plain = demand.is_plain() && !demand.no_store && !demand.only_if_cached;
    is_plain && !request.is_head() && !request.has_conditions()
}

/// Completes a passed response.
fn finish(
    request: &ClientRequest,
    pending: PendingRecord<'_>,
    slot: SiteSlot,
    passed: PassedResponse,
) -> Option<DirectResponse> {
    let PassedResponse { response, unstorable } = passed;
    let PlainResponse { status, fields, body } = *response;
    let cache_status = pass_status(Why::PassMarked, status, unstorable).to_bytes();
    let labels = Labels { why: Some(Why::PassMarked), ..Labels::of(slot, CacheResult::Pass) };
    let mut record = pending.finish(labels, status)?;
    record.bytes = body.len() as u64;
    if let Some(access) = &mut record.access {
        let (origin_time, age) = (request.origin_time.get().copied(), fields.lines(&AGE).next());
        access.outcome = Outcome { origin_time, ..Outcome::of_lines(age, Some(&cache_status)) };
    }
    let mut head = HeadWriter::response(status);
    write_normalised(&fields, request.clock.wall(), &mut head);
    if let Some(hsts) = secure::hsts(&request.site, request.peer.scheme)
        && !fields.has(&STRICT_TRANSPORT_SECURITY)
    {
        head.add(&STRICT_TRANSPORT_SECURITY, hsts);
    }
    // RFC 9211 section 2: the member of this cache is behind those of others.
    head.add_line(CACHE_STATUS.as_str().as_bytes(), &cache_status);
    if !fields.has(&CONTENT_LENGTH) {
        head.add_text(&CONTENT_LENGTH, itoa::Buffer::new().format(body.len()));
    }
    Some(DirectResponse { head: head.end(), body, record })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use forebay_engine::{Engine, Limits, SystemClock};
    use http::Request;
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::peer::ConnectionInfo;
    use crate::metrics::Metrics;
    use crate::request_guard::{DirectAnswer, DirectOutput, DirectResponder, Guarded};
    use crate::settings::SiteSettings;
    use crate::site::Sites;

    /// Answers each request on one connection.
    async fn origin(listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = [0; 4 << 10];
        while stream.read(&mut received).await.unwrap() > 0 {
            let response = b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\n\
                             content-length: 3\r\nconnection: keep-alive\r\n\r\nown";
            stream.write_all(response).await.unwrap();
        }
    }

    async fn service() -> Arc<Service> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let authority = listener.local_addr().unwrap().to_string().parse().unwrap();
        tokio::spawn(origin(listener));
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(Limits::of(1 << 20), Arc::new(SystemClock), metrics.clone());
        let sites = Sites::new(vec![Site::new(SiteSettings::new("s", authority))]);
        Arc::new(Service::new(sites, engine, metrics))
    }

    #[tokio::test]
    async fn a_plain_get_is_passed_directly_once_its_key_is_known_as_private() {
        let service = service().await;
        let info = ConnectionInfo::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let direct = DirectResponses::new(service.clone(), info.clone(), Handover::default());
        let exchanges = Guarded::new((), Default::default(), Arc::default()).exchanges();
        let respond = |method: &str, field: &str| {
            let head = format!("{method} /a HTTP/1.1\r\nhost: h.example\r\n{field}\r\n");
            direct.respond(head.as_bytes(), &mut DirectOutput::default(), &exchanges)
        };
        assert!(matches!(respond("GET", ""), DirectAnswer::Declined), "nothing is known");
        let request = Request::get("/a").header("host", "h.example").body(Empty::new()).unwrap();
        let ordinary = service.handle(request, &info).await.into_parts().0;
        let DirectAnswer::Begun(fetch) = respond("GET", "") else { panic!("it begins") };
        let response = fetch.response.await.expect("it is passed");
        assert_eq!(response.body, "own");
        let head = String::from_utf8(response.head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\ncache-control: no-store\r\n"), "{head}");
        assert!(head.contains("cache-status: forebay; fwd=bypass; fwd-status=200"), "{head}");
        assert_eq!(head.matches("\r\n").count(), 1 + ordinary.headers.len() + 1, "{head}");
        for (method, field) in [
            ("HEAD", ""),
            ("GET", "range: bytes=0-0\r\n"),
            ("GET", "if-none-match: *\r\n"),
            ("GET", "cache-control: no-store\r\n"),
            ("GET", "cache-control: only-if-cached\r\n"),
            ("GET", "cookie: a=1\r\n"),
            ("GET", &format!("VIA: {}\r\n", ["1.1 forebay"; 8].join(", "))),
        ] {
            assert!(matches!(respond(method, field), DirectAnswer::Declined), "{method} {field}");
        }
    }
}

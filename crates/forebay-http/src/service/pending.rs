//! Record of a request that has no response yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::KeyRef;
use http::header::{HOST, REFERER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode};

use crate::client::peer::ConnectionInfo;
use crate::load::{HandedRequest, HandedResult};
use crate::record::{
    ConnectionEnd, KeyHash, Labels, LoggedHead, Record, RequestFields, RequestId, RequestTrace,
    SiteSlot, TRACEPARENT, key_hash,
};
use crate::response::body::ResponseBody;
use crate::service::{Service, server_timing};

/// Status in the record of a request that ended without a response: its client disconnected or reset
/// the stream, or the process stopped. Other servers log the same one; no client receives it.
const ABORTED: u16 = 499;

/// Code of a request that ended without a response.
const ABORTED_CODE: &str = "aborted";

/// Request in progress. If this is dropped, its record says that it ended without a response: it may
/// have reached the origin.
pub(crate) struct PendingRecord<'s> {
    service: &'s Service,
    id: RequestId,
    record: Option<Record>,
    /// Result of the request that the direct path has sent to the origin.
    handed: Option<Arc<HandedResult>>,
    /// Site of the request, once it is known.
    site: AtomicU16,
    /// Hash of the key that is fetched; 0 before it is known.
    key: AtomicU64,
}

impl<'s> PendingRecord<'s> {
    /// Starts the record of a request, with the time and the id of `handed` if it is there.
    pub(super) fn begin<B>(
        service: &'s Service,
        request: &Request<B>,
        connection: &ConnectionInfo,
        handed: Option<HandedRequest>,
    ) -> Self {
        let (begun, id, handed) = match handed {
            Some(HandedRequest { begun, id, result }) => (begun, id, Some(result)),
            None => (service.engine().clock().exact(), service.request_id(), None),
        };
        let mut record = Record::new(Labels::REFUSED, request.method(), StatusCode::OK, begun);
        record.status = ABORTED;
        record.access =
            service.may_need_fields().then(|| access_fields(service, request, connection, id));
        let (site, key) = (AtomicU16::new(SiteSlot::NONE.0), AtomicU64::new(0));
        Self { service, id, record: Some(record), handed, site, key }
    }

    /// Continues a record whose site is known.
    pub(crate) fn of(service: &'s Service, id: RequestId, mut record: Record) -> Self {
        record.status = ABORTED;
        let (site, key) = (AtomicU16::new(record.labels.site.0), AtomicU64::new(0));
        Self { service, id, record: Some(record), handed: None, site, key }
    }

    /// Returns the result of the request that the direct path has sent to the origin.
    pub(super) fn handed(&self) -> Option<Arc<HandedResult>> {
        self.handed.clone()
    }

    /// Drops this record: the ordinary path makes another.
    pub(crate) fn leave(mut self) {
        self.record = None;
    }

    /// Returns the id of the request.
    pub(super) const fn id(&self) -> RequestId {
        self.id
    }

    /// Returns the trace of the request, if requests are traced.
    pub(super) fn trace(&self) -> Option<&Arc<RequestTrace>> {
        self.record.as_ref()?.access.as_ref()?.trace.as_ref()
    }

    /// Sets the site of a request that may end without a response.
    pub(super) fn set_site(&self, site: SiteSlot) {
        self.site.store(site.0, Ordering::Relaxed);
    }

    /// Sets the key that the request fetches.
    pub(crate) fn set_key(&self, key: KeyRef<'_>) {
        if self.record.as_ref().is_some_and(|record| record.access.is_some()) {
            self.key.store(key_hash(key), Ordering::Relaxed);
        }
    }

    /// Hash of the key that the request fetches.
    fn key(&self) -> Option<u64> {
        Some(self.key.load(Ordering::Relaxed)).filter(|key| *key != 0)
    }

    /// Lets the response be recorded when it ends. Its head is made now.
    pub(super) fn answered(mut self, response: &mut Response<ResponseBody>) {
        if let Some(KeyHash(hit)) = response.extensions().get() {
            self.key.store(*hit, Ordering::Relaxed);
        }
        let labels = response.body().labels().unwrap_or(Labels::REFUSED);
        let head = self.complete(labels, response.status());
        if response.body().timing().is_sent {
            server_timing::add(response, labels.cache, head);
        }
        if let Some(record) = self.record.take() {
            self.service.record(response, record);
        }
    }

    /// Returns the record of the response, whose head is made now.
    pub(crate) fn finish(mut self, labels: Labels, status: StatusCode) -> Option<Record> {
        self.complete(labels, status);
        self.record.take()
    }

    /// Notes the head of the response, which is made now. Returns the time from the request to it.
    fn complete(&mut self, labels: Labels, status: StatusCode) -> Duration {
        let key = self.key();
        let Some(record) = &mut self.record else { return Duration::ZERO };
        (record.labels, record.status) = (labels, status.as_u16());
        let head = self.service.engine().clock().exact().saturating_sub(record.begun);
        record.head = Some(head);
        if let Some(access) = &mut record.access {
            access.key = key;
        }
        head
    }
}

impl Drop for PendingRecord<'_> {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        record.labels.site = SiteSlot(self.site.load(Ordering::Relaxed));
        if let Some(access) = &mut record.access {
            access.key = self.key();
            access.outcome.detail = Some(ABORTED_CODE.into());
        }
        self.service.record_direct(&mut [record], ConnectionEnd::Dropped);
    }
}

/// Collects the facts about a request for the access log.
#[cold]
fn access_fields<B>(
    service: &Service,
    request: &Request<B>,
    connection: &ConnectionInfo,
    id: RequestId,
) -> Box<RequestFields> {
    let headers = request.headers();
    let target = request.uri().path_and_query().map_or("*", PathAndQuery::as_str);
    let authority = request.uri().authority().map(|authority| authority.as_str().into());
    let of_field = || headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
    let host = authority.or_else(of_field).unwrap_or_default();
    let field = |name| headers.get(name).map(HeaderValue::as_bytes);
    let head = LoggedHead {
        method: request.method(),
        target,
        version: request.version(),
        host: &host,
        user_agent: field(USER_AGENT),
        referer: field(REFERER),
    };
    let peer = service.peer(connection, headers);
    let mut fields = RequestFields::of(id, &peer, Some(head));
    fields.trace = service.begin_trace(headers.get(TRACEPARENT).map(HeaderValue::as_bytes));
    fields
}

//! Events of the access log.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_semantics::CacheStatus;
use http::header::CACHE_STATUS;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;

use crate::client::peer::{ConnectionInfo, Peer};
use crate::metrics::HitCounters;
use crate::response::body::ResponseBody;
use crate::service::Service;
use crate::site::Site;

/// Log target of the access log: one event for each request while `log_access` is on, which is off
/// by default.
pub const ACCESS: &str = "forebay::access";

/// Status in the event of a request that ended without a response: its client disconnected or reset
/// the stream, or the process stopped. Other servers log the same one; no client receives it.
const ABORTED: u16 = 499;

/// Value of `cache` in the event of a request that ended without a response.
const ABORTED_CACHE: &str = "forebay; detail=aborted";

/// Response of an access log event.
pub(super) struct AccessEvent<'a> {
    /// Status code.
    pub(super) status: u16,
    /// Length of the body in bytes, if it is known.
    pub(super) bytes: Option<u64>,
    /// Time from the request head to the response head.
    pub(super) took: Duration,
    /// `Cache-Status` member of this cache.
    pub(super) cache: &'a str,
}

impl<'a> AccessEvent<'a> {
    /// Returns the event of a response.
    pub(super) fn of(response: &'a Response<ResponseBody>, took: Duration) -> Self {
        let cache = response.headers().get_all(CACHE_STATUS).iter().next_back();
        let cache = cache.and_then(|value| value.to_str().ok()).unwrap_or("-");
        let bytes = response.body().size_hint().exact();
        Self { status: response.status().as_u16(), bytes, took, cache }
    }

    const fn aborted(took: Duration) -> Self {
        Self { status: ABORTED, bytes: Some(0), took, cache: ABORTED_CACHE }
    }

    /// Writes the event. A parsed target has no control bytes; credentials are not logged.
    pub(super) fn write(&self, method: impl Display, target: impl Display, peer: &Peer) {
        let Self { status, bytes, cache, .. } = *self;
        let micros = u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX);
        let Peer { client, socket, .. } = peer;
        tracing::info!(
            target: ACCESS, %client, peer = %socket, %method, %target, status, bytes, micros, cache
        );
    }
}

/// Request in progress that will have an event. If this is dropped, the event says that the request
/// ended without a response: it may have reached the origin.
pub(super) struct PendingEvent<'s> {
    service: &'s Service,
    request: Option<(Method, Uri)>,
    peer: Peer,
    begun: Duration,
}

impl<'s> PendingEvent<'s> {
    /// Notes the request and the time.
    pub(super) fn begin<B>(
        service: &'s Service,
        request: &Request<B>,
        connection: &ConnectionInfo,
    ) -> Self {
        let peer = service.peer(connection, request.headers());
        let begun = service.engine().clock().exact();
        let request = Some((request.method().clone(), request.uri().clone()));
        Self { service, request, peer, begun }
    }

    /// Writes the event of the response.
    pub(super) fn answered(mut self, response: &Response<ResponseBody>) {
        let took = self.took();
        self.write(&AccessEvent::of(response, took));
    }

    fn took(&self) -> Duration {
        self.service.engine().clock().exact().saturating_sub(self.begun)
    }

    fn write(&mut self, event: &AccessEvent<'_>) {
        if let Some((method, target)) = self.request.take() {
            event.write(method, target, &self.peer);
        }
    }
}

impl Drop for PendingEvent<'_> {
    fn drop(&mut self) {
        if self.request.is_some() {
            let took = self.took();
            self.write(&AccessEvent::aborted(took));
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

impl Service {
    /// Enables or disables the access log for responses that begin from now on (target [`ACCESS`]).
    /// Disabled by default.
    pub fn log_access(&self, on: bool) {
        self.access_log.store(on, Ordering::Relaxed);
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
}

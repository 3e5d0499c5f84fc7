//! Client connections.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::{HttpService, service_fn};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::client::peer::{ConnectionInfo, Peer};
use crate::direct::DirectHits;
use crate::failure::Failure;
use crate::phase::Phase;
use crate::record::RequestId;
use crate::request_guard::{
    ClientTimeouts, Exchange, GuardCounters, Guarded, Rejection, http1_builder,
};
use crate::response::body::ResponseBody;
use crate::response::error_page::{Page, respond};
use crate::service::Service;
use crate::tunnel::{Tunnel, TunnelEnd};

/// Settings and state shared by client connections, of one or more listeners.
#[derive(Clone)]
pub struct Connections {
    /// Service that answers the requests.
    pub service: Arc<Service>,
    /// Timeouts of client connections.
    pub timeouts: ClientTimeouts,
    /// Counters of rejections and timeouts.
    pub counters: Arc<GuardCounters>,
    /// Flag that becomes `true` when the connections must end.
    pub stop: watch::Receiver<bool>,
}

impl Connections {
    /// Serves a client connection with HTTP/1, until the client disconnects, is rejected or times
    /// out, or `stop` becomes `true` and the current request is answered. If the connection became
    /// a tunnel, it continues until the tunnel ends or this future is dropped.
    pub async fn serve<S>(self, stream: S, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_http1(stream, Bytes::new(), info).await;
    }

    /// Serves an HTTP/1 connection. `received` are bytes that were read already.
    pub(crate) async fn serve_http1<S>(mut self, stream: S, received: Bytes, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, pending) = (info.peer, PendingUpgrade::default());
        {
            // Created in place: otherwise the future would reserve space for each move.
            let direct_hits = DirectHits::new(self.service.clone(), info.clone());
            let mut guarded = Guarded::new(stream, self.timeouts, self.counters.clone())
                .with_responder(direct_hits);
            guarded.hold(received);
            let mut connection = self.http(guarded, info, &pending);
            if let Err(error) = drive(&mut connection, &mut self.stop).await {
                // A client that disconnects is not an error of forebay.
                tracing::debug!(%peer, %error, "client connection ended with an error");
            }
        }
        if pending.finish::<S>().await == TunnelEnd::Idle {
            self.counters.count_idle_tunnel();
        }
    }

    /// Answers a client connection above the maximum number with 503 and closes it, without reading
    /// its request. The client timeouts bound the duration; the caller bounds how many such
    /// connections exist.
    pub async fn reject<S>(mut self, stream: S, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let guarded = Guarded::rejecting(stream, self.timeouts, self.counters.clone());
        let peer = info.peer;
        let mut connection = self.http(guarded, info, &PendingUpgrade::default());
        if let Err(error) = drive(&mut connection, &mut self.stop).await {
            tracing::debug!(%peer, %error, "rejected client connection ended with an error");
        }
    }

    fn http<S>(
        &self,
        guarded: Guarded<S>,
        info: ConnectionInfo,
        pending: &PendingUpgrade,
    ) -> UpgradeableConnection<TokioIo<Guarded<S>>, impl ClientService + use<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let exchanges = guarded.exchanges();
        let (service, counters) = (self.service.clone(), self.counters.clone());
        let (pending, info) = (pending.clone(), Arc::new(info));
        let answer = service_fn(move |mut request: Request<Incoming>| {
            let exchange = exchanges.open();
            let rejection = exchanges.rejection().map(|why| (why, counters.next_rejection()));
            let (service, info) = (service.clone(), info.clone());
            let upgrade = request.extensions_mut().remove::<OnUpgrade>();
            let http_1_0 =
                (request.version() < Version::HTTP_11).then(|| asks_keep_alive(&request));
            let asked = upgrade.map(|upgrade| (upgrade, pending.clone()));
            async move {
                let mut response = match rejection {
                    None => service.handle_during(request, &info, Some(&exchange)).await,
                    Some((why, number)) => respond_to_rejected(why, number, &service, &info),
                };
                if let Some(stays) = http_1_0 {
                    close_unless_persistent(stays, &mut response);
                }
                let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                if service.phase() == Phase::Draining && !switches {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(match asked {
                    None => response.map(|body| body.during(exchange)),
                    Some((upgrade, pending)) => pending.note(upgrade, response, exchange),
                })
            }
        });
        http1_builder().serve_connection(TokioIo::new(guarded), answer).with_upgrades()
    }
}

/// Returns `true` if an HTTP/1.0 client asks for a persistent connection (RFC 9112 appendix C.2.2).
fn asks_keep_alive<B>(request: &Request<B>) -> bool {
    let lines = request.headers().get_all(CONNECTION).into_iter();
    let mut options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"keep-alive"))
}

/// Adds `Connection: close` to a response for an HTTP/1.0 client unless the connection persists.
/// The response has the version 1.1, in which connections persist by default (RFC 9112 section
/// 9.3). HTTP/1.0 has no chunked coding, so a body of unknown length ends with the connection.
fn close_unless_persistent(stays: bool, response: &mut Response<ResponseBody>) {
    let has_length = response.headers().contains_key(CONTENT_LENGTH);
    if stays && (has_length || response.body().size_hint().exact().is_some()) {
        return;
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    // With version 1.1, hyper would add `Connection: keep-alive`.
    *response.version_mut() = Version::HTTP_10;
}

/// Bounds of the HTTP service that hyper calls, under one name.
trait ClientService:
    HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future: Send> + Send + Unpin
{
}

impl<T> ClientService for T where
    T: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future: Send>
        + Send
        + Unpin
{
}

/// Polls a connection to its end, or to the end of the current request once `stop` is `true`.
async fn drive<S, A>(
    connection: &mut UpgradeableConnection<TokioIo<Guarded<S>>, A>,
    stop: &mut watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: ClientService,
{
    tokio::select! {
        biased;
        ended = &mut *connection => ended,
        () = stop_after_arrivals(stop) => {
            Pin::new(&mut *connection).graceful_shutdown();
            connection.await
        }
    }
}

/// Slot for a requested protocol upgrade. hyper returns such a connection when it is done with it,
/// whatever the response.
#[derive(Clone, Default)]
struct PendingUpgrade(Arc<Mutex<Option<UpgradeRequest>>>);

struct UpgradeRequest {
    upgrade: OnUpgrade,
    accepted: Option<AcceptedUpgrade>,
}

/// Tunnel to the origin, with the exchange of the upgrade request. The guard withholds bytes after
/// that request while the exchange is open.
struct AcceptedUpgrade {
    tunnel: Box<Tunnel>,
    exchange: Exchange,
}

impl PendingUpgrade {
    fn note(
        &self,
        upgrade: OnUpgrade,
        mut response: Response<ResponseBody>,
        exchange: Exchange,
    ) -> Response<ResponseBody> {
        let (accepted, response) = match response.body_mut().take_tunnel() {
            Some(tunnel) => (Some(AcceptedUpgrade { tunnel, exchange }), response),
            None => (None, response.map(|body| body.during(exchange))),
        };
        *self.0.lock() = Some(UpgradeRequest { upgrade, accepted });
        response
    }

    async fn finish<S>(self) -> TunnelEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(UpgradeRequest { upgrade, accepted }) = self.0.lock().take() else {
            return TunnelEnd::Closed;
        };
        // hyper has finished with the connection, so this resolves immediately.
        let Ok(upgraded) = upgrade.await else { return TunnelEnd::Closed };
        let Ok(parts) = upgraded.downcast::<TokioIo<Guarded<S>>>() else {
            return TunnelEnd::Closed;
        };
        let mut guarded = parts.io.into_inner();
        match accepted {
            // The guard passed no bytes after the request to hyper.
            Some(AcceptedUpgrade { tunnel, exchange }) if parts.read_buf.is_empty() => {
                guarded.set_tunnel();
                // Boxed, so that not every connection reserves space for a tunnel.
                let joined = Box::pin(tunnel.join(guarded)).await;
                drop(exchange);
                joined
            }
            _ => {
                let _ = guarded.shutdown().await;
                TunnelEnd::Closed
            }
        }
    }
}

/// Waits until the stop flag becomes `true` or its sender is dropped.
pub async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits for the stop, and then until the runtime has reported the bytes that arrived before it, so
/// that the request of a connection that has just been accepted is answered.
pub(crate) async fn stop_after_arrivals(stop: &mut watch::Receiver<bool>) {
    stop_requested(stop).await;
    tokio::task::yield_now().await;
}

/// Bit that marks the ids of rejected requests. The ids of other requests start at the start time
/// and do not use it.
const REJECTED_ID: u64 = 1 << 63;

/// Builds the response to a rejected request.
pub(crate) fn respond_to_rejected(
    why: Rejection,
    number: u64,
    service: &Service,
    info: &ConnectionInfo,
) -> Response<ResponseBody> {
    let failure = Failure::from(why);
    let begun = service.engine().clock().wall().as_secs() << 24;
    let request = RequestId(REJECTED_ID | begun.wrapping_add(number));
    // Fields of an invalid head do not count.
    let no_headers = HeaderMap::new();
    let peer: Peer = service.peer(info, &no_headers);
    let client = &peer.client;
    tracing::debug!(%client, %request, code = failure.code(), "client request rejected: {failure}");
    let request_headers = &no_headers;
    let page = Page { request_headers, request, why: None, expose: false, fallback: None };
    let mut response = respond(&failure, page);
    service.record_rejected(&mut response, request, &peer);
    response
}

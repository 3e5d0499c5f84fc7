//! Client connections.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::client::peer::{ConnectionInfo, Peer};
use crate::direct::{DirectResponses, Handover};
use crate::edge::http1::{ClientService, Http1Connection};
use crate::edge::woken_only::WokenOnly;
use crate::failure::Failure;
use crate::phase::Phase;
use crate::record::RequestId;
use crate::request_guard::{
    ClientTimeouts, Exchange, Exchanges, GuardCounters, Guarded, Rejection,
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
    pub(crate) async fn serve_http1<S>(self, stream: S, received: Bytes, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handover = Handover::default();
        let direct = DirectResponses::new(self.service.clone(), info.clone(), handover.clone());
        let mut guarded =
            Guarded::new(stream, self.timeouts, self.counters.clone()).with_responder(direct);
        guarded.hold(received);
        self.serve_guarded(Box::new(guarded), info, handover).await;
    }

    /// Answers a client connection above the maximum number with 503 and closes it, without reading
    /// its request. The client timeouts bound the duration; the caller bounds how many such
    /// connections exist.
    pub async fn reject<S>(self, stream: S, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let guarded = Guarded::rejecting(stream, self.timeouts, self.counters.clone());
        self.serve_guarded(Box::new(guarded), info, Handover::default()).await;
    }

    async fn serve_guarded<S>(
        self,
        guarded: Box<Guarded<S>>,
        info: ConnectionInfo,
        handover: Handover,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, tunnel) = (info.peer, AcceptedUpgrade::default());
        let exchanges = guarded.exchanges();
        let service = self.answers(&exchanges, info, handover, &tunnel);
        let mut connection = Http1Connection::new(guarded, exchanges, service);
        let mut stop = self.stop;
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| connection.poll(cx)) => ended,
            () = WokenOnly::new(async move { stop_after_arrivals(&mut stop).await }) => {
                connection.stop();
                poll_fn(|cx| connection.poll(cx)).await
            }
        };
        drop(connection);
        match ended {
            Ok(guarded) => {
                if tunnel.join(guarded).await == TunnelEnd::Idle {
                    self.counters.count_idle_tunnel();
                }
            }
            // A client that disconnects is not an error of forebay.
            Err(error) => tracing::debug!(%peer, %error, "client connection ended with an error"),
        }
    }

    /// Returns the service that answers the requests of one connection.
    fn answers(
        &self,
        exchanges: &Exchanges,
        info: ConnectionInfo,
        handover: Handover,
        tunnel: &AcceptedUpgrade,
    ) -> impl ClientService + use<> {
        let (service, counters) = (self.service.clone(), self.counters.clone());
        let (exchanges, tunnel, info) = (exchanges.clone(), tunnel.clone(), Arc::new(info));
        service_fn(move |mut request: Request<Incoming>| {
            let exchange = exchanges.open();
            let rejection = exchanges.rejection().map(|why| (why, counters.next_rejection()));
            let (service, info, handed) = (service.clone(), info.clone(), handover.take());
            // hyper sets it for each request for another protocol.
            let upgrade = request.extensions_mut().remove::<OnUpgrade>();
            let http_1_0 =
                (request.version() < Version::HTTP_11).then(|| asks_keep_alive(&request));
            let asked = upgrade.map(|_| tunnel.clone());
            async move {
                let mut response = match rejection {
                    None => service.handle_during(request, &info, Some(&exchange), handed).await,
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
                    Some(tunnel) => tunnel.note(response, exchange),
                })
            }
        })
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

/// Slot for the tunnel of an accepted protocol upgrade.
#[derive(Clone, Default)]
struct AcceptedUpgrade(Arc<Mutex<Option<PendingTunnel>>>);

/// Tunnel to the origin, with the exchange of the upgrade request. The guard withholds bytes after
/// that request while the exchange is open.
struct PendingTunnel {
    tunnel: Box<Tunnel>,
    exchange: Exchange,
}

impl AcceptedUpgrade {
    fn note(
        &self,
        mut response: Response<ResponseBody>,
        exchange: Exchange,
    ) -> Response<ResponseBody> {
        match response.body_mut().take_tunnel() {
            Some(tunnel) => *self.0.lock() = Some(PendingTunnel { tunnel, exchange }),
            None => return response.map(|body| body.during(exchange)),
        }
        response
    }

    /// Joins the client with the tunnel, if there is one; otherwise closes the connection, if hyper
    /// has not done so.
    async fn join<S>(self, mut guarded: Box<Guarded<S>>) -> TunnelEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let accepted = self.0.lock().take();
        let Some(PendingTunnel { tunnel, exchange }) = accepted else {
            let _ = guarded.shutdown().await;
            return TunnelEnd::Closed;
        };
        guarded.set_tunnel();
        // Boxed, so that not every connection reserves space for a tunnel.
        let joined = Box::pin(tunnel.join(guarded)).await;
        drop(exchange);
        joined
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

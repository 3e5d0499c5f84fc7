//! One client connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper::service::{HttpService, service_fn};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::failure::{Failure, Page, RequestId, respond};
use crate::request_guard::{Exchange, FrontCounters, Guarded, Limits, TurnedAway, http1_builder};
use crate::response_body::ResponseBody;
use crate::service::Service;
use crate::tunnel::{Joined, Tunnel};

/// What all connections of a listener share.
#[derive(Clone)]
pub struct Connections {
    /// What answers.
    pub service: Arc<Service>,
    /// How patient we are with clients.
    pub limits: Limits,
    /// What was refused, and who was too slow.
    pub counters: Arc<FrontCounters>,
    /// Turns true when the connections shall end.
    pub stop: watch::Receiver<bool>,
}

impl Connections {
    /// Serves one connection until the client leaves, is refused, or `stop` turns true and the
    /// request under way is answered. A tunnel that it became goes on after that, until it ends or
    /// this future is dropped.
    pub async fn serve<S>(mut self, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ending = Ending::default();
        {
            // Made where it stays: the future would keep room for every place it was moved from.
            let guarded = Guarded::new(stream, self.limits, self.counters.clone());
            let mut connection = self.http(guarded, peer, &ending);
            if let Err(error) = drive(&mut connection, &mut self.stop).await {
                // A client that goes away is none of our errors.
                tracing::debug!(%peer, %error, "client connection ended with an error");
            }
        }
        if ending.finish::<S>().await == Joined::Idle {
            self.counters.count_idle_tunnel();
        }
    }

    /// Answers a connection beyond those that there may be with 503 and closes it, whatever it asks
    /// for: nothing of it is read before. It takes no longer than a client may take for a short
    /// answer, and the caller bounds how many there are at once.
    pub async fn turn_away<S>(mut self, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let guarded = Guarded::crowded(stream, self.limits, self.counters.clone());
        let mut connection = self.http(guarded, peer, &Ending::default());
        if let Err(error) = drive(&mut connection, &mut self.stop).await {
            tracing::debug!(%peer, %error, "rejected client connection ended with an error");
        }
    }

    fn http<S>(
        &self,
        guarded: Guarded<S>,
        peer: SocketAddr,
        ending: &Ending,
    ) -> UpgradeableConnection<TokioIo<Guarded<S>>, impl Answers + use<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let exchanges = guarded.exchanges();
        let (service, counters) = (self.service.clone(), self.counters.clone());
        let ending = ending.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            let exchange = exchanges.open();
            let turned_away = exchanges.turned_away().map(|why| (why, counters.next_answer()));
            let service = service.clone();
            let upgrade = request.extensions_mut().remove::<OnUpgrade>();
            let http_1_0 = (request.version() < Version::HTTP_11).then(|| asks_to_stay(&request));
            let asked = upgrade.map(|upgrade| (upgrade, ending.clone()));
            async move {
                let mut response = match turned_away {
                    None => service.handle_during(request, peer.ip(), Some(&exchange)).await,
                    Some(turned_away) => refuse(turned_away, &service, peer.ip()),
                };
                if let Some(stays) = http_1_0 {
                    close_unless(stays, &mut response);
                }
                Ok::<_, Infallible>(match asked {
                    None => response.map(|body| body.during(exchange)),
                    Some((upgrade, ending)) => ending.note(upgrade, response, exchange),
                })
            }
        });
        http1_builder().serve_connection(TokioIo::new(guarded), answer).with_upgrades()
    }
}

/// Returns `true` if a client of HTTP/1.0 asks to keep its connection (RFC 9112 appendix C.2.2).
fn asks_to_stay<B>(request: &Request<B>) -> bool {
    let lines = request.headers().get_all(CONNECTION).into_iter();
    let mut options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"keep-alive"))
}

/// Tells a client of HTTP/1.0 that the connection ends behind the answer, where it does: the answer
/// says HTTP/1.1, in which a connection goes on unless it says otherwise (RFC 9112 section 9.3).
/// There are no chunks for such a client, so that a body of unknown length ends with it.
fn close_unless(stays: bool, response: &mut Response<ResponseBody>) {
    let has_length = response.headers().contains_key(CONTENT_LENGTH);
    if stays && (has_length || response.body().size_hint().exact().is_some()) {
        return;
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    // Otherwise hyper adds that the connection stays.
    *response.version_mut() = Version::HTTP_10;
}

/// What stands above hyper, and is of one type per stream.
trait Answers:
    HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future: Send> + Send + Unpin
{
}

impl<T> Answers for T where
    T: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future: Send>
        + Send
        + Unpin
{
}

/// Drives a connection to its end, or to the end of the request under way once `stop` says so.
async fn drive<S, A>(
    connection: &mut UpgradeableConnection<TokioIo<Guarded<S>>, A>,
    stop: &mut watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Answers,
{
    tokio::select! {
        ended = &mut *connection => ended,
        () = told_to_stop(stop) => {
            Pin::new(&mut *connection).graceful_shutdown();
            connection.await
        }
    }
}

/// What becomes of a connection on which another protocol was asked for: hyper gives it back at its
/// end, whatever the answer was.
#[derive(Clone, Default)]
struct Ending(Arc<Mutex<Option<Asked>>>);

struct Asked {
    upgrade: OnUpgrade,
    agreed: Option<Agreed>,
}

/// The other protocol, and the exchange that has not ended in HTTP: the guard holds back what came
/// behind the request for as long as it is open.
struct Agreed {
    tunnel: Box<Tunnel>,
    exchange: Exchange,
}

impl Ending {
    fn note(
        &self,
        upgrade: OnUpgrade,
        mut response: Response<ResponseBody>,
        exchange: Exchange,
    ) -> Response<ResponseBody> {
        let (agreed, response) = match response.body_mut().take_tunnel() {
            Some(tunnel) => (Some(Agreed { tunnel, exchange }), response),
            None => (None, response.map(|body| body.during(exchange))),
        };
        *self.0.lock() = Some(Asked { upgrade, agreed });
        response
    }

    async fn finish<S>(self) -> Joined
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(Asked { upgrade, agreed }) = self.0.lock().take() else { return Joined::Over };
        // hyper is done with the connection, so it is here by now, or never will be.
        let Ok(upgraded) = upgrade.await else { return Joined::Over };
        let Ok(parts) = upgraded.downcast::<TokioIo<Guarded<S>>>() else { return Joined::Over };
        let mut guarded = parts.io.into_inner();
        match agreed {
            // The guard gave hyper nothing that came behind the request.
            Some(Agreed { tunnel, exchange }) if parts.read_buf.is_empty() => {
                guarded.set_tunnel();
                // Boxed, or every connection would keep room for a tunnel.
                let joined = Box::pin(tunnel.join(guarded)).await;
                drop(exchange);
                joined
            }
            _ => {
                let _ = guarded.shutdown().await;
                Joined::Over
            }
        }
    }
}

/// Resolves when the flag turns true, or nobody is left who could turn it.
pub async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Marks the ids of requests that never were any: the service counts its own from the time at
/// which it began, which leaves this bit alone.
const REFUSED_ID: u64 = 1 << 63;

/// The answer to what the guard let nobody see.
fn refuse(
    (why, number): (TurnedAway, u64),
    service: &Service,
    peer: IpAddr,
) -> Response<ResponseBody> {
    let failure = Failure::from(why);
    let begun = service.engine().clock().wall().as_secs() << 24;
    let request = RequestId(REFUSED_ID | begun.wrapping_add(number));
    tracing::debug!(%request, code = failure.code(), "{failure}");
    // The client's fields are not to be believed, or have not come.
    let asker = HeaderMap::new();
    let page = Page { asker: &asker, request, why: None, expose: false };
    let response = respond(&failure, page);
    service.metrics().count_refused(response.status());
    service.log_refusal(&response, peer);
    response
}

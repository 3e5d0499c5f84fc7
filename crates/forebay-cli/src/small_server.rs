//! HTTP/1 servers for operators beside the cache: the admin listener and the probe listener.
//!
//! They run on the main thread and are never told to stop: they answer until the process exits.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_semantics::PeerAddress;
use forebay_tls::server::TlsServer;
use futures_util::{Stream, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::listener::{AcceptedStream, ListeningSocket};

/// Pause after a failed accept; without it, a lack of file descriptors would make the loop spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Response of a small server.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Bounds of a small server.
#[derive(Clone, Copy)]
pub(crate) struct ServerLimits {
    /// Maximum number of open connections. Above it, connections are closed at once.
    pub(crate) connections_max: usize,
    /// Maximum time from the end of a request to the complete head of the next one.
    pub(crate) head_timeout: Duration,
}

/// Response with a content type, which is never stored.
pub(crate) fn text(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_kind(kind, Full::new(body.into()).boxed_unsync())
}

/// Response whose body is sent piece by piece as `pieces` yields them, which is never stored. A client
/// that does not read makes `pieces` wait; a client that disconnects drops it.
pub(crate) fn stream(
    kind: &'static str,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Answer {
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    with_kind(kind, StreamBody::new(frames).boxed_unsync())
}

fn with_kind(kind: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Answers the requests of a listening socket with `answer`. Requests have the [`PeerAddress`] of the
/// client as an extension.
pub(crate) async fn run<H, F>(
    socket: ListeningSocket,
    tls: Option<TlsServer>,
    limits: ServerLimits,
    answer: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    loop {
        let Ok((stream, peer)) = socket.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let (answer, tls) = (answer.clone(), tls.clone());
        let answer = move |mut request: Request<Incoming>| {
            request.extensions_mut().insert::<PeerAddress>(peer);
            answer(request)
        };
        tokio::spawn(async move {
            // A socket that cannot be registered is closed, as above the limit.
            match stream {
                AcceptedStream::Tcp(stream) => {
                    if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
                        accept(stream, tls, limits, answer).await;
                    }
                }
                AcceptedStream::Unix(stream) => {
                    if let Ok(stream) = tokio::net::UnixStream::from_std(stream) {
                        accept(stream, tls, limits, answer).await;
                    }
                }
            }
            drop(permit);
        });
    }
}

/// Serves a connection, after its handshake if there is TLS.
async fn accept<S, H, F>(stream: S, tls: Option<TlsServer>, limits: ServerLimits, answer: H)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let Some(tls) = tls else { return serve(stream, limits, answer).await };
    match tls.accept(stream).await {
        Ok(shaken) => serve(shaken.stream, limits, answer).await,
        Err(error) => tracing::debug!(%error, "TLS handshake of the admin listener failed"),
    }
}

async fn serve<S, H, F>(stream: S, limits: ServerLimits, answer: H)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let answer = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!(%error, "connection to the admin or probe listener ended with an error");
    }
}

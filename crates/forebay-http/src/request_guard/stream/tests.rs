//! Tests of the guarded stream below a real hyper server, with a client that sends raw bytes.

mod client_timeouts;
mod direct;
mod interims;
mod refused;
mod tunnels;

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::failure::Failure;
use crate::request_guard::http1_builder;
use crate::request_guard::samples::PLAIN;

/// Service below test: records the requests, and responds as configured.
#[derive(Default)]
struct Origin {
    paths: Mutex<Vec<String>>,
    polls: AtomicUsize,
    delay: Option<Duration>,
    body: Bytes,
    ignores_body: bool,
}

impl Origin {
    fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.paths.lock().unwrap().push(request.uri().path().to_owned());
        if let Some(delay) = self.delay {
            sleep(delay).await;
        }
        let status = if self.ignores_body {
            413
        } else {
            match request.into_body().collect().await {
                Ok(_) => 200,
                Err(error) if FramingError::in_chain(&error).is_some() => {
                    let why = FramingError::in_chain(&error).unwrap();
                    Failure::Refused(why).status().as_u16()
                }
                Err(error) if ExpiredTimeout::in_chain(&error).is_some() => 408,
                Err(_) => 500,
            }
        };
        let body = if status == 200 { self.body.clone() } else { Bytes::new() };
        Response::builder().status(status).header(OURS, "1").body(Full::new(body)).unwrap()
    }
}

struct Server {
    origin: Arc<Origin>,
    counters: Arc<GuardCounters>,
    task: JoinHandle<hyper::Result<()>>,
}

fn serve<S>(io: S, origin: Origin) -> Server
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
    serve_guarded(guarded, origin)
}

fn serve_guarded<S>(guarded: Guarded<S>, origin: Origin) -> Server
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (origin, counters) = (Arc::new(origin), Arc::clone(&guarded.counters));
    let exchanges = guarded.exchanges();
    let service = {
        let origin = Arc::clone(&origin);
        service_fn(move |request| {
            let (origin, exchange) = (Arc::clone(&origin), exchanges.open());
            let rejection = exchanges.rejection();
            async move {
                let response = match rejection {
                    None => origin.answer(request).await,
                    Some(why) => {
                        let status = Failure::from(why).status();
                        let answer = Response::builder().status(status).header(OURS, "1");
                        answer.body(Full::default()).unwrap()
                    }
                };
                drop(exchange);
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut connection = Box::pin(http1_builder().serve_connection(TokioIo::new(guarded), service));
    let task = {
        let origin = Arc::clone(&origin);
        tokio::spawn(std::future::poll_fn(move |cx| {
            origin.polls.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut connection).poll(cx)
        }))
    };
    Server { origin, counters, task }
}

/// Sends all bytes, keeps the write side open, and reads until the server closes.
async fn exchange(client: DuplexStream, bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let mut received = Vec::new();
    // The server may close before it has read everything; that is not an error of the client.
    let (_, read) = tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut received));
    read.unwrap();
    received
}

/// Field of every response of the service; shows that hyper adds no response of its own.
const OURS: &str = "x-ours";

fn statuses(received: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(received);
    let answers = text.match_indices("HTTP/1.");
    assert_eq!(answers.clone().count(), text.matches(OURS).count(), "{text}");
    answers.map(|(at, _)| text[at + 9..at + 12].parse().unwrap()).collect()
}

/// Longer than every timeout: a connection that is open after this time was not closed.
const LONG: Duration = Duration::from_secs(3600);

/// Capacity of a duplex pipe that passes everything in one read, in bytes.
const WHOLE: usize = 1 << 20;

/// Polls a future once.
async fn polled<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

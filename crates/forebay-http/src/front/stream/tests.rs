//! A real hyper server above the guarded stream, and a client that sends raw bytes.

mod interims;
mod patience;
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

use super::super::http1_builder;
use super::super::samples::PLAIN;
use super::*;
use crate::failure::Failure;

/// What the service saw, and how it is to behave.
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
                Err(error) if Refusal::in_chain(&error).is_some() => {
                    let why = Refusal::in_chain(&error).unwrap();
                    Failure::Refused(why).status().as_u16()
                }
                Err(error) if Lapse::in_chain(&error).is_some() => 408,
                Err(_) => 500,
            }
        };
        let body = if status == 200 { self.body.clone() } else { Bytes::new() };
        Response::builder().status(status).header(OURS, "1").body(Full::new(body)).unwrap()
    }
}

struct Server {
    origin: Arc<Origin>,
    counters: Arc<FrontCounters>,
    task: JoinHandle<hyper::Result<()>>,
}

fn serve<S>(io: S, origin: Origin) -> Server
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (origin, counters) = (Arc::new(origin), Arc::new(FrontCounters::default()));
    let guarded = Guarded::new(io, Limits::default(), Arc::clone(&counters));
    let exchanges = guarded.exchanges();
    let service = {
        let origin = Arc::clone(&origin);
        service_fn(move |request| {
            let (origin, exchange) = (Arc::clone(&origin), exchanges.open());
            let turned_away = exchanges.turned_away();
            async move {
                let response = match turned_away {
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

/// Sends everything, keeps its side open, and reads until the server has closed its own.
async fn exchange(client: DuplexStream, bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(client);
    let mut received = Vec::new();
    // The server may close before it has read everything: that is no failure of the client.
    let (_, read) = tokio::join!(writer.write_all(bytes), reader.read_to_end(&mut received));
    read.unwrap();
    received
}

/// A field of every answer that the service gives: hyper is to give none of its own.
const OURS: &str = "x-ours";

fn statuses(received: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(received);
    let answers = text.match_indices("HTTP/1.");
    assert_eq!(answers.clone().count(), text.matches(OURS).count(), "{text}");
    answers.map(|(at, _)| text[at + 9..at + 12].parse().unwrap()).collect()
}

/// Longer than any limit: a connection that is open at this age was not closed.
const LONG: Duration = Duration::from_secs(3600);

/// How much a duplex pipe holds: everything in one read, or one byte.
const WHOLE: usize = 1 << 20;

/// What comes of it without waiting.
async fn polled<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

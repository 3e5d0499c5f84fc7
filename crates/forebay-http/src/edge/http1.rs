//! HTTP/1 connection: the guard alone, and hyper around it while it has requests for hyper.
//!
//! hyper's connection has buffers of 16 KiB. An idle connection, and one whose requests are all
//! direct hits, has none.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1::{Connection, Parts};
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};

use super::woken_only::WokenOnly;
use crate::request_guard::{Exchanges, Guarded, http1_builder};
use crate::response::body::ResponseBody;

/// Bounds of the HTTP service that hyper calls, under one name.
pub(super) trait ClientService:
    HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future: Send> + Send + Unpin
{
}

impl<T> ClientService for T where
    T: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future: Send>
        + Send
        + Unpin
{
}

/// hyper's connection around the guard.
type HyperConnection<S, A> = Pin<Box<Connection<TokioIo<Box<Guarded<S>>>, A>>>;

/// Time without a request for hyper after which its connection is dropped. A new one costs about
/// 2 µs, so that it must not be built for each request of a busy connection.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// HTTP/1 connection of a client.
pub(super) struct Http1Connection<S, A: ClientService> {
    state: State<S, A>,
    exchanges: Exchanges,
    release: ReleaseTimer,
    is_stopping: bool,
}

enum State<S, A: ClientService> {
    /// No request is for hyper.
    Waiting(Box<Guarded<S>>, A),
    /// hyper has a request, or had one within about [`RELEASE_AFTER`].
    Serving(HyperConnection<S, A>),
    Ended,
}

impl<S, A> Http1Connection<S, A>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: ClientService,
{
    pub(super) fn new(guarded: Box<Guarded<S>>, exchanges: Exchanges, service: A) -> Self {
        let release = ReleaseTimer::default();
        Self { state: State::Waiting(guarded, service), exchanges, release, is_stopping: false }
    }

    /// Ends the connection after the current request.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.stop_hyper();
    }

    /// Lets hyper end the connection, unless the direct path waits for a response.
    fn stop_hyper(&mut self) {
        if let State::Serving(connection) = &mut self.state
            && !self.exchanges.is_fetching()
        {
            connection.as_mut().graceful_shutdown();
        }
    }

    /// Answers requests. At the end of the connection, returns the guard: it must be shut down,
    /// unless it becomes a tunnel.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<Box<Guarded<S>>>> {
        loop {
            let was_fetching = self.exchanges.is_fetching();
            let is_ended = match &mut self.state {
                State::Waiting(..) if self.is_stopping && !was_fetching => true,
                State::Waiting(guarded, _) => match guarded.poll_request(cx) {
                    Poll::Ready(is_for_hyper) => !is_for_hyper,
                    Poll::Pending if self.is_stopping && !self.exchanges.is_fetching() => true,
                    Poll::Pending => return Poll::Pending,
                },
                State::Serving(connection) => match connection.as_mut().poll(cx) {
                    Poll::Ready(ended) => {
                        ended?;
                        true
                    }
                    Poll::Pending if self.is_stopping && was_fetching => {
                        if self.exchanges.is_fetching() {
                            return Poll::Pending;
                        }
                        self.stop_hyper();
                        continue;
                    }
                    Poll::Pending if self.exchanges.hyper_is_busy() => return Poll::Pending,
                    Poll::Pending => {
                        ready!(self.release.poll(self.exchanges.closed(), cx));
                        false
                    }
                },
                State::Ended => return Poll::Pending,
            };
            let (guarded, service) = match mem::replace(&mut self.state, State::Ended) {
                State::Waiting(guarded, service) if !is_ended => {
                    let io = TokioIo::new(guarded);
                    let mut builder = http1_builder();
                    // hyper would end a new connection at once if it were told to stop.
                    builder.keep_alive(!self.is_stopping);
                    let connection = builder.serve_connection(io, service);
                    self.state = State::Serving(Box::pin(connection));
                    continue;
                }
                State::Waiting(guarded, service) => (guarded, service),
                State::Serving(connection) => {
                    let Parts { io, read_buf, service, .. } =
                        Pin::into_inner(connection).into_parts();
                    let mut guarded = io.into_inner();
                    if !read_buf.is_empty() {
                        guarded.keep_for_hyper(&read_buf);
                    }
                    (guarded, service)
                }
                State::Ended => return Poll::Pending,
            };
            if is_ended {
                return Poll::Ready(Ok(guarded));
            }
            self.state = State::Waiting(guarded, service);
        }
    }
}

/// Timer of [`RELEASE_AFTER`]. It is not moved at each request: when it fires, it starts again if
/// hyper has answered requests since.
#[derive(Default)]
struct ReleaseTimer {
    timer: Option<WokenOnly<Sleep>>,
    /// Number of requests that hyper had answered when the timer was started.
    answered: u64,
}

impl ReleaseTimer {
    /// Waits until hyper has answered no further request for the whole time. `answered` is the number
    /// of those that it has answered by now.
    fn poll(&mut self, answered: u64, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = match &mut self.timer {
                Some(timer) => timer,
                None => {
                    self.answered = answered;
                    self.timer.insert(WokenOnly::new(sleep(RELEASE_AFTER)))
                }
            };
            ready!(Pin::new(timer).poll(cx));
            self.timer = None;
            if self.answered == answered {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{Method, Request, Response, StatusCode};
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::advance;

    use super::*;
    use crate::record::{ConnectionEnd, Labels, Record};
    use crate::request_guard::{
        ClientTimeouts, DirectAnswer, DirectFetch, DirectOutput, DirectResponder, DirectResponse,
    };

    #[tokio::test(start_paused = true)]
    async fn hyper_is_released_a_second_after_its_last_request_and_built_again() {
        let (mut client, io) = duplex(1 << 10);
        let guarded = Box::new(Guarded::new(io, ClientTimeouts::default(), Arc::default()));
        let exchanges = guarded.exchanges();
        let opened = exchanges.clone();
        let service = service_fn(move |_: Request<Incoming>| {
            let body = ResponseBody::whole(Bytes::from_static(b"x")).during(opened.open());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let mut connection = Http1Connection::new(guarded, exchanges, service);
        let mut is_serving = async || {
            let is_idle = poll_fn(|cx| Poll::Ready(connection.poll(cx).is_pending())).await;
            assert!(is_idle);
            matches!(connection.state, State::Serving(_))
        };
        assert!(!is_serving().await);
        let mut received = [0; 1 << 10];
        for _ in 0..3 {
            for _ in 0..2 {
                client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
                assert!(is_serving().await);
                let length = client.read(&mut received).await.unwrap();
                assert!(received[..length].ends_with(b"\r\n\r\nx"));
                advance(RELEASE_AFTER - Duration::from_millis(10)).await;
                assert!(is_serving().await);
            }
            advance(2 * RELEASE_AFTER).await;
            // The timer starts again if there was a request since its start.
            if is_serving().await {
                advance(2 * RELEASE_AFTER).await;
            }
            assert!(!is_serving().await);
        }
    }

    /// Fetches each response for two seconds.
    struct Fetcher;

    impl DirectResponder for Fetcher {
        fn respond(&self, received: &[u8], _: &mut DirectOutput, _: &Exchanges) -> DirectAnswer {
            let record = Record::new(Labels::REFUSED, &Method::GET, StatusCode::OK, Duration::ZERO);
            let response = DirectResponse { head: b"fetched".to_vec(), body: Bytes::new(), record };
            let response = received.starts_with(b"GET /fetched").then_some(response);
            let response = Box::pin(async {
                sleep(Duration::from_secs(2)).await;
                response
            });
            let head = Bytes::copy_from_slice(received);
            match received.starts_with(b"GET / ") {
                true => DirectAnswer::Declined,
                false => DirectAnswer::Begun(Box::new(DirectFetch { head, response })),
            }
        }

        fn record(&self, _: &mut [Record], _: ConnectionEnd) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopping_connection_ends_after_the_response_that_is_fetched() {
        let cases = [false, true].into_iter().flat_map(|with_hyper| {
            [("/fetched", &b"fetched"[..]), ("/left", b"\r\n\r\nx")].map(|it| (with_hyper, it))
        });
        for (with_hyper, (path, expected)) in cases {
            let (mut client, io) = duplex(1 << 10);
            let guarded = Guarded::new(io, ClientTimeouts::default(), Arc::default());
            let guarded = Box::new(guarded.with_responder(Arc::new(Fetcher)));
            let exchanges = guarded.exchanges();
            let opened = exchanges.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                let body = ResponseBody::whole(Bytes::from_static(b"x")).during(opened.open());
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            let mut connection = Http1Connection::new(guarded, exchanges, service);
            let mut received = [0; 1 << 10];
            if with_hyper {
                client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
                assert!(poll_fn(|cx| Poll::Ready(connection.poll(cx).is_pending())).await);
                assert!(client.read(&mut received).await.unwrap() > 0);
            }
            let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            assert!(poll_fn(|cx| Poll::Ready(connection.poll(cx).is_pending())).await);
            assert_eq!(matches!(connection.state, State::Serving(_)), with_hyper);
            connection.stop();
            assert!(poll_fn(|cx| Poll::Ready(connection.poll(cx).is_pending())).await);
            drop(poll_fn(|cx| connection.poll(cx)).await.unwrap());
            let length = client.read(&mut received).await.unwrap();
            assert!(received[..length].ends_with(expected), "{with_hyper} {path}");
        }
    }
}

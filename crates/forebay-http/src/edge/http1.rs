//! HTTP/1 connection: the guard alone between two exchanges, hyper around it during one.
//!
//! hyper's connection has buffers of 16 KiB. An idle connection, and one whose requests are all
//! direct hits, has none.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use hyper::server::conn::http1::{Connection, Parts};
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

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

/// HTTP/1 connection of a client.
pub(super) struct Http1Connection<S, A: ClientService> {
    state: State<S, A>,
    exchanges: Exchanges,
    is_stopping: bool,
}

enum State<S, A: ClientService> {
    /// No request is for hyper.
    Waiting(Box<Guarded<S>>, A),
    /// hyper has a request that is not answered.
    Serving(HyperConnection<S, A>),
    Ended,
}

impl<S, A> Http1Connection<S, A>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: ClientService,
{
    pub(super) fn new(guarded: Box<Guarded<S>>, exchanges: Exchanges, service: A) -> Self {
        Self { state: State::Waiting(guarded, service), exchanges, is_stopping: false }
    }

    /// Ends the connection after the current request.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        if let State::Serving(connection) = &mut self.state {
            connection.as_mut().graceful_shutdown();
        }
    }

    /// Answers requests. At the end of the connection, returns the guard: it must be shut down,
    /// unless it becomes a tunnel.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<Box<Guarded<S>>>> {
        loop {
            let is_ended = match &mut self.state {
                State::Waiting(..) if self.is_stopping => true,
                State::Waiting(guarded, _) => !ready!(guarded.poll_request(cx)),
                State::Serving(connection) => match connection.as_mut().poll(cx) {
                    Poll::Ready(ended) => {
                        ended?;
                        true
                    }
                    Poll::Pending if self.exchanges.hyper_is_busy() => return Poll::Pending,
                    Poll::Pending => false,
                },
                State::Ended => return Poll::Pending,
            };
            let (guarded, service) = match mem::replace(&mut self.state, State::Ended) {
                State::Waiting(guarded, service) if !is_ended => {
                    let io = TokioIo::new(guarded);
                    let connection = http1_builder().serve_connection(io, service);
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

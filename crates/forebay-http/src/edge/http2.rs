//! One HTTP/2 connection.
//!
//! | rejected | rule | the client receives |
//! |---|---|---|
//! | `Host` that differs from `:authority` | RFC 9113, 8.3.1 | 400 |
//! | more than [`FIELDS_MAX`] fields | RFC 6585, 5 | 431 |
//! | a body above [`BODY_MAX`] | RFC 9110, 15.5.14 | 413 |
//! | a body slower than the [`ClientTimeouts`](crate::request_guard::ClientTimeouts) allow | RFC 9110, 15.5.9 | 408 |
//!
//! h2 checks the framing, the pseudo-header fields, connection-specific fields and the content length
//! against the DATA frames. `frames` bounds control frames and the time of a head, `streams` resets and
//! slow readers, which h2 does not bound.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use forebay_semantics::Scheme;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::frames::FrameGuard;
use super::streams::{OpenRequest, OpenResponse, Streams};
use crate::authority::normalise_authority;
use crate::client::peer::ConnectionInfo;
use crate::edge::connection::{Connections, respond_to_rejected, stop_requested};
use crate::edge::woken_only::WokenOnly;
use crate::request_guard::{
    BODY_MAX, ExpiredTimeout, FIELDS_MAX, FramingError, HEAD_MAX, RATE_MIN, Rejection,
};
use crate::response::body::ResponseBody;

/// Maximum number of concurrent streams: the default of nginx.
const STREAMS_MAX: u32 = 128;

/// Receive window of a stream: bytes of a request body that may be under way.
const STREAM_WINDOW: u32 = 256 << 10;

/// Receive window of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Maximum number of bytes that h2 buffers for a stream.
const SEND_BUFFER: usize = 256 << 10;

/// Maximum length of a piece of a response body that h2 gets at once. h2 keeps it while the window of
/// the client is shut; neither [`SEND_BUFFER`] nor the bounds of memory count it.
const SLICE: usize = 64 << 10;

/// Length of the first piece of a response body that begins at the start of a page. Processors with
/// the Zen architecture copy at a tenth of their speed to an address that is up to 15 bytes above
/// that of the source, modulo the page size; the content of a DATA frame is 14 bytes behind the start
/// of its TLS record. The pieces after this one begin within a page.
const FIRST_SLICE: usize = 2 << 10;

/// Size of a page of memory.
const PAGE: usize = 4 << 10;

/// Interval at which the timeouts of a connection are checked.
const TICK: Duration = Duration::from_secs(5);

/// Runs streams on the task of their connection until they wait for something, which most hits never
/// do. Only then a stream gets a task of its own: to start a task costs as much as the lookup of a hit.
#[derive(Clone, Copy)]
struct InlineFirst;

impl<F> Executor<F> for InlineFirst
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut stream = Box::pin(stream);
        // A wake-up of this waker may be lost: the task polls the stream at once.
        let first = stream.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if first.is_pending() {
            tokio::spawn(stream);
        }
    }
}

/// State that the streams of a connection share.
struct StreamContext {
    connections: Connections,
    info: ConnectionInfo,
    streams: Arc<Streams>,
}

impl Connections {
    /// Serves an HTTP/2 connection. `received` are bytes that were read already.
    pub(super) async fn serve_http2<S>(self, stream: S, received: BytesMut, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = info.peer;
        let streams = Streams::new(self.service.metrics().h2_streams());
        let guard = FrameGuard::new(stream, received, streams.clone(), self.counters.clone());
        let head = guard.head();
        let (connections, opening) = (self.clone(), streams.clone());
        let context = Arc::new(StreamContext { connections, info, streams: opening });
        let answer = service_fn(move |request: Request<Incoming>| {
            let (open, context) = (context.streams.open(), context.clone());
            async move { Ok::<_, Infallible>(context.answer(request, open).await) }
        });
        let mut builder = http2::Builder::new(InlineFirst);
        builder
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(guard), answer));
        let mut stop = self.stop.clone();
        let mut stop = pin!(WokenOnly::new(async move { stop_requested(&mut stop).await }));
        let mut is_stopping = false;
        loop {
            let ended = tokio::select! {
                biased;
                ended = &mut connection => Some(ended),
                () = &mut stop, if !is_stopping => None,
                () = WokenOnly::new(sleep(TICK)) => {
                    match self.expired(&streams, head.elapsed()) {
                        None => continue,
                        Some(timeout) => self.counters.count_timeout(timeout),
                    }
                    // Idle or stuck: there is no response to wait for.
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(self.timeouts.linger_timeout, &mut connection).await;
                    return;
                }
            };
            match ended {
                Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::debug!(%peer, %error, "client connection ended with an error");
                    return;
                }
                None => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Returns the timeout that has expired, so that the connection must end. `head` is the time since
    /// the start of a request head that is not complete.
    fn expired(&self, streams: &Streams, head: Option<Duration>) -> Option<ExpiredTimeout> {
        let (now, timeouts) = (Instant::now(), &self.timeouts);
        if head.is_some_and(|taken| taken >= timeouts.head_timeout) {
            return Some(ExpiredTimeout::Head);
        }
        if streams.has_slow_reader(now, timeouts.write_window) {
            return Some(ExpiredTimeout::Write);
        }
        match streams.idle(now)? {
            (idle, true) if idle >= timeouts.idle_timeout => Some(ExpiredTimeout::Idle),
            (idle, false) if idle >= timeouts.first_byte_timeout => Some(ExpiredTimeout::FirstByte),
            _ => None,
        }
    }
}

impl StreamContext {
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        open: OpenRequest,
    ) -> Response<SlicedBody> {
        let Connections { service, timeouts, counters, stop: _ } = &self.connections;
        let response = match check(&mut request) {
            Ok(()) => {
                let request = request.map(|body| TimedBody::new(body, timeouts.body_window));
                service.handle_during(request, &self.info, None, None).await
            }
            Err(why) => {
                counters.count_framing_error(why);
                let number = counters.next_rejection();
                respond_to_rejected(Rejection::Framing(why), number, service, &self.info)
            }
        };
        let open = open.answered();
        response.map(|body| SlicedBody { body, piece: Bytes::new(), handed: 0, open })
    }
}

/// Checks the rules that h2 does not know, and joins the pieces of the cookie field.
fn check(request: &mut Request<Incoming>) -> Result<(), FramingError> {
    if request.headers().len() > FIELDS_MAX {
        return Err(FramingError::TooManyFields);
    }
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.is_some_and(|length| length.parse::<u64>().is_ok_and(|length| length > BODY_MAX)) {
        return Err(FramingError::BodyTooLarge);
    }
    check_host(request)?;
    join_cookies(request.headers_mut());
    Ok(())
}

/// RFC 9113 section 8.3.1: `Host` must not differ from `:authority`.
fn check_host(request: &Request<Incoming>) -> Result<(), FramingError> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return Err(FramingError::Host);
    }
    let (Some(authority), Some(host)) = (request.uri().authority(), host) else { return Ok(()) };
    let normal = |text| normalise_authority(Scheme::Http, text);
    let host = host.to_str().ok().and_then(normal);
    match host.is_some() && host == normal(authority.as_str()) {
        true => Ok(()),
        false => Err(FramingError::Host),
    }
}

/// RFC 9113 section 8.2.3: the pieces are joined before they are used outside of HTTP/2.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Parts of valid values, joined by valid bytes.
    if let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Request body that fails if the client sends it too slowly, or if it is too large.
struct TimedBody {
    body: Incoming,
    received: u64,
    window: Duration,
    behind: Duration,
    waiting_since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    const fn new(body: Incoming, window: Duration) -> Self {
        let behind = Duration::ZERO;
        Self { body, received: 0, window, behind, waiting_since: None, sleep: None }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<ExpiredTimeout> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let due = since + self.window.saturating_sub(self.behind);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(cx).map(|()| ExpiredTimeout::Body)
    }

    fn has_received(&mut self, bytes: usize) {
        let waited = self.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        let allowed = Duration::from_secs(1) * length / RATE_MIN;
        // A service that is slow to read must not use up the client's time.
        self.behind = (self.behind + waited.min(self.window / 2)).saturating_sub(allowed);
        self.received += bytes as u64;
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.has_received(frame.data_ref().map_or(0, Bytes::len));
                if this.received > BODY_MAX {
                    let error =
                        io::Error::new(io::ErrorKind::InvalidData, FramingError::BodyTooLarge);
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let timeout = ready!(this.poll_timeout(cx));
                let error = io::Error::new(io::ErrorKind::TimedOut, timeout);
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Response body in pieces of at most [`SLICE`].
pub(super) struct SlicedBody {
    body: ResponseBody,
    /// Rest of the last frame of the body.
    piece: Bytes,
    /// Length of the piece that h2 got last.
    handed: usize,
    open: OpenResponse,
}

impl SlicedBody {
    fn hand(&mut self, now: Instant) -> Frame<Bytes> {
        let is_aligned = self.piece.as_ptr().addr().is_multiple_of(PAGE);
        let longest = if is_aligned && self.piece.len() > PAGE { FIRST_SLICE } else { SLICE };
        let piece = self.piece.split_to(self.piece.len().min(longest));
        self.handed = piece.len();
        self.open.waits(now);
        Frame::data(piece)
    }
}

impl Drop for SlicedBody {
    fn drop(&mut self) {
        if !self.piece.is_empty() {
            self.body.cut(self.piece.len());
        }
    }
}

impl Body for SlicedBody {
    type Data = Bytes;
    type Error = <ResponseBody as Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let now = Instant::now();
        this.open.is_asked(std::mem::take(&mut this.handed), now);
        if !this.piece.is_empty() {
            return Poll::Ready(Some(Ok(this.hand(now))));
        }
        let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            ended => return Poll::Ready(ended),
        };
        match frame.into_data() {
            Ok(data) => {
                this.piece = data;
                Poll::Ready(Some(Ok(this.hand(now))))
            }
            Err(trailers) => Poll::Ready(Some(Ok(trailers))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.piece.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

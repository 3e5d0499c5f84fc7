//! One HTTP/2 connection, and the requests on it.

use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_semantics::Scheme;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pool::Http2List;
use super::request::{Copied, Failure, to_http1, to_http2};
use crate::origin::accept::{HeadLimits, InterimRelay};
use crate::origin::connection::{OpenConnection, SendError};
use crate::origin::progress::TrackedBody;
use crate::origin::stream::OriginStream;

/// Maximum number of concurrent requests on one connection. Fewer, if the origin says so.
pub(super) const STREAMS_MAX: usize = 100;

/// Receive window of one response, in bytes: memory for the part of it that its reader has not read.
const STREAM_WINDOW: u32 = 256 << 10;

/// Receive window of a connection: that of all its responses, so that one that is not read delays
/// no other.
const CONNECTION_WINDOW: u32 = 100 * STREAM_WINDOW;

/// Maximum number of bytes of request bodies that one connection holds per stream.
const SEND_BUFFER: usize = 64 << 10;

/// Time without a byte from the origin, while requests wait, after which it is asked for a sign of
/// life (PING), and time for its answer. Otherwise a connection whose peer has vanished would take
/// every request until its timeout.
const PING_AFTER: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which a connection without requests is compared with its idle timeout.
const IDLE_CHECK: Duration = Duration::from_secs(1);

type Driver = Connection<TokioIo<OriginStream>, TrackedBody, TokioExecutor>;

/// Connection that many requests share.
pub(in crate::origin) struct SharedConnection {
    /// `None` after its end, and when it gets no further requests.
    sender: Mutex<Option<SendRequest<TrackedBody>>>,
    scheme: Scheme,
    generation: u32,
    /// Time of the end of the last response.
    last_used: Mutex<Instant>,
    /// Set if the connection has delivered a response.
    is_used: AtomicBool,
    /// Number of requests whose responses have not ended.
    streams: AtomicUsize,
    /// Maximum of `streams`.
    streams_max: AtomicUsize,
    peer: Option<SocketAddr>,
    _open: OpenConnection,
}

impl SharedConnection {
    /// Starts HTTP/2 on a stream. The returned driver has to be [run](Self::run).
    pub(in crate::origin) async fn begin(
        stream: OriginStream,
        scheme: Scheme,
        limits: HeadLimits,
        generation: u32,
        open: OpenConnection,
    ) -> Result<(Arc<Self>, Http2Driver), hyper::Error> {
        let peer = stream.peer();
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_max_send_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(u32::try_from(limits.head_max()).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT);
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        let connection = Arc::new(Self {
            sender: Mutex::new(Some(sender)),
            scheme,
            generation,
            last_used: Mutex::new(Instant::now()),
            is_used: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            streams_max: AtomicUsize::new(STREAMS_MAX),
            peer,
            _open: open,
        });
        Ok((connection, Http2Driver(driver)))
    }

    /// Returns `true` if the connection takes further requests.
    pub(super) fn is_open(&self) -> bool {
        self.sender.lock().as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Returns `true` if one more request may be sent now.
    pub(super) fn has_room(&self) -> bool {
        if !self.is_open() {
            return false;
        }
        self.streams.load(Ordering::Relaxed) < self.streams_max.load(Ordering::Relaxed)
    }

    /// Returns the generation of the addresses that the connection was opened with.
    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the time without a request; zero while there is one.
    pub(super) fn idle(&self) -> Duration {
        match self.streams.load(Ordering::Relaxed) {
            0 => self.last_used.lock().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Ends the use of the connection. It closes after its last response.
    pub(super) fn retire(&self) {
        drop(self.sender.lock().take());
    }

    fn sender(&self) -> Option<SendRequest<TrackedBody>> {
        self.sender.lock().clone()
    }
}

impl fmt::Debug for SharedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = self.streams.load(Ordering::Relaxed);
        f.debug_struct("SharedConnection")
            .field("peer", &self.peer)
            .field("streams", &streams)
            .finish_non_exhaustive()
    }
}

/// Driver of a connection.
pub(in crate::origin) struct Http2Driver(Driver);

impl Http2Driver {
    /// Drives the connection until it ends, and retires it after `keep_alive` without a request.
    pub(in crate::origin) fn run(
        self,
        connection: &Arc<SharedConnection>,
        list: Option<&Arc<Http2List>>,
        keep_alive: Duration,
    ) {
        let connection = Arc::downgrade(connection);
        let list = list.map_or_else(Weak::new, Arc::downgrade);
        tokio::spawn(async move {
            let mut driver = pin!(self.0);
            let mut checks = tokio::time::interval(IDLE_CHECK);
            loop {
                tokio::select! {
                    // Failures are reported to the requests that they concern.
                    _ = driver.as_mut() => break,
                    _ = checks.tick() => {
                        let Some(connection) = connection.upgrade() else { continue };
                        // An origin may allow none for a moment; one request waits for it.
                        let most = driver.current_max_send_streams().clamp(1, STREAMS_MAX);
                        connection.streams_max.store(most, Ordering::Relaxed);
                        let idle = connection.idle();
                        if !idle.is_zero() && idle >= keep_alive {
                            connection.retire();
                        }
                    }
                }
            }
            if let Some(connection) = connection.upgrade() {
                connection.retire();
            }
            if let Some(list) = list.upgrade() {
                list.prune();
            }
        });
    }
}

/// One request on a connection, until its response has ended.
pub(in crate::origin) struct StreamLease {
    connection: Arc<SharedConnection>,
    list: Option<Arc<Http2List>>,
}

impl StreamLease {
    /// Counts a request on a connection. `list` is that of the connection, if it has one.
    pub(in crate::origin) fn new(
        connection: Arc<SharedConnection>,
        list: Option<Arc<Http2List>>,
    ) -> Self {
        connection.streams.fetch_add(1, Ordering::Relaxed);
        Self { connection, list }
    }

    /// Returns `true` if the connection has delivered a response.
    pub(in crate::origin) fn is_used(&self) -> bool {
        self.connection.is_used.load(Ordering::Relaxed)
    }

    /// Sends a request, and returns the head of the final response.
    pub(in crate::origin) async fn send(
        &self,
        mut request: Box<Request<TrackedBody>>,
        interims: &InterimRelay,
    ) -> Result<Response<Incoming>, SendError> {
        let Some(mut sender) = self.connection.sender() else {
            return Err(SendError::Retired(request));
        };
        let copied = Copied::of(&request);
        let progress = request.body().progress().clone();
        to_http2(&mut request, self.connection.scheme);
        let error = match sender.try_send_request(*request).await {
            Ok(_) if interims.is_exceeded() => return Err(SendError::Interims),
            Ok(response) => {
                self.connection.is_used.store(true, Ordering::Relaxed);
                return Ok(response);
            }
            Err(mut error) => match error.take_message() {
                Some(mut request) => {
                    self.connection.retire();
                    to_http1(&mut request);
                    return Err(SendError::Retired(Box::new(request)));
                }
                None => error.into_error(),
            },
        };
        if let Some(fault) = progress.fault() {
            return Err(SendError::Client(fault));
        }
        match Failure::of(&error) {
            Failure::Other => Err(SendError::Failed(error)),
            Failure::Refused => Err(SendError::Refused(copied.map(Copied::into_request), error)),
            Failure::GoAway => {
                self.connection.retire();
                Err(match copied {
                    Some(copied) => SendError::Retired(copied.into_request()),
                    None => SendError::GoneAway(error),
                })
            }
        }
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        *self.connection.last_used.lock() = Instant::now();
        self.connection.streams.fetch_sub(1, Ordering::Relaxed);
        if let Some(list) = &self.list {
            list.freed();
        }
    }
}

impl fmt::Debug for StreamLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

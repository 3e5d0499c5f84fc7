//! Byte stream below hyper's HTTP/1 server: hyper never reads bytes that the scanner rejects.
//!
//! This file writes no response, because only hyper knows which responses are pending. Instead it
//! replaces a rejected request on its way to hyper, depending on the invalid part:
//!
//! - a head, its size or its timeout, or a body whose head is in the same read: hyper reads a
//!   substitute request in place of the whole message, and [`Exchanges`] tell the service the
//!   reason. The rejection is then a response like any other, after the pending ones;
//! - a body whose head hyper already has: the read of the body fails, and the service responds.
//!
//! For this, an incomplete head is withheld until it is complete. After a rejection, no more bytes
//! from the client reach hyper.
//!
//! Bytes after a request for another protocol are withheld until that request is answered, because
//! only the response decides whether they are HTTP. If they are, they are checked as usual. If not,
//! [`Guarded::set_tunnel`] releases them, without checks and timeouts.
//!
//! hyper answers an HTTP/1.0 request with version HTTP/1.0; RFC 9110 section 2.5 requires the
//! server's own version, 1.1. So bytes after an HTTP/1.0 request are withheld, too, until its
//! response is written. The next byte that hyper writes then starts a status line, whose version is
//! corrected here.

use std::error::Error;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use forebay_engine::BrokenBody;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::client_timeouts::{ClientTimeouts, ConnectionTimer, ExpiredTimeout};
use super::counters::GuardCounters;
use super::direct::{DirectFetch, DirectResponder, PendingOutput};
use super::exchanges::{EndOnDrop, Exchanges, Rejection};
use super::framing::{FramingError, Phase, ScanError, Scanner};
use crate::record::ConnectionEnd;

mod before_hyper;
mod direct_hits;
mod fetches;
#[cfg(test)]
mod tests;
mod writes;

/// Request that hyper reads in place of a rejected one. Its exchange is marked as rejected, and
/// `Connection: close` makes hyper close after the response.
const SUBSTITUTE_GET: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// Substitute for a rejected HEAD request, whose response must have no body.
const SUBSTITUTE_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// Maximum number of bytes discarded while a connection closes early: a client that sends more is
/// unlikely to read its response.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Size of the buffer for discarded bytes.
const LINGER_PIECE: usize = 4096;

/// Client connection with framing checks and timeouts.
///
/// Requires a tokio runtime with its timer enabled.
#[derive(Debug)]
pub struct Guarded<S> {
    inner: S,
    scanner: Scanner,
    read_state: ReadState,
    timer: ConnectionTimer,
    counters: Arc<GuardCounters>,
    closing: Closing,
    /// Received part of an incomplete head. hyper sees only complete heads, so that the service can
    /// answer an invalid one.
    head: Vec<u8>,
    /// Bytes received before the guard began, during a fetch, or after a request for another protocol:
    /// at most one read, and the head of the request that was fetched.
    held: Bytes,
    /// Checked bytes that hyper has not read yet.
    ready: Bytes,
    /// Unwritten rest of the interim responses that are being written.
    interims: Bytes,
    /// Answers requests in place of hyper, if there is one.
    responder: Option<Arc<dyn DirectResponder>>,
    /// Unwritten rest of its responses.
    output: PendingOutput,
    /// Request whose response the responder is fetching.
    fetch: Option<Box<DirectFetch>>,
    /// Set if `held` begins with a request that the responder has declined after a fetch.
    is_for_hyper: bool,
    /// Set while responses that were written without hyper may not be flushed.
    is_unflushed: bool,
    /// Set while bytes that hyper has written may not be flushed.
    is_writing: bool,
    /// Number of written bytes of a status line whose version is being corrected; `None` if no
    /// correction is pending.
    version: Option<usize>,
    _ending: EndOnDrop,
}

/// Result of further reads from the connection.
#[derive(Clone, Copy, Debug)]
enum ReadState {
    /// Checked bytes from the client.
    Open,
    /// Pending: after the substitute request, the connection waits for its response and closes.
    Rejected,
    /// One error, then the end of the stream.
    Failed(FramingError),
    /// End of the stream in the middle of a message.
    Broken,
    /// Regular end of the stream.
    Over,
}

/// Progress of closing a connection.
#[derive(Clone, Copy, Debug)]
enum Closing {
    Open,
    /// The write side is shut down, and received bytes are discarded.
    Lingers {
        discarded: usize,
        end: Instant,
    },
    Closed,
}

impl<S> Guarded<S> {
    /// Wraps a connection that has just been accepted.
    pub fn new(inner: S, timeouts: ClientTimeouts, counters: Arc<GuardCounters>) -> Self {
        let exchanges = Exchanges::new(counters.clone());
        Self {
            inner,
            scanner: Scanner::default(),
            read_state: ReadState::Open,
            timer: ConnectionTimer::new(timeouts, exchanges.clone()),
            counters,
            closing: Closing::Open,
            head: Vec::new(),
            held: Bytes::new(),
            ready: Bytes::new(),
            interims: Bytes::new(),
            responder: None,
            output: PendingOutput::default(),
            fetch: None,
            is_for_hyper: false,
            is_unflushed: false,
            is_writing: false,
            version: None,
            _ending: EndOnDrop(exchanges),
        }
    }

    /// Wraps a connection that is rejected with 503, whatever its request, because the maximum
    /// number of connections is reached.
    pub fn rejecting(inner: S, timeouts: ClientTimeouts, counters: Arc<GuardCounters>) -> Self {
        counters.count_connection_rejected();
        let mut guarded = Self::new(inner, timeouts, counters);
        guarded.reject(0, Rejection::TooManyConnections, SUBSTITUTE_GET);
        guarded
    }

    /// Lets `responder` answer requests in place of hyper.
    pub(crate) fn with_responder(self, responder: Arc<dyn DirectResponder>) -> Self {
        Self { responder: Some(responder), ..self }
    }

    /// Adds bytes that were read from the connection before. They are checked like others.
    pub(crate) fn hold(&mut self, received: Bytes) {
        self.held = received;
    }

    /// Returns the counter of exchanges, which the service updates for each request.
    pub fn exchanges(&self) -> Exchanges {
        self.timer.exchanges.clone()
    }

    /// Disables checks and timeouts, because the connection now carries another protocol.
    pub fn set_tunnel(&mut self) {
        self.scanner.set_tunnel();
    }

    /// Checks the bytes of `buf` from `start` on, and removes those that must be withheld.
    fn check(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        let piece = buf.filled().get(start..).unwrap_or_default();
        match self.scanner.feed(piece) {
            Ok(()) => {
                self.timer.has_read(piece.len(), &self.scanner);
                if self.scanner.take_http_1_0() {
                    self.expect_status_line();
                }
                let withheld = self.scanner.take_withheld();
                if withheld > 0 || !self.head.is_empty() {
                    self.withhold(buf, start, withheld);
                }
            }
            Err(refused) => self.refuse(buf, start, refused),
        }
    }

    /// Prepares the version correction for the response to an HTTP/1.0 request. If no other
    /// response is in progress, the next write starts that response. Otherwise the HTTP/1.0 request
    /// arrived in one piece after an HTTP/1.1 request, and its response keeps the version 1.0.
    #[cold]
    fn expect_status_line(&mut self) {
        let before = self.scanner.heads() - 1;
        let is_next = !self.is_writing && self.timer.exchanges.closed() == before;
        self.version = is_next.then_some(0);
    }

    /// Withholds the last `withheld` bytes of the piece, and releases the head that the other bytes
    /// complete.
    fn withhold(&mut self, buf: &mut ReadBuf<'_>, start: usize, withheld: usize) {
        let piece = buf.filled().get(start..).unwrap_or_default();
        let (whole, rest) = piece.split_at(piece.len().saturating_sub(withheld));
        let length = whole.len();
        let begun = if length == 0 { Vec::new() } else { std::mem::take(&mut self.head) };
        if self.scanner.is_switching() {
            self.held = Bytes::copy_from_slice(rest);
        } else {
            self.head.extend_from_slice(rest);
        }
        self.release_bytes(buf, start..start + length, begun);
    }

    /// Leaves the bytes `piece` in `buf` or, if `begun` holds an earlier part of the
    /// head, moves both to `ready`.
    fn release_bytes(&mut self, buf: &mut ReadBuf<'_>, piece: Range<usize>, mut begun: Vec<u8>) {
        if begun.is_empty() {
            buf.set_filled(piece.end);
            return;
        }
        buf.set_filled(piece.end);
        begun.extend_from_slice(&buf.filled()[piece.start..]);
        buf.set_filled(piece.start);
        self.ready = Bytes::from(begun);
    }

    fn refuse(&mut self, buf: &mut ReadBuf<'_>, start: usize, refused: ScanError) {
        let ScanError { at, why, before, start: first } = refused;
        self.counters.count_framing_error(why);
        tracing::debug!(
            reason = why.label(),
            "client request rejected before parsing: it violates a framing rule or a limit"
        );
        let Some(first) = first else {
            buf.set_filled(start + at);
            self.read_state = ReadState::Failed(why);
            return;
        };
        let begun = std::mem::take(&mut self.head);
        let (whole, bad) = buf.filled()[start..].split_at(first);
        let (begun, bad_begun) = if first == 0 { (Vec::new(), begun) } else { (begun, Vec::new()) };
        let substitute = substitute_for(bad_begun.iter().chain(bad));
        let length = whole.len();
        self.release_bytes(buf, start..start + length, begun);
        let good = std::mem::take(&mut self.ready);
        self.reject(before, Rejection::Framing(why), substitute);
        if !good.is_empty() {
            self.ready = Bytes::from([&good[..], substitute].concat());
        }
    }

    fn reject(&mut self, before: u64, why: Rejection, substitute: &'static [u8]) {
        self.timer.exchanges.reject(before, why);
        self.ready = Bytes::from_static(substitute);
        self.read_state = ReadState::Rejected;
    }

    fn read_ready(&mut self, buf: &mut ReadBuf<'_>) {
        let piece = self.ready.split_to(self.ready.len().min(buf.remaining()));
        buf.put_slice(&piece);
    }

    /// Returns `true` once the current request is answered in HTTP and its response is completely
    /// written.
    fn is_answered_in_http(&mut self, cx: &Context<'_>) -> bool {
        let answered = self.timer.exchanges.answered(self.scanner.heads(), cx);
        let answered = answered && !self.is_writing;
        if answered {
            self.scanner.resume_http();
        }
        answered
    }

    fn poll_read_state(&mut self) -> Poll<io::Result<()>> {
        match self.read_state {
            ReadState::Open | ReadState::Rejected => Poll::Pending,
            ReadState::Failed(why) => {
                self.read_state = ReadState::Broken;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)))
            }
            // hyper would end the exchange. The flush of the response wakes the task.
            ReadState::Over if self.is_half_closed() => Poll::Pending,
            ReadState::Broken | ReadState::Over => Poll::Ready(Ok(())),
        }
    }

    /// Returns `true` if the client has closed its sending side, and `held` has bytes from before.
    fn has_held_until_end(&self) -> bool {
        matches!(self.read_state, ReadState::Over)
            && !self.held.is_empty()
            && !self.scanner.is_switching()
    }

    /// Returns `true` if the client sends no more, and still waits for the response to a complete
    /// request. A client that has gone resets the connection, at the latest when bytes are written.
    fn is_half_closed(&self) -> bool {
        matches!(self.read_state, ReadState::Over)
            && self.scanner.phase() == Phase::Idle
            && self.timer.exchanges.hyper_is_busy()
    }

    /// Handles a timeout while reading from the client.
    fn read_timed_out(&mut self, timeout: ExpiredTimeout) -> io::Result<()> {
        self.counters.count_timeout(timeout);
        match timeout {
            // An idle connection ends as if the client had closed it: no message is cut off.
            ExpiredTimeout::FirstByte | ExpiredTimeout::Idle => self.read_state = ReadState::Over,
            ExpiredTimeout::Head => {
                let head = std::mem::take(&mut self.head);
                let substitute = substitute_for(head.iter());
                self.reject(self.scanner.heads(), Rejection::HeadTimeout, substitute);
            }
            ExpiredTimeout::Body | ExpiredTimeout::Write => {
                self.read_state = ReadState::Broken;
                return Err(timed_out(timeout));
            }
        }
        Ok(())
    }

    /// Applies the write timeout to a write or flush.
    fn bound_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            if self.scanner.phase() == Phase::Tunnel {
                return Poll::Pending;
            }
            let timeout = ready!(self.timer.write_waits(cx));
            self.counters.count_timeout(timeout);
            self.timer.exchanges.endings().will_end(ConnectionEnd::TooSlow);
            return Poll::Ready(Err(timed_out(timeout)));
        }
        if let Poll::Ready(Err(error)) = &written {
            // A body in memory is dropped when its reader is too slow.
            let is_slow = error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<BrokenBody>);
            let end = if is_slow { ConnectionEnd::TooSlow } else { ConnectionEnd::ClientGone };
            self.timer.exchanges.endings().will_end(end);
        }
        self.timer.has_written(taken(&written));
        written
    }

    /// Returns `true` if the client may still be sending bytes that will not be read.
    fn has_unread(&self) -> bool {
        match self.read_state {
            ReadState::Open => {
                let is_within = matches!(self.scanner.phase(), Phase::Head | Phase::Body);
                is_within || !self.held.is_empty() || !self.ready.is_empty()
            }
            ReadState::Rejected | ReadState::Failed(_) | ReadState::Broken => true,
            ReadState::Over => false,
        }
    }
}

fn substitute_for<'a>(head: impl Iterator<Item = &'a u8>) -> &'static [u8] {
    let line = head.skip_while(|byte| b"\r\n".contains(byte));
    if line.take(b"HEAD ".len()).eq(b"HEAD ") { SUBSTITUTE_HEAD } else { SUBSTITUTE_GET }
}

fn taken(written: &Poll<io::Result<usize>>) -> usize {
    if let Poll::Ready(Ok(length)) = written { *length } else { 0 }
}

fn timed_out(timeout: ExpiredTimeout) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, timeout)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buf.filled().len();
        // A read of zero bytes would signal the end of the stream, so the read stays pending while
        // only an incomplete head arrives.
        loop {
            if !this.output.is_empty() {
                ready!(this.poll_output(cx))?;
            }
            if this.fetch.is_some() {
                ready!(this.poll_fetch(cx, buf))?;
                continue;
            }
            if !this.ready.is_empty() {
                this.timer.exchanges.set_hyper_busy(true);
                this.read_ready(buf);
                return Poll::Ready(Ok(()));
            }
            if !matches!(this.read_state, ReadState::Open) && !this.has_held_until_end() {
                return this.poll_read_state();
            }
            if this.scanner.is_switching() && !this.is_answered_in_http(cx) {
                return this.poll_after_upgrade_request(cx, buf);
            }
            if this.held.is_empty() {
                ready!(this.poll_more(cx, buf))?;
            } else {
                this.read_held(cx, buf)?;
            }
            if buf.filled().len() > start {
                this.timer.exchanges.set_hyper_busy(true);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Reads the next bytes and checks them, or records the end of the stream.
    fn poll_more(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) if buf.filled().len() == start => {
                self.timer.exchanges.endings().will_end(ConnectionEnd::ClientGone);
                self.read_state = ReadState::Over;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) => Poll::Ready(self.take_in(cx, buf, start)),
            Poll::Ready(Err(error)) => {
                self.timer.exchanges.endings().will_end(ConnectionEnd::ClientGone);
                Poll::Ready(Err(error))
            }
            Poll::Pending => {
                let timeout = ready!(self.timer.read_waits(&self.scanner, cx));
                Poll::Ready(self.read_timed_out(timeout))
            }
        }
    }

    /// Answers or checks received bytes, from `start` on.
    fn take_in(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        start: usize,
    ) -> io::Result<()> {
        let is_direct = self.may_answer_directly();
        self.is_for_hyper = false;
        let unchecked = if is_direct { self.answer_directly(cx, buf, start)? } else { Some(start) };
        if let Some(start) = unchecked {
            self.check(buf, start);
        }
        Ok(())
    }

    /// Releases the withheld bytes like newly received ones.
    fn read_held(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let start = buf.filled().len();
        let held = std::mem::take(&mut self.held);
        let length = held.len().min(buf.remaining());
        buf.put_slice(&held[..length]);
        self.take_in(cx, buf, start)?;
        // The withheld bytes may contain another request for another protocol.
        self.held = held.slice(length - self.held.len()..);
        Ok(())
    }

    /// Reads after a request for another protocol that is not answered yet: one piece, which is
    /// withheld, or the end of the stream. The task is woken in either case.
    fn poll_after_upgrade_request(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            return Poll::Pending;
        }
        let start = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if buf.filled().len() == start {
            return Poll::Ready(Ok(()));
        }
        self.check(buf, start);
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_writing = true;
        if !this.output.is_empty() {
            ready!(this.poll_output(cx))?;
        }
        if !this.interims.is_empty() {
            ready!(this.poll_started_interims(cx))?;
        }
        if this.version.is_some() {
            return this.poll_status_line(cx, &[IoSlice::new(buf)]);
        }
        let written = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.bound_write(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_writing = true;
        if !this.output.is_empty() {
            ready!(this.poll_output(cx))?;
        }
        if !this.interims.is_empty() {
            ready!(this.poll_started_interims(cx))?;
        }
        if this.version.is_some() {
            return this.poll_status_line(cx, bufs);
        }
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.bound_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.output.is_empty() {
            ready!(this.poll_output(cx))?;
        }
        // hyper flushes only after it has written all its bytes.
        if this.timer.exchanges.interims().any() {
            ready!(this.poll_interims(cx))?;
        }
        match Pin::new(&mut this.inner).poll_flush(cx) {
            Poll::Pending => this.bound_write(Poll::Pending, cx).map_ok(|_| ()),
            Poll::Ready(done) => {
                this.timer.has_flushed();
                if done.is_ok() {
                    this.timer.exchanges.endings().has_flushed();
                }
                this.is_unflushed = false;
                if this.timer.exchanges.hyper_is_busy() && this.has_answered_all() {
                    if this.is_half_closed() {
                        cx.waker().wake_by_ref();
                    }
                    this.timer.exchanges.set_hyper_busy(false);
                }
                if std::mem::take(&mut this.is_writing) && this.scanner.is_switching() {
                    // Wakes the reader, which waits for the flush.
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(done)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.closing, Closing::Open) {
            if !this.output.is_empty() {
                ready!(this.poll_output(cx))?;
            }
            let shut = Pin::new(&mut this.inner).poll_shutdown(cx).map_ok(|()| 0);
            ready!(this.bound_write(shut, cx))?;
            this.closing = if this.has_unread() {
                Closing::Lingers { discarded: 0, end: this.timer.linger_end() }
            } else {
                Closing::Closed
            };
        }
        this.poll_linger(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
    /// Discards bytes from the client, up to [`LINGER_BYTES_MAX`] and the linger timeout. Errors
    /// end the discarding regularly.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut buffer = [0; LINGER_PIECE];
        while let Closing::Lingers { discarded, end } = self.closing {
            let mut piece = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.inner).poll_read(cx, &mut piece) {
                Poll::Pending => ready!(self.timer.linger_waits(end, cx)),
                Poll::Ready(read) => {
                    let discarded = discarded + piece.filled().len();
                    let more = read.is_ok() && !piece.filled().is_empty();
                    if more && discarded < LINGER_BYTES_MAX {
                        self.closing = Closing::Lingers { discarded, end };
                        continue;
                    }
                }
            }
            self.closing = Closing::Closed;
        }
        Poll::Ready(())
    }
}

//! The byte stream below hyper's HTTP/1 server: what the scanner refuses, hyper never sees.
//!
//! Nothing is answered here, because only hyper knows which answers are still owed. Instead a
//! request that may not be answered is replaced on its way up, by what is at fault:
//!
//! - a head, its size or its slowness, or a body whose head is still in the same read: in place of
//!   the whole message hyper reads a stand-in, and [`Exchanges`] tell the service why that one is
//!   turned away. So the refusal is an answer like every other, behind those that are still owed;
//! - a body whose head hyper already has: the read of the body fails, and the service answers.
//!
//! For that, the part of a head that has come is held back until the rest has. In each case nothing
//! of the peer is read into hyper afterwards.
//!
//! What a client sends behind a request for another protocol is held back until that request is
//! answered, since only the answer says whether it is HTTP. If it is, it is checked like the rest;
//! if not, [`Guarded::set_tunnel`] lets it out, unchecked and untimed.
//!
//! hyper answers a request of HTTP/1.0 in its version; RFC 9110 section 2.5 wants a server's own,
//! which is 1.1. So what follows such a request is held back, too, until its answer is written:
//! then the next byte that hyper writes begins a status line, whose version is put right here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::client_timeouts::{Lapse, Limits, Patience};
use super::counters::FrontCounters;
use super::exchanges::{Exchanges, TurnedAway};
use super::framing::{Phase, Refusal, Refused, Scanner};

#[cfg(test)]
mod tests;

/// What hyper reads in place of a request that may not be answered. Its exchange is the one that
/// was turned away, so a service takes it for what it is; and hyper closes behind the answer.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// The same in place of a HEAD, for which an answer without a body is expected.
const STAND_IN_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// Most bytes that are discarded while a connection closes early: a peer that sends more is not
/// about to read its answer.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Bytes that are discarded at a time.
const LINGER_PIECE: usize = 4096;

/// A client connection whose bytes are checked and whose peer is given limited time.
///
/// Needs a tokio runtime with its timer enabled once the peer keeps us waiting.
#[derive(Debug)]
pub struct Guarded<S> {
    inner: S,
    scanner: Scanner,
    ending: Ending,
    patience: Patience,
    counters: Arc<FrontCounters>,
    closing: Closing,
    /// The part that has come of a head that is not complete. hyper sees whole heads only, so that
    /// one that turns out bad can be answered by the service.
    head: Vec<u8>,
    /// What came behind a request for another protocol; never more than one read brought.
    held: Bytes,
    /// What was found good and is still to be read.
    ready: Bytes,
    /// What is left of interim responses that are being written.
    interims: Bytes,
    /// Set while bytes that hyper has written may not have left.
    is_writing: bool,
    /// How many bytes are written of a version that is to be put right; nothing if what is written
    /// stays as it is.
    version: Option<usize>,
}

/// How hyper begins an answer to a request of HTTP/1.0.
const HTTP_1_0: &[u8] = b"HTTP/1.0 ";

/// Where in it the minor version is.
const MINOR_AT: usize = 7;

/// What the reader is told from now on.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Whatever the peer sends.
    Open,
    /// Nothing: behind the stand-in, the connection waits for its answer and closes.
    TurnedAway,
    /// One error, then the end.
    Failed(Refusal),
    /// The end, in the middle of what the peer sends.
    Broken,
    /// That the peer has nothing more to say.
    Over,
}

/// How far the connection is with closing.
#[derive(Clone, Copy, Debug)]
enum Closing {
    Open,
    /// Our side is shut; what is under way is discarded.
    Lingers {
        discarded: usize,
        end: Instant,
    },
    Closed,
}

impl<S> Guarded<S> {
    /// Guards a connection that has just been accepted.
    pub fn new(inner: S, limits: Limits, counters: Arc<FrontCounters>) -> Self {
        Self {
            inner,
            scanner: Scanner::default(),
            ending: Ending::Open,
            patience: Patience::new(limits, Exchanges::new(counters.clone())),
            counters,
            closing: Closing::Open,
            head: Vec::new(),
            held: Bytes::new(),
            ready: Bytes::new(),
            interims: Bytes::new(),
            is_writing: false,
            version: None,
        }
    }

    /// Turns away a connection that has just been accepted, whatever it asks for, since there are
    /// as many as there may be.
    pub fn crowded(inner: S, limits: Limits, counters: Arc<FrontCounters>) -> Self {
        counters.count_crowded();
        let mut guarded = Self::new(inner, limits, counters);
        guarded.turn_away((0, TurnedAway::Crowded), STAND_IN);
        guarded
    }

    /// Where the service tells that requests of this connection are being answered.
    pub fn exchanges(&self) -> Exchanges {
        self.patience.exchanges.clone()
    }

    /// Stops checking and timing, because the connection now carries another protocol.
    pub fn set_tunnel(&mut self) {
        self.scanner.set_tunnel();
    }

    /// Looks at what was read beyond `start`, and leaves there what may be seen.
    fn check(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        let piece = buf.filled().get(start..).unwrap_or_default();
        match self.scanner.feed(piece) {
            Ok(()) => {
                self.patience.has_read(piece.len(), &self.scanner);
                if self.scanner.take_old() {
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

    /// A request of HTTP/1.0 came. If nothing else is under way, what is written next is the
    /// beginning of its answer; if something is, it came behind a request of HTTP/1.1 in one piece,
    /// and its answer keeps the version of its request.
    #[cold]
    fn expect_status_line(&mut self) {
        let before = self.scanner.heads() - 1;
        let is_next = !self.is_writing && self.patience.exchanges.closed() == before;
        self.version = is_next.then_some(0);
    }

    /// Keeps back the last bytes of the piece, and gives out the head that the others complete.
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
        self.give_out(buf, (start, length), begun);
    }

    /// Leaves so many bytes in place, or puts them behind what came before them.
    fn give_out(
        &mut self,
        buf: &mut ReadBuf<'_>,
        (start, length): (usize, usize),
        mut begun: Vec<u8>,
    ) {
        if begun.is_empty() {
            buf.set_filled(start + length);
            return;
        }
        begun.extend_from_slice(&buf.filled()[start..start + length]);
        buf.set_filled(start);
        self.ready = Bytes::from(begun);
    }

    fn refuse(&mut self, buf: &mut ReadBuf<'_>, start: usize, refused: Refused) {
        let Refused { at, why, before, start: first } = refused;
        self.counters.count_refusal(why);
        tracing::debug!(reason = why.label(), "invalid message from a client refused");
        let Some(first) = first else {
            buf.set_filled(start + at);
            self.ending = Ending::Failed(why);
            return;
        };
        let begun = std::mem::take(&mut self.head);
        let (whole, bad) = buf.filled()[start..].split_at(first);
        let (begun, bad_begun) = if first == 0 { (Vec::new(), begun) } else { (begun, Vec::new()) };
        let stand_in = stand_in(bad_begun.iter().chain(bad));
        let length = whole.len();
        self.give_out(buf, (start, length), begun);
        let good = std::mem::take(&mut self.ready);
        self.turn_away((before, TurnedAway::Refused(why)), stand_in);
        if !good.is_empty() {
            self.ready = Bytes::from([&good[..], stand_in].concat());
        }
    }

    fn turn_away(&mut self, (before, why): (u64, TurnedAway), stand_in: &'static [u8]) {
        self.patience.exchanges.turn_away(before, why);
        self.ready = Bytes::from_static(stand_in);
        self.ending = Ending::TurnedAway;
    }

    /// Gives out what was held back, checked as if it had just come.
    fn read_held(&mut self, buf: &mut ReadBuf<'_>) {
        let start = buf.filled().len();
        let held = std::mem::take(&mut self.held);
        let length = held.len().min(buf.remaining());
        buf.put_slice(&held[..length]);
        self.check(buf, start);
        // A further request for another protocol may have been among it.
        self.held = held.slice(length - self.held.len()..);
    }

    fn read_ready(&mut self, buf: &mut ReadBuf<'_>) {
        let piece = self.ready.split_to(self.ready.len().min(buf.remaining()));
        buf.put_slice(&piece);
    }

    /// Returns `true` once the request whose answer the reader waits for is answered in HTTP, and
    /// all of the answer is written.
    fn has_stayed(&mut self, cx: &Context<'_>) -> bool {
        let answered = self.patience.exchanges.answered(self.scanner.heads(), cx);
        let answered = answered && !self.is_writing;
        if answered {
            self.scanner.stay();
        }
        answered
    }

    fn read_ending(&mut self) -> Poll<io::Result<()>> {
        match self.ending {
            Ending::Open | Ending::TurnedAway => Poll::Pending,
            Ending::Failed(why) => {
                self.ending = Ending::Broken;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)))
            }
            Ending::Broken | Ending::Over => Poll::Ready(Ok(())),
        }
    }

    /// The peer let a time pass while we read from it.
    fn give_up_reading(&mut self, lapse: Lapse) -> io::Result<()> {
        self.counters.count_lapse(lapse);
        match lapse {
            // An idle connection ends as if the peer had closed it: nothing was cut short.
            Lapse::FirstByte | Lapse::Idle => self.ending = Ending::Over,
            Lapse::Head => {
                let head = std::mem::take(&mut self.head);
                let stand_in = stand_in(head.iter());
                self.turn_away((self.scanner.heads(), TurnedAway::TooSlow), stand_in);
            }
            Lapse::Body | Lapse::Write => {
                self.ending = Ending::Broken;
                return Err(timed_out(lapse));
            }
        }
        Ok(())
    }

    /// Bounds a write (or flush) by the time the peer may take for it.
    fn pace_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            if self.scanner.phase() == Phase::Tunnel {
                return Poll::Pending;
            }
            let lapse = ready!(self.patience.write_waits(cx));
            self.counters.count_lapse(lapse);
            return Poll::Ready(Err(timed_out(lapse)));
        }
        self.patience.has_written(taken(&written));
        written
    }

    /// Whether the peer may still be sending what nobody will read.
    fn has_unread(&self) -> bool {
        match self.ending {
            Ending::Open => {
                let is_within = matches!(self.scanner.phase(), Phase::Head | Phase::Body);
                is_within || !self.held.is_empty() || !self.ready.is_empty()
            }
            Ending::TurnedAway | Ending::Failed(_) | Ending::Broken => true,
            Ending::Over => false,
        }
    }
}

fn stand_in<'a>(head: impl Iterator<Item = &'a u8>) -> &'static [u8] {
    let line = head.skip_while(|byte| b"\r\n".contains(byte));
    if line.take(b"HEAD ".len()).eq(b"HEAD ") { STAND_IN_HEAD } else { STAND_IN }
}

fn taken(written: &Poll<io::Result<usize>>) -> usize {
    if let Poll::Ready(Ok(length)) = written { *length } else { 0 }
}

fn timed_out(lapse: Lapse) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, lapse)
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buf.filled().len();
        // To tell the reader of zero bytes would be to tell it of a regular end; so it is told
        // nothing while all that comes is a part of a head.
        loop {
            if !this.ready.is_empty() {
                this.read_ready(buf);
                return Poll::Ready(Ok(()));
            }
            if !matches!(this.ending, Ending::Open) {
                return this.read_ending();
            }
            if this.scanner.is_switching() && !this.has_stayed(cx) {
                return this.poll_behind(cx, buf);
            }
            if this.held.is_empty() {
                ready!(this.poll_more(cx, buf))?;
            } else {
                this.read_held(buf);
            }
            if buf.filled().len() > start {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
    /// Reads what comes next and checks it, or notes how it ends.
    fn poll_more(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) if buf.filled().len() == start => {
                self.ending = Ending::Over;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) => {
                self.check(buf, start);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let lapse = ready!(self.patience.read_waits(&self.scanner, cx));
                Poll::Ready(self.give_up_reading(lapse))
            }
        }
    }

    /// Reads behind a request for another protocol that is not answered yet: one piece, which
    /// nobody sees before the answer, or the end. Whoever waits for that is woken in either case.
    fn poll_behind(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
        if !this.interims.is_empty() {
            ready!(this.poll_begun_interims(cx))?;
        }
        if this.version.is_some() {
            return this.poll_status_line(cx, &[IoSlice::new(buf)]);
        }
        let written = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.pace_write(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_writing = true;
        if !this.interims.is_empty() {
            ready!(this.poll_begun_interims(cx))?;
        }
        if this.version.is_some() {
            return this.poll_status_line(cx, bufs);
        }
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.pace_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Whoever flushes has written all that it has made.
        if this.patience.exchanges.interims().any() {
            ready!(this.poll_interims(cx))?;
        }
        match Pin::new(&mut this.inner).poll_flush(cx) {
            Poll::Pending => this.pace_write(Poll::Pending, cx).map_ok(|_| ()),
            done => {
                this.patience.has_flushed();
                if std::mem::take(&mut this.is_writing) && this.scanner.is_switching() {
                    // The reader may go on.
                    cx.waker().wake_by_ref();
                }
                done
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.closing, Closing::Open) {
            let shut = Pin::new(&mut this.inner).poll_shutdown(cx).map_ok(|()| 0);
            ready!(this.pace_write(shut, cx))?;
            this.closing = if this.has_unread() {
                Closing::Lingers { discarded: 0, end: this.patience.linger_end() }
            } else {
                Closing::Closed
            };
        }
        this.poll_linger(cx).map(Ok)
    }
}

impl<S: AsyncWrite + Unpin> Guarded<S> {
    /// Writes the beginning of an answer to a request of HTTP/1.0, as one of HTTP/1.1.
    #[cold]
    fn poll_status_line(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let before = self.version.unwrap_or_default();
        let expected = HTTP_1_0.get(before..).unwrap_or_default();
        let mut first = bufs.first().map_or_else(Vec::new, |buf| buf.to_vec());
        let mut bufs: Vec<_> = bufs.to_vec();
        if first.starts_with(expected) && before <= MINOR_AT {
            first[MINOR_AT - before] = b'1';
            bufs[0] = IoSlice::new(&first);
        }
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, &bufs);
        let after = before + taken(&written);
        self.version = (after <= MINOR_AT).then_some(after);
        self.pace_write(written, cx)
    }

    /// Writes the interim responses that wait, until there are none.
    #[cold]
    fn poll_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_begun_interims(cx))?;
            let Some(more) = self.patience.exchanges.interims().take() else {
                return Poll::Ready(Ok(()));
            };
            self.interims = more;
        }
    }

    /// Writes to their end those that have been begun. Of hyper's own bytes only its
    /// `100 Continue` can be in a hurry while there are any.
    #[cold]
    fn poll_begun_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interims.is_empty() {
            let written = Pin::new(&mut self.inner).poll_write(cx, &self.interims);
            match ready!(self.pace_write(written, cx))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.interims.advance(taken),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
    /// Discards what the peer still sends, within bounds; whatever ends this ends it well.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = [0; LINGER_PIECE];
        while let Closing::Lingers { discarded, end } = self.closing {
            let mut piece = ReadBuf::new(&mut room);
            match Pin::new(&mut self.inner).poll_read(cx, &mut piece) {
                Poll::Pending => ready!(self.patience.linger_waits(end, cx)),
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

//! The byte stream below hyper's HTTP/1 server, which makes hyper refuse what the scanner refuses.
//!
//! Nothing is answered here, because only hyper knows which answers are still owed. Instead the
//! bytes are spoiled on their way up, by what is at fault:
//!
//! - a head (or a body whose head is still in the same read): the piece is cut at the offending
//!   byte, and [`SPOILER`] stands in its place. hyper answers 400 and closes;
//! - a head that is too large: it is cut after the last byte allowed; hyper answers 431 and closes;
//! - a body whose head hyper already has: the read of the body fails. No spoiler could do, since
//!   hyper ignores the text of chunk extensions and would take it for a good end.
//!
//! In each case nothing of the peer is read into hyper afterwards.
//!
//! What a client sends behind a request for another protocol is held back until that request is
//! answered, since only the answer says whether it is HTTP. If it is, it is checked like the rest;
//! if not, [`Guarded::set_tunnel`] lets it out, unchecked and untimed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::counters::FrontCounters;
use super::framing::{Phase, Refusal, Refused, Scanner};
use super::patience::{Exchanges, Lapse, Limits, Patience};

#[cfg(test)]
mod tests;

/// What hyper reads in place of a refused head. No head may contain the NUL; the empty line makes
/// hyper look at a head that came in several pieces, which it parses only once it seems complete.
const SPOILER: &[u8] = b"\0\r\n\r\n";

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
    /// What came behind a request for another protocol; never more than one read brought.
    held: Bytes,
}

/// What the reader is told from now on.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Whatever the peer sends.
    Open,
    /// The rest of the spoiler, then the end.
    Spoiled(&'static [u8]),
    /// One error, then the end.
    Failed(Refusal),
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
            patience: Patience::new(limits),
            counters,
            closing: Closing::Open,
            held: Bytes::new(),
        }
    }

    /// Where the service tells that requests of this connection are being answered.
    pub fn exchanges(&self) -> Exchanges {
        self.patience.exchanges.clone()
    }

    /// Stops checking and timing, because the connection now carries another protocol.
    pub fn set_tunnel(&mut self) {
        self.scanner.set_tunnel();
    }

    /// Looks at what was read beyond `start`, and spoils it if need be.
    fn check(&mut self, buf: &mut ReadBuf<'_>, start: usize) -> io::Result<()> {
        let piece = buf.filled().get(start..).unwrap_or_default();
        let Err(refused) = self.scanner.feed(piece) else {
            self.patience.has_read(piece.len(), &self.scanner);
            let end = buf.filled().len() - self.scanner.take_beyond();
            if end < buf.filled().len() {
                self.held = Bytes::copy_from_slice(&buf.filled()[end..]);
                buf.set_filled(end);
            }
            return Ok(());
        };
        self.counters.count_refusal(refused.why);
        tracing::debug!(reason = refused.why.label(), "refused a client's bytes");
        let (keep, ending) = ending_of(refused);
        buf.set_filled(start + keep);
        self.ending = ending;
        // To tell the reader of zero bytes would be to tell it of a regular end.
        if keep == 0 { self.read_ending(buf) } else { self.read_spoiler(buf) }
    }

    /// Gives out what was held back, checked as if it had just come.
    fn read_held(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let start = buf.filled().len();
        let held = std::mem::take(&mut self.held);
        let length = held.len().min(buf.remaining());
        buf.put_slice(&held[..length]);
        let checked = self.check(buf, start);
        // A further request for another protocol may have been among it.
        self.held = held.slice(length - self.held.len()..);
        checked
    }

    /// Whether the request for another protocol has been answered in HTTP.
    fn has_stayed(&mut self, cx: &Context<'_>) -> bool {
        let answered = self.patience.exchanges.answered(self.scanner.heads(), cx);
        if answered {
            self.scanner.stay();
        }
        answered
    }

    fn read_ending(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        if let Ending::Failed(why) = self.ending {
            self.ending = Ending::Over;
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.read_spoiler(buf)
    }

    fn read_spoiler(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        if let Ending::Spoiled(rest) = self.ending {
            let (now, later) = rest.split_at(rest.len().min(buf.remaining()));
            buf.put_slice(now);
            self.ending = Ending::Spoiled(later);
        }
        Ok(())
    }

    /// The peer let a time pass while we read from it.
    fn give_up_reading(&mut self, lapse: Lapse) -> io::Result<()> {
        self.counters.count_lapse(lapse);
        self.ending = Ending::Over;
        // An idle connection ends as if the peer had closed it: nothing was cut short.
        if lapse == Lapse::Idle { Ok(()) } else { Err(timed_out(lapse)) }
    }

    /// Bounds a write (or flush) by the time the peer may take for it.
    fn pace_write<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_pending() {
            if self.scanner.phase() == Phase::Tunnel {
                return Poll::Pending;
            }
            let lapse = ready!(self.patience.write_waits(cx));
            self.counters.count_lapse(lapse);
            return Poll::Ready(Err(timed_out(lapse)));
        }
        self.patience.has_written();
        written
    }

    /// Whether the peer may still be sending what nobody will read.
    fn has_unread(&self) -> bool {
        match self.ending {
            Ending::Open => {
                let is_within = matches!(self.scanner.phase(), Phase::Head | Phase::Body);
                is_within || !self.held.is_empty()
            }
            Ending::Spoiled(_) | Ending::Failed(_) | Ending::Over => {
                self.scanner.phase() == Phase::Over
            }
        }
    }
}

fn ending_of(refused: Refused) -> (usize, Ending) {
    match refused {
        // With this byte hyper holds as much as it may, so it answers and reads no further.
        Refused { at, why: Refusal::HeadTooLarge, .. } => (at + 1, Ending::Over),
        Refused { spoil: Some(at), .. } => (at, Ending::Spoiled(SPOILER)),
        Refused { at, why, spoil: None } => (at, Ending::Failed(why)),
    }
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
        if !matches!(this.ending, Ending::Open) {
            return Poll::Ready(this.read_ending(buf));
        }
        if this.scanner.is_switching() && !this.has_stayed(cx) {
            return this.poll_behind(cx, buf);
        }
        if !this.held.is_empty() {
            return Poll::Ready(this.read_held(buf));
        }
        let start = buf.filled().len();
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => Poll::Ready(this.check(buf, start)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let lapse = ready!(this.patience.read_waits(&this.scanner, cx));
                Poll::Ready(this.give_up_reading(lapse))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
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
        self.check(buf, start)?;
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
        let written = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.pace_write(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.pace_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_flush(cx) {
            Poll::Pending => this.pace_write(Poll::Pending, cx),
            done => {
                this.patience.has_flushed();
                done
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.closing, Closing::Open) {
            let shut = Pin::new(&mut this.inner).poll_shutdown(cx);
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

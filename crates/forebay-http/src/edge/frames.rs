//! Guard below the h2 crate: reads frame headers, and closes connections that only cause work.
//!
//! h2 limits floods of resets, CONTINUATION and empty DATA. It answers every PING and SETTINGS, and
//! accepts any number of PRIORITY, WINDOW_UPDATE and unknown frames. This guard counts them, and
//! bounds the time for the frames of a head.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::sniff::PREFACE;
use super::streams::Streams;
use crate::request_guard::GuardCounters;

/// Maximum number of control frames in [`CONTROL_WINDOW`].
const CONTROL_MAX: u32 = 1_000;

/// Window of [`CONTROL_MAX`].
const CONTROL_WINDOW: Duration = Duration::from_secs(10);

/// Number of WINDOW_UPDATE frames that each sent DATA frame permits: one for the stream, and one for
/// the connection.
const UPDATES_PER_DATA: u64 = 2;

/// Number of WINDOW_UPDATE frames that a client may send without having received DATA.
const UPDATES_MAX: u64 = 1_000;

/// Time between GOAWAY and the end of the connection; without it, the reset caused by unread bytes
/// could overtake GOAWAY.
const CALM_TIME: Duration = Duration::from_secs(1);

/// Maximum time for which a closed connection discards frames of the client. Unread bytes would cause
/// a reset, which discards responses that the client has not read.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Maximum number of bytes discarded in [`LINGER_TIME`].
const LINGER_BYTES_MAX: usize = 16 << 10;

/// Length of a frame header (RFC 9113 section 4.1).
const HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 sections 6.8 and 7), without the last stream.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b];

/// Splits a stream of bytes into frames.
#[derive(Debug, Default)]
struct FrameReader {
    header: [u8; HEADER],
    filled: usize,
    payload: usize,
}

/// Header of a frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameReader {
    /// Takes bytes, and calls `each` for every frame header that they complete.
    fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEADER - self.filled).min(bytes.len());
            if self.payload > 0 || taken == 0 {
                continue;
            }
            self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEADER {
                let [a, b, c, kind, flags, s1, s2, s3, s4] = self.header;
                self.filled = 0;
                self.payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                each(Frame { kind, flags, stream: u32::from_be_bytes([s1 & 0x7f, s2, s3, s4]) });
            }
        }
    }

    /// Returns `true` between two frames.
    const fn is_between(&self) -> bool {
        self.filled == 0 && self.payload == 0
    }

    /// Returns `true` within a frame that is not DATA, whose time the body's clock bounds.
    const fn is_within_other_than_data(&self) -> bool {
        self.filled > 0 || (self.payload > 0 && self.header[3] != DATA)
    }
}

/// Time since which the client sends a head, shared with the driver of the connection.
#[derive(Debug, Default)]
pub(super) struct HeadClock(Mutex<Option<Instant>>);

impl HeadClock {
    /// Returns the time that the client has taken for the head that it sends.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        self.0.lock().map(|since| since.elapsed())
    }
}

/// Client connection below h2.
#[derive(Debug)]
pub(super) struct FrameGuard<S> {
    inner: S,
    /// Bytes that were read before the guard began.
    prefix: Bytes,
    /// Bytes of the preface that have not arrived.
    preface_left: usize,
    received: FrameReader,
    sent: FrameReader,
    last_stream: u32,
    control: u32,
    control_begun: Instant,
    updates: u64,
    data_sent: u64,
    is_in_head: bool,
    is_clock_on: bool,
    head: Arc<HeadClock>,
    streams: Arc<Streams>,
    counters: Arc<GuardCounters>,
    calming: Option<Calming>,
    linger: Option<Linger>,
}

/// End of a connection whose sending side is closed.
#[derive(Debug)]
struct Linger {
    discarded: usize,
    end: Pin<Box<Sleep>>,
}

/// End of a connection by GOAWAY (ENHANCE_YOUR_CALM).
#[derive(Debug)]
struct Calming {
    goaway: Bytes,
    end: Pin<Box<Sleep>>,
}

impl<S> FrameGuard<S> {
    pub(super) fn new(
        inner: S,
        prefix: BytesMut,
        streams: Arc<Streams>,
        counters: Arc<GuardCounters>,
    ) -> Self {
        Self {
            inner,
            prefix: prefix.freeze(),
            preface_left: PREFACE.len(),
            received: FrameReader::default(),
            sent: FrameReader::default(),
            last_stream: 0,
            control: 0,
            control_begun: Instant::now(),
            updates: 0,
            data_sent: 0,
            is_in_head: false,
            is_clock_on: false,
            head: Arc::default(),
            streams,
            counters,
            calming: None,
            linger: None,
        }
    }

    /// Returns the clock of incomplete heads.
    pub(super) fn head(&self) -> Arc<HeadClock> {
        self.head.clone()
    }

    /// Counts the frames of received bytes. Returns `false` if there are too many.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        let skipped = self.preface_left.min(bytes.len());
        self.preface_left -= skipped;
        let (mut control, mut updates) = (0, 0);
        let (mut last, mut is_in_head) = (self.last_stream, self.is_in_head);
        let mut is_another = false;
        self.received.feed(&bytes[skipped..], |frame| {
            // Many CONTINUATION frames are one head.
            is_another |= frame.kind != CONTINUATION;
            match frame.kind {
                HEADERS | CONTINUATION => {
                    last = last.max(frame.stream);
                    is_in_head = frame.flags & END_HEADERS == 0;
                }
                PING | SETTINGS | PRIORITY => control += 1,
                WINDOW_UPDATE => updates += 1,
                kind if kind > CONTINUATION => control += 1,
                _ => {}
            }
        });
        self.last_stream = last;
        self.is_in_head = is_in_head;
        self.set_head_clock(is_another);
        self.updates += updates;
        if control > 0 {
            self.count_control(control);
        }
        self.control <= CONTROL_MAX
            && self.updates <= UPDATES_MAX + UPDATES_PER_DATA * self.data_sent
    }

    fn count_control(&mut self, control: u32) {
        let now = Instant::now();
        if now.saturating_duration_since(self.control_begun) > CONTROL_WINDOW {
            self.control_begun = now;
            self.control = 0;
        }
        self.control += control;
    }

    /// Starts the clock of a head that is not complete; restarts it for another head.
    fn set_head_clock(&mut self, is_another: bool) {
        // A head within one read, which is the usual case, needs no clock.
        let is_open = self.is_in_head || self.received.is_within_other_than_data();
        if is_open && (is_another || !self.is_clock_on) {
            *self.head.0.lock() = Some(Instant::now());
        } else if !is_open && self.is_clock_on {
            *self.head.0.lock() = None;
        }
        self.is_clock_on = is_open;
    }

    fn calm_down(&mut self) {
        let mut goaway = GOAWAY;
        goaway[HEADER..HEADER + 4].copy_from_slice(&self.last_stream.to_be_bytes());
        let end = Box::pin(sleep(CALM_TIME));
        self.calming = Some(Calming { goaway: Bytes::copy_from_slice(&goaway), end });
    }

    fn count_sent(&mut self, bytes: &[u8]) {
        let mut data = 0;
        self.sent.feed(bytes, |frame| data += u64::from(frame.kind == DATA));
        self.data_sent += data;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameGuard<S> {
    /// Writes GOAWAY, if it is due and no frame is being written.
    fn poll_goaway(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(Calming { goaway, .. }) = &mut self.calming else { return Poll::Ready(Ok(())) };
        while !goaway.is_empty() && self.sent.is_between() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, goaway))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            goaway.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Discards bytes until the end of the connection.
    fn poll_calm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = self.poll_goaway(cx)?;
        let _ = Pin::new(&mut self.inner).poll_flush(cx)?;
        let mut scratch = [0; 4_096];
        loop {
            let Some(calming) = &mut self.calming else { return Poll::Ready(Ok(())) };
            ready!(match calming.end.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => {
                    let mut buf = ReadBuf::new(&mut scratch);
                    match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Ok(())) if !buf.filled().is_empty() => continue,
                        Poll::Ready(_) => Poll::Ready(()),
                    }
                }
            });
            return Poll::Ready(Err(io::Error::other(
                "the client sends too many control frames or resets",
            )));
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for FrameGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.calming.is_none() && this.streams.calm.load(Ordering::Relaxed) {
            this.counters.count_h2_resets();
            this.calm_down();
        }
        if this.calming.is_some() {
            return this.poll_calm(cx);
        }
        let start = buf.filled().len();
        if this.prefix.is_empty() {
            ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        } else {
            let piece = this.prefix.split_to(this.prefix.len().min(buf.remaining()));
            buf.put_slice(&piece);
        }
        if !this.admits(buf.filled().get(start..).unwrap_or_default()) {
            this.counters.count_h2_control();
            buf.set_filled(start);
            this.calm_down();
            return this.poll_calm(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FrameGuard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_goaway(cx))?;
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, buf))?;
        this.count_sent(&buf[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_goaway(cx))?;
        let written = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, bufs))?;
        let mut left = written;
        for buf in bufs {
            let taken = left.min(buf.len());
            this.count_sent(&buf[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_goaway(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            if this.calming.is_some() {
                return Poll::Ready(Ok(()));
            }
            this.linger = Some(Linger { discarded: 0, end: Box::pin(sleep(LINGER_TIME)) });
        }
        this.poll_linger(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> FrameGuard<S> {
    /// Discards bytes from the client until it closes the connection, at most [`LINGER_BYTES_MAX`]
    /// bytes and for [`LINGER_TIME`].
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(linger) = &mut self.linger else { return Poll::Ready(()) };
        let mut buffer = [0; 1 << 10];
        while linger.discarded < LINGER_BYTES_MAX {
            let mut piece = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.inner).poll_read(cx, &mut piece) {
                Poll::Pending => return linger.end.as_mut().poll(cx),
                Poll::Ready(read) if read.is_ok() && !piece.filled().is_empty() => {
                    linger.discarded += piece.filled().len();
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    }
}

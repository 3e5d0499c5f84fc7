//! Socket below an HTTP connection to an origin.
//!
//! hyper closes a connection at the first failed write, even if a response arrived before. An
//! origin that responds early and closes with the rest of the body unread resets the connection
//! after its response. RFC 9112 section 9.5 requires that this response is read. So a failed write
//! is withheld here, and reported when the read side has ended.

mod takeover;

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use forebay_tls::client::ClientStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::unconstrained;

pub(super) use self::takeover::Takeover;

/// Maximum number of bytes of one read. hyper doubles its read buffer while reads fill it, up to
/// the bound on a head; one byte less than 64 KiB keeps that buffer at 64 KiB for bodies.
const READ_MAX: u64 = (64 << 10) - 1;

/// Connected socket, with or without TLS.
#[derive(Debug)]
pub(super) enum Transport {
    /// TCP without TLS.
    Tcp(TcpStream),
    /// Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<ClientStream<TcpStream>>),
}

impl Transport {
    /// Returns `true` if TLS has agreed on HTTP/2.
    pub(super) fn has_agreed_on_http2(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }
}

/// Number of bytes that a connection received since the last request was written to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Received(Arc<AtomicUsize>);

impl Received {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connection to an origin on which a failed write does not hide a response.
#[derive(Debug)]
pub(super) struct OriginStream {
    inner: Take<Transport>,
    received: Received,
    /// Set if bytes were read since the last write.
    has_read: bool,
    read_side: ReadSide,
    /// Error of the first failed write while the read side was open.
    write_error: Option<io::Error>,
    /// Exchange that hyper takes over.
    takeover: Option<Box<Takeover>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadSide {
    Open,
    Ended,
}

impl OriginStream {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            inner: transport.take(READ_MAX),
            received: Received::default(),
            has_read: false,
            read_side: ReadSide::Open,
            write_error: None,
            takeover: None,
        }
    }

    /// Lets hyper, which is set up on the stream next, take over an exchange.
    pub(super) fn resume(&mut self, takeover: Takeover) {
        self.takeover = Some(Box::new(takeover));
    }

    /// Returns `true` if a write has failed. The read side may still have a response, or the reason.
    pub(super) const fn has_failed(&self) -> bool {
        self.write_error.is_some()
    }

    /// Returns `true` if the origin has not closed the connection, and no byte is waiting.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        // Without the budget of the task, every read would be pending.
        let read = unconstrained(poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut buf)));
        let is_pending = pin!(read).poll(&mut Context::from_waker(Waker::noop())).is_pending();
        is_pending && self.write_error.is_none()
    }

    /// Reads what has arrived of an exchange that hyper takes over, if there is one.
    #[cold]
    fn poll_takeover(&mut self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(takeover) = &mut self.takeover else { return Poll::Ready(Ok(())) };
        let (is_over, read) = ready!(takeover.poll_read(cx, buf));
        if is_over {
            self.takeover = None;
        }
        Poll::Ready(read)
    }

    pub(super) fn received(&self) -> Received {
        self.received.clone()
    }

    /// Returns the address of the origin; `None` for a Unix socket.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self.inner.get_ref() {
            Transport::Tcp(stream) => stream.peer_addr().ok(),
            Transport::Tls(stream) => stream.get_ref().0.peer_addr().ok(),
            Transport::Unix(_) => None,
        }
    }

    fn begin_write(&mut self) -> Poll<&mut Transport> {
        if self.write_error.is_some() {
            // The socket is closed in both directions; the read side ends after the bytes already
            // received.
            return Poll::Pending;
        }
        if std::mem::take(&mut self.has_read) {
            self.received.0.store(0, Ordering::Relaxed);
        }
        Poll::Ready(self.inner.get_mut())
    }

    fn end_write(
        &mut self,
        written: io::Result<usize>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Err(error) if self.read_side == ReadSide::Open && is_close(&error) => {
                self.write_error = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            written => Poll::Ready(written),
        }
    }

    /// Converts the end of the read side to the earlier write error. `EPIPE` means that the origin
    /// had closed its side regularly, so a body without a length is complete; after a reset it may
    /// be truncated.
    fn end_read(&mut self) -> io::Result<()> {
        self.read_side = ReadSide::Ended;
        match self.write_error.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_close(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.takeover.is_some() {
            return this.poll_takeover(cx, buf);
        }
        this.inner.set_limit(READ_MAX);
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.inner).poll_read(cx, buf));
        let length = buf.filled().len() - before;
        if read.is_err() || length == 0 {
            return Poll::Ready(this.end_read().and(read));
        }
        this.has_read = true;
        this.received.0.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(takeover) = &mut this.takeover {
            return Poll::Ready(Ok(takeover.write(bytes.len())));
        }
        let inner = ready!(this.begin_write());
        let written = ready!(Pin::new(inner).poll_write(cx, bytes));
        this.end_write(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(takeover) = &mut this.takeover {
            let length = slices.iter().map(|slice| slice.len()).sum();
            return Poll::Ready(Ok(takeover.write(length)));
        }
        let inner = ready!(this.begin_write());
        let written = ready!(Pin::new(inner).poll_write_vectored(cx, slices));
        this.end_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.get_ref().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().inner.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().inner.get_mut()).poll_shutdown(cx)
    }
}

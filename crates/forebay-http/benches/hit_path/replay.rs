//! A client without a socket: one request again and again, each after the answer to the last.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How every answer to this client begins.
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// The client's end and the socket in one. The server finds nothing behind a request, answers it,
/// and is woken for the next, as over a network.
pub(crate) struct Replay {
    request: Bytes,
    left: usize,
    turn: Turn,
    /// Whoever has read, and found nothing.
    reader: Option<Waker>,
    answers: Arc<AtomicUsize>,
}

enum Turn {
    /// The next request has come.
    There,
    /// It was read, and is to be answered.
    Answering,
}

impl Replay {
    /// Sends `request` so many times, then closes. What comes back is counted in `answers`.
    pub(crate) fn new(request: Bytes, times: usize, answers: Arc<AtomicUsize>) -> Self {
        Self { request, left: times, turn: Turn::There, reader: None, answers }
    }

    /// The bytes of an answer, which the server writes at once.
    fn take(&mut self, bytes: &[u8]) {
        if bytes.starts_with(STATUS_LINE) {
            self.answers.fetch_add(1, Ordering::Relaxed);
            self.turn = Turn::There;
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
    }
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.turn {
            Turn::There if self.left == 0 => Poll::Ready(Ok(())),
            Turn::There => {
                self.left -= 1;
                self.turn = Turn::Answering;
                buf.put_slice(&self.request);
                Poll::Ready(Ok(()))
            }
            Turn::Answering => {
                self.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Replay {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.take(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        bufs.iter().take(1).for_each(|first| self.take(first));
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

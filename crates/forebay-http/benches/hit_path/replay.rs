//! Client without a socket: sends one request again and again, each time after the last response.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Start of every response to this client.
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// Client and socket in one. The server finds no further bytes after a request, answers it, and is
/// woken for the next one, as over a network.
pub(crate) struct Replay {
    request: Bytes,
    /// Place of a number in the request, which differs in each one.
    number: Option<Range<usize>>,
    left: usize,
    turn: Turn,
    /// Waker of a read that found no bytes.
    reader: Option<Waker>,
    answers: Arc<AtomicUsize>,
}

enum Turn {
    /// The next request has arrived.
    There,
    /// The request was read and awaits its response.
    Answering,
}

impl Replay {
    /// Sends `request` `times` times, then closes. The bytes at `number`, if any, are another number
    /// in each request. Counts the responses in `answers`.
    pub(crate) fn new(
        request: Bytes,
        number: Option<Range<usize>>,
        times: usize,
        answers: Arc<AtomicUsize>,
    ) -> Self {
        Self { request, number, left: times, turn: Turn::There, reader: None, answers }
    }

    /// Writes the next request.
    fn put(&self, buf: &mut ReadBuf<'_>) {
        let Some(place) = &self.number else { return buf.put_slice(&self.request) };
        buf.put_slice(&self.request[..place.start]);
        buf.put_slice(format!("{:0width$}", self.left, width = place.len()).as_bytes());
        buf.put_slice(&self.request[place.end..]);
    }

    /// Accepts the bytes of a response, which the server writes at once.
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
                self.put(buf);
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

//! Exchange that was begun without hyper, and that hyper takes over.

use std::io;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::ReadBuf;

/// State of an exchange that was begun without hyper: the bytes of the response that have arrived, and
/// the end of the read side, if it has ended.
///
/// hyper accepts a response only after it has written the request. So it writes the request a second
/// time, and this copy is dropped.
#[derive(Debug)]
pub(in crate::origin) struct Takeover {
    received: Bytes,
    /// End of the read side after the received bytes, if it was read: without an error, or with one.
    end: Option<io::Result<()>>,
    /// Set once hyper has written the request.
    is_written: bool,
}

impl Takeover {
    pub(in crate::origin) const fn new(received: Bytes, end: Option<io::Result<()>>) -> Self {
        Self { received, end, is_written: false }
    }

    /// Drops bytes of the request.
    pub(super) const fn write(&mut self, length: usize) -> usize {
        self.is_written = true;
        length
    }

    /// Reads what has arrived. Returns `true` with the result if nothing is left.
    pub(super) fn poll_read(
        &mut self,
        cx: &Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<(bool, io::Result<()>)> {
        if !self.is_written {
            // hyper polls the read side before it writes: bytes at that moment would be an error.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.received.is_empty() {
            return Poll::Ready((true, self.end.take().unwrap_or(Ok(()))));
        }
        let length = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received[..length]);
        self.received.advance(length);
        Poll::Ready((self.received.is_empty() && self.end.is_none(), Ok(())))
    }
}

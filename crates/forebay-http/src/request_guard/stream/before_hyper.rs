//! Connection without hyper: the guard answers direct hits, and waits for bytes that hyper must read.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Guarded;

/// Size of the read buffer of a thread in bytes, as the first one of hyper: heads of several requests.
const READ_MAX: usize = 8 << 10;

thread_local! {
    /// Read buffer of the connections without hyper, so that an idle connection has none.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_MAX].into());
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Answers direct hits until bytes arrive that hyper must read, and keeps these for hyper.
    /// Returns `false` if the connection must be closed instead.
    pub(crate) fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buf = ReadBuf::new(buffer);
            match Pin::new(&mut *self).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.keep_for_hyper(buf.filled());
                    Poll::Ready(true)
                }
                // Between two exchanges, an error ends the connection like the client does.
                Poll::Ready(Ok(()) | Err(_)) => Poll::Ready(false),
                Poll::Pending if self.is_unflushed => match Pin::new(self).poll_flush(cx) {
                    Poll::Ready(Err(_)) => Poll::Ready(false),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                },
                Poll::Pending => Poll::Pending,
            }
        })
    }

    /// Keeps checked bytes for the next read of hyper.
    pub(crate) fn keep_for_hyper(&mut self, checked: &[u8]) {
        self.ready = match self.ready.is_empty() {
            true => Bytes::copy_from_slice(checked),
            // The substitute of a rejected request follows the requests before it.
            false => Bytes::from([checked, &self.ready[..]].concat()),
        };
    }
}

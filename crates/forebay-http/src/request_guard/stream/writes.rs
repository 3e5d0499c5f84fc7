//! Writes beside those of hyper: direct responses, interim responses, and the version of a status
//! line.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use tokio::io::AsyncWrite;

use super::{Guarded, taken};

/// Start of hyper's response to an HTTP/1.0 request.
const HTTP_1_0: &[u8] = b"HTTP/1.0 ";

/// Offset of the minor version in [`HTTP_1_0`].
const MINOR_AT: usize = 7;

impl<S: AsyncWrite + Unpin> Guarded<S> {
    /// Writes the rest of the responses that were written without hyper.
    #[cold]
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let written = self.output.poll_write(&mut self.inner, cx);
            match ready!(self.bound_write(written, cx))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.output.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the start of a response to an HTTP/1.0 request with the version HTTP/1.1.
    #[cold]
    pub(super) fn poll_status_line(
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
        self.bound_write(written, cx)
    }

    /// Writes all queued interim responses.
    #[cold]
    pub(super) fn poll_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_started_interims(cx))?;
            let Some(more) = self.timer.exchanges.interims().take() else {
                return Poll::Ready(Ok(()));
            };
            self.interims = more;
        }
    }

    /// Completes the interim responses that are being written. Meanwhile hyper itself writes at
    /// most a `100 Continue`.
    #[cold]
    pub(super) fn poll_started_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interims.is_empty() {
            let written = Pin::new(&mut self.inner).poll_write(cx, &self.interims);
            match ready!(self.bound_write(written, cx))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.interims.advance(taken),
            }
        }
        Poll::Ready(Ok(()))
    }
}

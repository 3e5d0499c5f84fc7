//! Requests whose response the responder fetches, to be written without hyper.
//!
//! During a fetch, the connection reads at most once more, and withholds these bytes. A client that
//! closes its sending side still gets its response; a failed read ends the connection and the fetch.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Guarded, ReadState};
use crate::record::ConnectionEnd;
use crate::request_guard::direct::DirectFetch;

impl<S> Guarded<S> {
    /// Keeps a fetch of the request at `at`, and withholds the bytes behind it.
    pub(super) fn begin_fetch(
        &mut self,
        fetch: Box<DirectFetch>,
        buf: &mut ReadBuf<'_>,
        at: usize,
    ) {
        self.held = Bytes::copy_from_slice(&buf.filled()[at + fetch.head.len()..]);
        buf.set_filled(at);
        self.fetch = Some(fetch);
        self.timer.exchanges.set_fetching(true);
    }

    fn end_fetch(&mut self) -> Option<Box<DirectFetch>> {
        self.timer.exchanges.set_fetching(false);
        self.fetch.take()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Waits for the response that is being fetched, and writes it. If hyper must handle the request
    /// after all, the withheld bytes then begin with it.
    pub(super) fn poll_fetch(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(fetch) = &mut self.fetch else { return Poll::Ready(Ok(())) };
        let Poll::Ready(fetched) = fetch.response.as_mut().poll(cx) else {
            if self.timer.exchanges.interims().any() {
                self.is_unflushed = true;
                ready!(self.poll_interims(cx))?;
            }
            return self.poll_behind_fetch(cx, buf);
        };
        let ended = self.end_fetch();
        match fetched {
            Some(response) => Poll::Ready(self.write_fetched(cx, response)),
            None => {
                let head = ended.map(|fetch| fetch.head).unwrap_or_default();
                self.held = Bytes::from([&head[..], &self.held].concat());
                self.is_for_hyper = true;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Reads what the client sends during a fetch: one piece, which is withheld, or the end of the
    /// stream.
    fn poll_behind_fetch(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.held.is_empty() || !matches!(self.read_state, ReadState::Open) {
            return Poll::Pending;
        }
        let start = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf)).inspect_err(|_| {
            self.timer.exchanges.endings().will_end(ConnectionEnd::ClientGone);
        })?;
        self.held = Bytes::copy_from_slice(&buf.filled()[start..]);
        buf.set_filled(start);
        if self.held.is_empty() {
            self.timer.exchanges.endings().will_end(ConnectionEnd::ClientGone);
            self.read_state = ReadState::Over;
        }
        Poll::Pending
    }
}

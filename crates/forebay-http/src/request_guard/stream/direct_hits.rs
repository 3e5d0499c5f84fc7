//! Requests that are answered without hyper.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, ReadBuf};

use super::{Guarded, taken};
use crate::request_guard::direct::{DirectAnswer, DirectOutput, DirectResponder, DirectResponse};
use crate::request_guard::framing::{HeadEnd, Phase};

thread_local! {
    /// Responses that are being written. A connection keeps only what its client does not read at
    /// once.
    static DIRECT_OUTPUT: RefCell<DirectOutput> = RefCell::default();
}

impl<S: AsyncWrite + Unpin> Guarded<S> {
    /// Returns `true` if a response may be written without hyper: the next byte starts a head, and
    /// hyper has answered all requests that it read.
    pub(super) fn may_answer_directly(&self) -> bool {
        self.responder.is_some()
            && !self.timer.exchanges.hyper_is_busy()
            && self.head.is_empty()
            && self.scanner.phase() == Phase::Idle
            && !self.scanner.is_switching()
            && !self.is_for_hyper
    }

    /// Returns `true` if hyper, which has just flushed, has answered all requests that it read. It
    /// has nothing of them left to write, because it flushes only after it has written all bytes.
    pub(super) fn has_answered_all(&self) -> bool {
        self.ready.is_empty()
            && self.scanner.phase() == Phase::Idle
            && self.timer.exchanges.closed() == self.scanner.heads()
    }

    /// Answers requests at the start of the received bytes, and removes their bytes. Returns the
    /// offset from which bytes must be checked; those before it are checked, and are for hyper.
    /// Returns `None` if all bytes are handled.
    pub(super) fn answer_directly(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        start: usize,
    ) -> io::Result<Option<usize>> {
        let Some(responder) = self.responder.take() else { return Ok(Some(start)) };
        let answered = DIRECT_OUTPUT.with_borrow_mut(|output| {
            output.reset();
            let unchecked = self.answer_heads(&*responder, buf, start, output);
            self.write_directly(cx, &responder, output)?;
            Ok(unchecked)
        });
        self.responder = Some(responder);
        answered
    }

    /// Writes responses, as far as the client reads them.
    fn write_directly(
        &mut self,
        cx: &mut Context<'_>,
        responder: &Arc<dyn DirectResponder>,
        output: &mut DirectOutput,
    ) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let written = output.poll_write(&mut self.inner, cx);
        let written = self.bound_write(written, cx);
        self.is_unflushed = true;
        let exchanges = &self.timer.exchanges;
        self.output = output.take_rest(taken(&written), responder, exchanges);
        match written {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a response that was fetched.
    pub(super) fn write_fetched(
        &mut self,
        cx: &mut Context<'_>,
        response: DirectResponse,
    ) -> io::Result<()> {
        let Some(responder) = self.responder.take() else { return Ok(()) };
        let written = DIRECT_OUTPUT.with_borrow_mut(|output| {
            output.reset();
            output.write_fetched(response);
            self.write_directly(cx, &responder, output)
        });
        self.responder = Some(responder);
        written
    }

    /// See [`answer_directly`](Self::answer_directly).
    fn answer_heads(
        &mut self,
        responder: &dyn DirectResponder,
        buf: &mut ReadBuf<'_>,
        start: usize,
        output: &mut DirectOutput,
    ) -> Option<usize> {
        let received = buf.filled().len() - start;
        let mut at = start;
        let mut unchecked = None;
        while at < buf.filled().len() {
            if !output.has_room() {
                unchecked = Some(start);
                break;
            }
            let rest = &buf.filled()[at..];
            match responder.respond(rest, output, &self.timer.exchanges) {
                DirectAnswer::Written(end) => {
                    at += end;
                    continue;
                }
                DirectAnswer::Begun(fetch) => {
                    self.begin_fetch(fetch, buf, at);
                    break;
                }
                DirectAnswer::Declined => {}
            }
            match self.scanner.feed_head(rest) {
                Ok(HeadEnd::At(_)) if self.scanner.phase() != Phase::Idle => {
                    // An invalid body is rejected with its head if both are in one read.
                    self.scanner.restart_head();
                    unchecked = Some(start);
                    break;
                }
                Ok(HeadEnd::At(end)) => {
                    unchecked = Some(start + end);
                    break;
                }
                Ok(HeadEnd::Incomplete) => {
                    self.scanner.take_withheld();
                    self.head.extend_from_slice(rest);
                    buf.set_filled(at);
                }
                Err(refused) => self.refuse(buf, at, refused),
            }
        }
        let left = buf.filled().len() - at;
        buf.filled_mut().copy_within(at.., start);
        buf.set_filled(start + left);
        if unchecked.is_none() {
            self.timer.has_read(received, &self.scanner);
        }
        unchecked
    }
}

//! Responses that are written without hyper, while hyper has no request of the connection.

mod unwritten_body;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use forebay_engine::LongReader;
use tokio::io::AsyncWrite;

use super::exchanges::Exchanges;
use crate::record::{ConnectionEnd, Record};
use unwritten_body::UnwrittenBody;

/// Maximum number of bytes of responses that one read of the connection may cause, beside one
/// larger body. They stay in memory while the client does not read.
const OUTPUT_MAX: usize = 128 << 10;

/// Largest body that is copied behind its head, so that pipelined responses need one write.
const COPIED_MAX: usize = 16 << 10;

/// Capacity above which the buffer of a thread is released after use.
const RETAINED_MAX: usize = 2 * OUTPUT_MAX;

/// Answers complete request heads in place of hyper.
pub(crate) trait DirectResponder: Send + Sync {
    /// Answers the request at the start of the received bytes, or starts to fetch its response. `exchanges` are those of
    /// the connection.
    fn respond(
        &self,
        received: &[u8],
        output: &mut DirectOutput,
        exchanges: &Exchanges,
    ) -> DirectAnswer;

    /// Records responses that have ended.
    fn record(&self, records: &mut [Record], by: ConnectionEnd);
}

impl fmt::Debug for dyn DirectResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectResponder")
    }
}

/// Answer of a [`DirectResponder`]. The head of the request is one that
/// [`PlainHead`](super::PlainHead) accepts.
pub(crate) enum DirectAnswer {
    /// The response is in the output. The number is the length of the request head.
    Written(usize),
    /// The response is being fetched.
    Begun(Box<DirectFetch>),
    /// The scanner and hyper must handle the bytes. The output is unchanged.
    Declined,
}

/// Request whose response is being fetched.
pub(crate) struct DirectFetch {
    /// Head of the request, with field names in lower case. It has as many bytes as were received. hyper
    /// parses it if `response` returns `None`.
    pub(crate) head: Bytes,
    /// Future of the response; `None` if hyper must handle the request after all.
    pub(crate) response: Pin<Box<dyn Future<Output = Option<DirectResponse>> + Send>>,
}

/// Response that was fetched.
pub(crate) struct DirectResponse {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Bytes,
    pub(crate) record: Record,
}

impl fmt::Debug for DirectFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectFetch").finish_non_exhaustive()
    }
}

/// Responses in order: bytes, then a body that is too large to be copied.
#[derive(Debug, Default)]
pub(crate) struct DirectOutput {
    bytes: Vec<u8>,
    body: UnwrittenBody,
    records: Vec<Record>,
}

/// Unwritten rest of responses.
#[derive(Debug, Default)]
pub(super) struct PendingOutput {
    bytes: Bytes,
    body: Option<Box<UnwrittenBody>>,
    unrecorded: Option<Box<Unrecorded>>,
}

/// Responses whose last bytes are not written yet. They are recorded when it is dropped.
#[derive(Debug)]
struct Unrecorded {
    records: Vec<Record>,
    /// Number of bytes that are not written.
    left: usize,
    responder: Arc<dyn DirectResponder>,
    exchanges: Exchanges,
}

impl DirectOutput {
    /// Drops what a panic left behind: it belongs to another connection.
    pub(super) fn reset(&mut self) {
        if !self.bytes.is_empty() || !self.records.is_empty() {
            *self = Self::default();
        }
    }

    /// Appends bytes of a head.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a complete body in one piece. `bytes` shares it.
    pub(crate) fn write_body(&mut self, body: &[u8], bytes: impl FnOnce() -> Option<Bytes>) {
        if body.len() <= COPIED_MAX {
            self.bytes.extend_from_slice(body);
        } else {
            self.body.set(bytes().unwrap_or_default());
        }
    }

    /// Appends a complete body of several pieces.
    pub(crate) fn write_long_body(&mut self, reader: LongReader) {
        self.body.set_reader(reader);
    }

    /// Appends a response that was fetched.
    pub(super) fn write_fetched(&mut self, response: DirectResponse) {
        let DirectResponse { head, body, record } = response;
        self.write(&head);
        self.write_body(&body, || Some(body.clone()));
        self.add_record(record);
    }

    /// Adds the record of the response that was written last.
    pub(crate) fn add_record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Returns `true` if one more response may be written.
    pub(super) fn has_room(&self) -> bool {
        self.body.is_empty() && self.bytes.len() < OUTPUT_MAX
    }

    /// Returns `true` if nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes all to a connection, as far as it accepts bytes.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.body.is_empty() {
            return Pin::new(stream).poll_write(cx, &self.bytes);
        }
        poll_write_both(stream, cx, &self.bytes, &mut self.body)
    }

    /// Takes what is left after `written` bytes, and prepares the buffer for further use. Records
    /// the responses if nothing is left.
    pub(super) fn take_rest(
        &mut self,
        written: usize,
        responder: &Arc<dyn DirectResponder>,
        exchanges: &Exchanges,
    ) -> PendingOutput {
        let of_bytes = written.min(self.bytes.len());
        self.body.advance(written - of_bytes);
        let left = self.bytes.len() - of_bytes + self.body.left();
        let unrecorded = if left == 0 {
            responder.record(&mut self.records, ConnectionEnd::Flushed);
            self.records.clear();
            None
        } else {
            let records = std::mem::take(&mut self.records);
            let (responder, exchanges) = (responder.clone(), exchanges.clone());
            Some(Box::new(Unrecorded { records, left, responder, exchanges }))
        };
        let bytes = Bytes::copy_from_slice(&self.bytes[of_bytes..]);
        let is_whole = self.body.is_empty();
        let body = (!is_whole).then(|| Box::new(std::mem::take(&mut self.body)));
        self.bytes.clear();
        self.bytes.shrink_to(RETAINED_MAX);
        PendingOutput { bytes, body, unrecorded }
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if self.left == 0 {
            self.responder.record(&mut self.records, ConnectionEnd::Flushed);
            return;
        }
        let cause = self.exchanges.endings().cause();
        let mut left = self.left as u64;
        // The last responses are those whose bytes are left.
        for record in self.records.iter_mut().rev() {
            let by = if left == 0 { ConnectionEnd::Flushed } else { cause };
            let lost = left.min(record.bytes);
            record.bytes -= lost;
            left -= lost;
            self.responder.record(std::slice::from_mut(record), by);
        }
    }
}

impl PendingOutput {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.body.is_none()
    }

    pub(super) fn advance(&mut self, written: usize) {
        let of_bytes = written.min(self.bytes.len());
        self.bytes.advance(of_bytes);
        if let Some(body) = &mut self.body {
            body.advance(written - of_bytes);
            if body.is_empty() {
                self.body = None;
            }
        }
        if let Some(unrecorded) = &mut self.unrecorded {
            unrecorded.left -= written;
            if unrecorded.left == 0 {
                self.unrecorded = None;
            }
        }
    }

    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &mut self.body {
            None => Pin::new(stream).poll_write(cx, &self.bytes),
            Some(body) => poll_write_both(stream, cx, &self.bytes, body),
        }
    }
}

fn poll_write_both<S: AsyncWrite + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    bytes: &[u8],
    body: &mut UnwrittenBody,
) -> Poll<io::Result<usize>> {
    body.fill()?;
    let (parts, count) = body.parts(bytes);
    let written = match &parts[..count] {
        [part] => Pin::new(stream).poll_write(cx, part),
        parts => Pin::new(stream).poll_write_vectored(cx, parts),
    };
    if written.is_pending() {
        body.give_back();
    }
    written
}

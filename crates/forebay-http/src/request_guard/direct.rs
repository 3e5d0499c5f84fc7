//! Responses that are written without hyper, while hyper has no request of the connection.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::exchanges::Exchanges;
use crate::record::{ConnectionEnd, Record};

/// Maximum number of bytes of responses that one read of the connection may cause, beside one
/// larger body. They stay in memory while the client does not read.
const OUTPUT_MAX: usize = 128 << 10;

/// Largest body that is copied behind its head, so that pipelined responses need one write.
const COPIED_MAX: usize = 16 << 10;

/// Capacity above which the buffer of a thread is released after use.
const RETAINED_MAX: usize = 2 * OUTPUT_MAX;

/// Answers complete request heads in place of hyper.
pub(crate) trait DirectResponder: Send + Sync {
    /// Writes the response to the request at the start of the received bytes, and returns the
    /// length of its head. Returns `None`, and writes nothing, if the scanner and hyper must handle
    /// the bytes. The head is one that [`PlainHead`](super::PlainHead) accepts.
    fn respond(&self, received: &[u8], output: &mut DirectOutput) -> Option<usize>;

    /// Records responses that have ended.
    fn record(&self, records: &[Record], by: ConnectionEnd);
}

impl fmt::Debug for dyn DirectResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectResponder")
    }
}

/// Responses in order: bytes, then a body that is too large to be copied.
#[derive(Debug, Default)]
pub(crate) struct DirectOutput {
    bytes: Vec<u8>,
    body: Bytes,
    records: Vec<Record>,
}

/// Unwritten rest of responses.
#[derive(Debug, Default)]
pub(super) struct PendingOutput {
    bytes: Bytes,
    body: Bytes,
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
    /// Appends bytes of a head.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a complete body in one piece. `bytes` shares it.
    pub(crate) fn write_body(&mut self, body: &[u8], bytes: impl FnOnce() -> Option<Bytes>) {
        if body.len() <= COPIED_MAX {
            self.bytes.extend_from_slice(body);
        } else {
            self.body = bytes().unwrap_or_default();
        }
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
        &self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        poll_write_both(stream, cx, &self.bytes, &self.body)
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
        let mut body = std::mem::take(&mut self.body);
        body.advance(written - of_bytes);
        let left = self.bytes.len() - of_bytes + body.len();
        let unrecorded = if left == 0 {
            responder.record(&self.records, ConnectionEnd::Flushed);
            self.records.clear();
            None
        } else {
            let records = std::mem::take(&mut self.records);
            let (responder, exchanges) = (responder.clone(), exchanges.clone());
            Some(Box::new(Unrecorded { records, left, responder, exchanges }))
        };
        let bytes = Bytes::copy_from_slice(&self.bytes[of_bytes..]);
        self.bytes.clear();
        self.bytes.shrink_to(RETAINED_MAX);
        PendingOutput { bytes, body, unrecorded }
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if self.left == 0 {
            self.responder.record(&self.records, ConnectionEnd::Flushed);
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
            self.responder.record(std::slice::from_ref(record), by);
        }
    }
}

impl PendingOutput {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.body.is_empty()
    }

    pub(super) fn advance(&mut self, written: usize) {
        let of_bytes = written.min(self.bytes.len());
        self.bytes.advance(of_bytes);
        self.body.advance(written - of_bytes);
        if let Some(unrecorded) = &mut self.unrecorded {
            unrecorded.left -= written;
            if unrecorded.left == 0 {
                self.unrecorded = None;
            }
        }
    }

    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        poll_write_both(stream, cx, &self.bytes, &self.body)
    }
}

fn poll_write_both<S: AsyncWrite + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    bytes: &[u8],
    body: &[u8],
) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    if body.is_empty() {
        return stream.poll_write(cx, bytes);
    }
    if bytes.is_empty() {
        return stream.poll_write(cx, body);
    }
    stream.poll_write_vectored(cx, &[IoSlice::new(bytes), IoSlice::new(body)])
}

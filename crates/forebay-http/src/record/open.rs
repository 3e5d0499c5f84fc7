//! Record of a response that has not ended.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;

use super::{End, Record};

/// State of a client connection at the end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionEnd {
    /// The connection took all bytes.
    Flushed,
    /// The connection ended for a reason that is not known here.
    Dropped,
    /// The client closed the connection.
    ClientGone,
    /// The client exceeded the write timeout.
    TooSlow,
}

/// Consumer of records.
pub(crate) trait Recorder: Send + Sync {
    /// Returns the time on the clock of the engine.
    fn now(&self) -> Duration;

    /// Records a response that ended at `now`. Takes the fields of its request.
    fn record(&self, record: &mut Record, now: Duration, end: End);

    /// Returns `true` if the process cuts off responses because it stops.
    fn is_stopping(&self) -> bool;
}

impl dyn Recorder + '_ {
    /// Returns the end of a response that was not broken off by its source.
    pub(crate) fn end_by(&self, connection: ConnectionEnd) -> End {
        match connection {
            ConnectionEnd::Flushed => End::Complete,
            ConnectionEnd::TooSlow => End::TooSlow,
            ConnectionEnd::Dropped if self.is_stopping() => End::Stopped,
            ConnectionEnd::ClientGone | ConnectionEnd::Dropped => End::ClientGone,
        }
    }
}

/// Record of a response that has not ended.
pub(crate) struct OpenRecord {
    recorder: Arc<dyn Recorder>,
    record: Record,
    /// Length of the body that the head states.
    length: Option<u64>,
    /// Set when the body has ended.
    is_over: bool,
}

impl fmt::Debug for OpenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenRecord").field(&self.record).finish()
    }
}

impl OpenRecord {
    /// Begins the record of a response whose head states this length of the body.
    pub(crate) fn new(recorder: Arc<dyn Recorder>, record: Record, length: Option<u64>) -> Self {
        let is_over = record.is_without_body();
        Self { recorder, record, length, is_over }
    }

    /// Adds what the connection took of the body.
    pub(crate) fn add_polled<E>(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, E>>>) {
        match polled {
            Poll::Ready(None) => self.is_over = true,
            Poll::Ready(Some(Ok(frame))) => {
                self.record.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
    }

    /// Takes back bytes that the connection did not take.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        self.record.bytes = self.record.bytes.saturating_sub(bytes as u64);
    }

    /// Returns `true` if the connection needs no more bytes of the body.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_over || self.length == Some(self.record.bytes)
    }

    /// Records a response that its connection ended.
    pub(crate) fn end_by(self, connection: ConnectionEnd) {
        let end = self.recorder.end_by(connection);
        self.end(end);
    }

    /// Records the end of the response.
    pub(crate) fn end(mut self, end: End) {
        self.recorder.record(&mut self.record, self.recorder.now(), end);
    }
}

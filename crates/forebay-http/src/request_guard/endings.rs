//! Responses whose last bytes hyper has taken, and the connection not yet.
//!
//! hyper drops a response body as soon as it has its last byte. The client has it only after the
//! next flush, which may take as long as the client is slow.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::record::{ConnectionEnd, OpenRecord};

/// Responses of one connection that are recorded at the next flush, or when the connection ends.
#[derive(Debug)]
pub(super) struct Endings {
    /// Set while there are such responses. A flush without them reads only this flag.
    any: AtomicBool,
    /// Reason why the connection will end; [`ConnectionEnd::Flushed`] while there is none.
    cause: AtomicU8,
    /// Set when the connection has ended.
    is_over: AtomicBool,
    /// At most as many as hyper buffers at once.
    unflushed: Mutex<Vec<OpenRecord>>,
}

impl Default for Endings {
    fn default() -> Self {
        let cause = AtomicU8::new(ConnectionEnd::Flushed as u8);
        let (any, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { any, cause, is_over, unflushed: Mutex::default() }
    }
}

impl Endings {
    /// Adds a response whose last byte hyper has taken.
    pub(super) fn add(&self, record: OpenRecord) {
        if self.is_over.load(Ordering::Relaxed) {
            return record.end_by(self.cause());
        }
        self.unflushed.lock().push(record);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Records the responses after a flush of all bytes that hyper has written.
    pub(super) fn has_flushed(&self) {
        if self.any.load(Ordering::Relaxed) {
            self.end_all(ConnectionEnd::Flushed);
        }
    }

    /// Sets the reason for which the connection will probably end. The first one counts. A client that
    /// sends no more may still read, so its responses are complete if they are flushed.
    pub(super) fn will_end(&self, by: ConnectionEnd) {
        let open = ConnectionEnd::Flushed as u8;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.cause.compare_exchange(open, by as u8, success, failure);
    }

    /// Records the responses that the connection did not flush.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.end_all(self.cause());
    }

    /// Returns the reason why the connection ends or has ended; [`ConnectionEnd::Dropped`] if none
    /// is known.
    pub(super) fn cause(&self) -> ConnectionEnd {
        let known = [ConnectionEnd::ClientGone, ConnectionEnd::TooSlow];
        let cause = self.cause.load(Ordering::Relaxed);
        known.into_iter().find(|end| *end as u8 == cause).unwrap_or(ConnectionEnd::Dropped)
    }

    #[inline(never)]
    fn end_all(&self, by: ConnectionEnd) {
        self.any.store(false, Ordering::Relaxed);
        let ended = std::mem::take(&mut *self.unflushed.lock());
        for record in ended {
            record.end_by(by);
        }
    }
}

//! Requests in progress on a connection, and the order of their responses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;

use forebay_engine::ReaderWatch;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::record::{ConnectionEnd, OpenRecord};

use super::counters::GuardCounters;
use super::endings::Endings;
use super::framing::FramingError;
use super::interims::{Interims, Pending};

/// Counter of the requests in progress on a connection. The idle timeout runs only while there are
/// none.
///
/// The service opens an [`Exchange`] per request and keeps it until the response body is dropped.
/// Otherwise a response that pauses for longer than the idle timeout is cut off, and bytes after a
/// request for another protocol are never read.
#[derive(Clone, Debug)]
pub struct Exchanges {
    state: Arc<ExchangeState>,
}

#[derive(Debug)]
pub(super) struct ExchangeState {
    opened: AtomicU64,
    closed: AtomicU64,
    /// Set while the connection waits for a response before it reads further.
    waits: AtomicBool,
    /// Set from the first byte that hyper reads of a request until its response is flushed.
    hyper_is_busy: AtomicBool,
    reader: AtomicWaker,
    /// Set while the direct path waits for a response.
    is_fetching: AtomicBool,
    /// Number of the rejected request on this connection, and the reason.
    rejection: OnceLock<(u64, Rejection)>,
    pub(super) interims: Pending,
    pub(super) endings: Endings,
    /// Watch on the body of the current response, if its rest can be dropped from memory.
    body: Mutex<Option<ReaderWatch>>,
    /// Set while there is such a watch: the end of most exchanges reads only this flag.
    watches: AtomicBool,
    pub(super) counters: Arc<GuardCounters>,
}

/// Reason for which a request is rejected and its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The message violates a framing rule or a size limit.
    Framing(FramingError),
    /// The request head was not complete in time.
    HeadTimeout,
    /// The maximum number of client connections is reached.
    TooManyConnections,
}

impl Exchanges {
    pub(super) fn new(counters: Arc<GuardCounters>) -> Self {
        let state = ExchangeState {
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            hyper_is_busy: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            is_fetching: AtomicBool::new(false),
            rejection: OnceLock::new(),
            interims: Pending::default(),
            endings: Endings::default(),
            body: Mutex::default(),
            watches: AtomicBool::new(false),
            counters,
        };
        Self { state: Arc::new(state) }
    }

    /// Starts an exchange, which ends when the value is dropped.
    pub fn open(&self) -> Exchange {
        self.state.opened.fetch_add(1, Ordering::Relaxed);
        Exchange { state: Arc::clone(&self.state) }
    }

    /// Returns the reason if the last opened exchange belongs to a rejected request. hyper then
    /// passes a substitute request, of which only the method (`GET` or `HEAD`) is meaningful.
    #[must_use]
    pub fn rejection(&self) -> Option<Rejection> {
        let (number, why) = self.state.rejection.get()?;
        (self.state.opened.load(Ordering::Relaxed) == number + 1).then_some(*why)
    }

    /// Rejects the request after the first `before` requests. Only the first call has an effect.
    pub(super) fn reject(&self, before: u64, why: Rejection) {
        let _ = self.state.rejection.set((before, why));
    }

    /// Returns the interim responses that must be written before the current response.
    pub(super) fn interims(&self) -> &Pending {
        &self.state.interims
    }

    /// Returns the responses of the connection that have not ended.
    pub(super) fn endings(&self) -> &Endings {
        &self.state.endings
    }

    /// Returns `true` while hyper has a request that is not answered, or a response that is not
    /// flushed. Otherwise a response may be written without hyper, and hyper keeps no state that the
    /// next request needs.
    pub(crate) fn hyper_is_busy(&self) -> bool {
        self.state.hyper_is_busy.load(Ordering::Relaxed)
    }

    pub(super) fn set_hyper_busy(&self, is_busy: bool) {
        self.state.hyper_is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Returns `true` while the direct path waits for a response. The connection must stay open until
    /// then.
    pub(crate) fn is_fetching(&self) -> bool {
        self.state.is_fetching.load(Ordering::Relaxed)
    }

    pub(super) fn set_fetching(&self, is_fetching: bool) {
        self.state.is_fetching.store(is_fetching, Ordering::Relaxed);
    }

    /// Opens the channel for interim responses to the client before a response that is written without
    /// hyper. [`Interims::before`] closes the channel.
    pub(crate) fn open_interims(&self) -> Interims {
        Interims::open(Arc::clone(&self.state))
    }

    /// Returns `true` if the rest of the body of the current response was dropped, because its client
    /// does not read. `None` if that cannot happen to the body.
    pub(super) fn body_is_lost(&self) -> Option<bool> {
        self.state.body.lock().as_ref().map(ReaderWatch::is_lost)
    }

    pub(super) fn any(&self) -> bool {
        let opened = self.state.opened.load(Ordering::Relaxed);
        self.state.closed.load(Ordering::Relaxed) < opened
    }

    /// Returns the number of requests that have been answered.
    pub(crate) fn closed(&self) -> u64 {
        self.state.closed.load(Ordering::SeqCst)
    }

    /// Returns `true` if at least `requests` requests have been answered. Otherwise registers the
    /// task to be woken when one more is.
    pub(super) fn answered(&self, requests: u64, cx: &Context<'_>) -> bool {
        // The order of stores and loads, here and in `Exchange::drop`, prevents a lost wake-up.
        if self.state.closed.load(Ordering::SeqCst) < requests {
            self.state.reader.register(cx.waker());
            self.state.waits.store(true, Ordering::SeqCst);
        }
        self.state.closed.load(Ordering::SeqCst) >= requests
    }
}

/// Request in progress on a client connection, until its response body is dropped; see
/// [`Exchanges`].
#[derive(Debug)]
pub struct Exchange {
    state: Arc<ExchangeState>,
}

impl Exchange {
    /// Opens the channel for interim responses to the client of this exchange, which must be the
    /// last exchange that was opened. [`Interims::before`] closes the channel.
    pub(crate) fn interims(&self) -> Interims {
        Interims::open(Arc::clone(&self.state))
    }

    /// Watches the body of the response, so that the connection ends once the body is lost.
    pub(crate) fn watch(&self, body: ReaderWatch) {
        *self.state.body.lock() = Some(body);
        self.state.watches.store(true, Ordering::Relaxed);
    }

    /// Records the response of this exchange, whose last byte hyper has taken, once the connection
    /// has taken it too.
    pub(crate) fn end_when_flushed(&self, record: OpenRecord) {
        self.state.endings.add(record);
    }

    /// Returns the reason why the connection has ended before the last byte of the response.
    pub(crate) fn connection_end(&self) -> ConnectionEnd {
        self.state.endings.cause()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.state.watches.load(Ordering::Relaxed) {
            self.state.watches.store(false, Ordering::Relaxed);
            *self.state.body.lock() = None;
        }
        self.state.closed.fetch_add(1, Ordering::SeqCst);
        if self.state.waits.load(Ordering::SeqCst) {
            self.state.reader.wake();
        }
    }
}

/// Ends the responses of a connection when it is dropped.
#[derive(Debug)]
pub(super) struct EndOnDrop(pub(super) Exchanges);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.endings().end();
    }
}

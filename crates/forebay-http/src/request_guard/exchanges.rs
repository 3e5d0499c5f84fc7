//! Which request of a connection is being answered, and what its answer has to wait for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;

use futures_util::task::AtomicWaker;

use super::counters::FrontCounters;
use super::framing::Refusal;
use super::interims::{Interims, Pending};

/// Tells a connection how many of its requests are being answered; idle time counts only while
/// there are none.
///
/// The service opens an [`Exchange`] per request and keeps it until the response body is dropped.
/// Without that, a response that pauses longer than the idle timeout is cut, and nothing is read
/// behind a request that asked for another protocol: its answer decides what the bytes are.
#[derive(Clone, Debug)]
pub struct Exchanges {
    ledger: Arc<Ledger>,
}

#[derive(Debug)]
pub(super) struct Ledger {
    opened: AtomicU64,
    closed: AtomicU64,
    /// Whether the connection waits for an answer before it reads on.
    waits: AtomicBool,
    reader: AtomicWaker,
    /// Which request stands for one that may not be answered, and why.
    turned_away: OnceLock<(u64, TurnedAway)>,
    pub(super) interims: Pending,
    pub(super) counters: Arc<FrontCounters>,
}

/// Why a request is answered with a refusal, and the connection closed behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// It broke a rule.
    Refused(Refusal),
    /// Its head was not complete in time.
    TooSlow,
    /// There are as many connections as there may be.
    Crowded,
}

impl Exchanges {
    pub(super) fn new(counters: Arc<FrontCounters>) -> Self {
        let ledger = Ledger {
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            turned_away: OnceLock::new(),
            interims: Pending::default(),
            counters,
        };
        Self { ledger: Arc::new(ledger) }
    }

    /// Begins one exchange, which lasts until the value is dropped.
    pub fn open(&self) -> Exchange {
        self.ledger.opened.fetch_add(1, Ordering::Relaxed);
        Exchange { ledger: Arc::clone(&self.ledger) }
    }

    /// Why the request whose exchange was opened last is turned away, if it is: then it is none
    /// that the client sent, and nothing of it means anything but whether its method is HEAD.
    #[must_use]
    pub fn turned_away(&self) -> Option<TurnedAway> {
        let (number, why) = self.ledger.turned_away.get()?;
        (self.ledger.opened.load(Ordering::Relaxed) == number + 1).then_some(*why)
    }

    /// The request behind so many others is turned away. Only the first call has an effect.
    pub(super) fn turn_away(&self, before: u64, why: TurnedAway) {
        let _ = self.ledger.turned_away.set((before, why));
    }

    /// What waits to be written before the answer under way.
    pub(super) fn interims(&self) -> &Pending {
        &self.ledger.interims
    }

    pub(super) fn any(&self) -> bool {
        let opened = self.ledger.opened.load(Ordering::Relaxed);
        self.ledger.closed.load(Ordering::Relaxed) < opened
    }

    /// How many requests have been answered.
    pub(super) fn closed(&self) -> u64 {
        self.ledger.closed.load(Ordering::SeqCst)
    }

    /// Whether so many requests have been answered; if not, the task is woken once they may be.
    pub(super) fn answered(&self, requests: u64, cx: &Context<'_>) -> bool {
        // The order of stores and loads, here and in the drop, keeps a wake from being lost.
        if self.ledger.closed.load(Ordering::SeqCst) < requests {
            self.ledger.reader.register(cx.waker());
            self.ledger.waits.store(true, Ordering::SeqCst);
        }
        self.ledger.closed.load(Ordering::SeqCst) >= requests
    }
}

/// One request that is being answered; see [`Exchanges`].
#[derive(Debug)]
pub struct Exchange {
    ledger: Arc<Ledger>,
}

impl Exchange {
    /// Opens the way for interim responses to the client of this exchange, which must be the last
    /// that was opened. [`Interims::before`] closes it.
    pub(crate) fn interims(&self) -> Interims {
        Interims::open(Arc::clone(&self.ledger))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.ledger.closed.fetch_add(1, Ordering::SeqCst);
        if self.ledger.waits.load(Ordering::SeqCst) {
            self.ledger.reader.wake();
        }
    }
}

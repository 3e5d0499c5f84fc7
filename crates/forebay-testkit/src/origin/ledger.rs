//! What the origin counts and keeps.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{RECEIVED_KEPT, Received};

/// How many different paths are counted apart: a test that needs more counts on its own.
const PATHS_MAX: usize = 65_536;

/// The origin's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose head arrived, answered or not.
    pub requests: u64,
    /// Requests with `If-None-Match` or `If-Modified-Since`.
    pub conditional: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Requests that are being answered right now.
    pub in_flight: u64,
    /// The most that were ever in flight together.
    pub in_flight_max: u64,
    /// Answers that the peer did not wait for: it hung up before their end.
    pub abandoned: u64,
    /// Requests that were broken off before the end of their body.
    pub broken_off: u64,
    /// Connections that sent something that is not a request.
    pub malformed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    counts: watch::Sender<Counts>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    received: Vec<Received>,
    per_path: HashMap<String, u64>,
}

impl Ledger {
    pub(super) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub(super) fn requests_to(&self, path: &str) -> u64 {
        self.pages.lock().per_path.get(path).copied().unwrap_or(0)
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.pages.lock().received.clone()
    }

    pub(super) async fn wait_for(&self, condition: impl Fn(&Counts) -> bool) {
        // The ledger holds the sender, so the channel cannot close while we wait.
        let _ = self.counts.subscribe().wait_for(condition).await;
    }

    pub(super) fn connected(&self) -> u64 {
        self.count(|counts| counts.connections += 1);
        self.counts().connections
    }

    pub(super) fn malformed(&self) {
        self.count(|counts| counts.malformed += 1);
    }

    /// Enters a request, gives it its serial, and returns the guard that keeps it in flight.
    pub(super) fn enter(&self, received: &mut Received) -> Answering<'_> {
        let mut pages = self.pages.lock();
        received.serial = self.counts().requests + 1;
        pages.keep(received);
        // Counted last and under the lock: whoever sees the count finds the request, in order.
        self.count(|counts| {
            counts.requests += 1;
            counts.conditional += u64::from(received.is_conditional());
            counts.broken_off += u64::from(!received.complete);
            counts.in_flight += 1;
            counts.in_flight_max = counts.in_flight_max.max(counts.in_flight);
        });
        Answering { ledger: self, abandoned: false }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

impl Pages {
    fn keep(&mut self, received: &Received) {
        if self.received.len() < RECEIVED_KEPT {
            self.received.push(received.clone());
        }
        if let Some(count) = self.per_path.get_mut(received.path()) {
            *count += 1;
        } else if self.per_path.len() < PATHS_MAX {
            self.per_path.insert(received.path().to_owned(), 1);
        }
    }
}

/// One request in flight; its drop is the end of the answer.
pub(super) struct Answering<'a> {
    ledger: &'a Ledger,
    pub(super) abandoned: bool,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.ledger.count(|counts| {
            counts.in_flight -= 1;
            counts.abandoned += u64::from(self.abandoned);
        });
    }
}

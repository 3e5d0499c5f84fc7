//! Counters and received requests of the origin.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{RECEIVED_KEPT, Received};

/// Maximum number of paths with their own counter.
const PATHS_MAX: usize = 65_536;

/// Counters of the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose head arrived, and whose body ended or broke off; answered or not.
    pub requests: u64,
    /// Requests with `If-None-Match` or `If-Modified-Since`.
    pub conditional: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Requests that are being answered.
    pub in_flight: u64,
    /// Maximum number of requests in flight at once.
    pub in_flight_max: u64,
    /// Answers whose client closed before their end.
    pub abandoned: u64,
    /// Requests whose body was truncated.
    pub broken_off: u64,
    /// Connections that sent a malformed request.
    pub malformed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Recorder {
    counts: watch::Sender<Counts>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    received: Vec<Received>,
    per_path: HashMap<String, u64>,
}

impl Recorder {
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
        // The recorder holds the sender, so the channel cannot close during the wait.
        let _ = self.counts.subscribe().wait_for(condition).await;
    }

    pub(super) fn connected(&self) -> u64 {
        self.count(|counts| counts.connections += 1);
        self.counts().connections
    }

    pub(super) fn malformed(&self) {
        self.count(|counts| counts.malformed += 1);
    }

    /// Records a request, sets its sequence number, and returns the guard that counts it as in
    /// flight.
    pub(super) fn enter(&self, received: &mut Received) -> Answering<'_> {
        let mut pages = self.pages.lock();
        received.serial = self.counts().requests + 1;
        pages.keep(received);
        // Counted last and under the lock, so that a reader of the counter finds the request.
        self.count(|counts| {
            counts.requests += 1;
            counts.conditional += u64::from(received.is_conditional());
            counts.broken_off += u64::from(!received.complete);
            counts.in_flight += 1;
            counts.in_flight_max = counts.in_flight_max.max(counts.in_flight);
        });
        Answering { recorder: self, abandoned: false }
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

/// Request in flight; dropping it ends the answer.
pub(super) struct Answering<'a> {
    recorder: &'a Recorder,
    pub(super) abandoned: bool,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.recorder.count(|counts| {
            counts.in_flight -= 1;
            counts.abandoned += u64::from(self.abandoned);
        });
    }
}

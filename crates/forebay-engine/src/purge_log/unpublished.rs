//! Queue of purges that could not be published on the bus yet.

use std::collections::VecDeque;

use forebay_core::{Purge, Reach};

use crate::runtime::sync::Mutex;

/// Maximum number of queued purges. One more replaces all of them by a purge of everything.
const UNPUBLISHED_MAX: usize = 1_000;

/// Purges that could not be published yet, in their order.
#[derive(Default)]
pub(crate) struct Unpublished(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    purges: VecDeque<Pending>,
    /// Number of the newest purge.
    numbered: u64,
    /// `true` while a task publishes the queue.
    has_task: bool,
}

/// One purge of the queue.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) number: u64,
    pub(crate) what: Purge,
    pub(crate) reach: Reach,
}

impl Unpublished {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().purges.len()
    }

    /// Returns `true` if a queued purge names no single key: then a shared tier returns entries
    /// that are purged here.
    pub(crate) fn any_of_many(&self) -> bool {
        self.0.lock().purges.iter().any(|pending| !matches!(pending.what, Purge::Key(_)))
    }

    /// Adds a purge. Returns `true` if the caller has to start a task that publishes the queue.
    pub(crate) fn add(&self, what: &Purge, reach: Reach) -> bool {
        let mut queue = self.0.lock();
        queue.numbered += 1;
        let number = queue.numbered;
        let pending = if queue.purges.len() < UNPUBLISHED_MAX {
            Pending { number, what: what.clone(), reach }
        } else {
            queue.purges.clear();
            Pending { number, what: Purge::All, reach: Reach::Hard }
        };
        queue.purges.push_back(pending);
        !std::mem::replace(&mut queue.has_task, true)
    }

    /// Returns the oldest purge. `None` if the queue is empty; then its task has ended.
    pub(crate) fn next(&self) -> Option<Pending> {
        let mut queue = self.0.lock();
        let next = queue.purges.front().cloned();
        queue.has_task = next.is_some();
        next
    }

    /// Removes a published purge.
    pub(crate) fn done(&self, number: u64) {
        let mut queue = self.0.lock();
        // A purge of everything may have replaced it.
        if queue.purges.front().is_some_and(|first| first.number == number) {
            queue.purges.pop_front();
        }
    }
}

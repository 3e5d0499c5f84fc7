//! Entries that an endpoint must remove, because it did not answer when they were removed or
//! replaced. They are not read from it meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::entry::names::Names;

/// Maximum number of pending removals. Beyond it the endpoint is not used again, since purged
/// entries could not be told from others.
const PENDING_MAX: usize = 10_000;

/// Reason for a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The entry was purged.
    Removed,
    /// A newer entry exists or may exist. Dropped if the list is full, since the entry is within
    /// its lifetime.
    Superseded,
}

#[derive(Default)]
pub(crate) struct PendingRemovals {
    /// Number of pending removals, readable without the lock.
    count: AtomicUsize,
    overflowed: AtomicBool,
    removals: Mutex<Removals>,
}

#[derive(Default)]
struct Removals {
    /// Pending removals by name of the value.
    names: HashMap<Box<str>, Entry>,
    last_number: u64,
}

struct Entry {
    names: Arc<Names>,
    number: u64,
    /// True if the caller that added the removal has given up on it.
    is_scheduled: bool,
}

/// One removal. Its number distinguishes it from later ones of the same entry.
pub(crate) struct PendingRemoval {
    pub(crate) names: Arc<Names>,
    number: u64,
}

impl PendingRemovals {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Returns whether the entry must not be read.
    pub(crate) fn contains(&self, entry_name: &str) -> bool {
        self.count() > 0 && self.removals.lock().names.contains_key(entry_name)
    }

    /// Adds a removal. It is not scheduled yet, since the caller removes the entry itself.
    pub(crate) fn add(&self, names: &Arc<Names>, reason: Reason) -> PendingRemoval {
        let mut removals = self.removals.lock();
        removals.last_number += 1;
        let number = removals.last_number;
        let has_space =
            removals.names.len() < PENDING_MAX || removals.names.contains_key(&names.entry);
        if has_space {
            let entry = Entry { names: names.clone(), number, is_scheduled: false };
            removals.names.insert(names.entry.clone(), entry);
        } else if reason == Reason::Removed {
            self.overflowed.store(true, Ordering::Release);
        }
        self.count.store(removals.names.len(), Ordering::Release);
        PendingRemoval { names: names.clone(), number }
    }

    pub(crate) fn complete(&self, removal: &PendingRemoval) {
        let mut removals = self.removals.lock();
        if removals
            .names
            .get(&removal.names.entry)
            .is_some_and(|entry| entry.number == removal.number)
        {
            removals.names.remove(&removal.names.entry);
        }
        self.count.store(removals.names.len(), Ordering::Release);
    }

    /// Schedules a removal that its caller did not complete.
    pub(crate) fn schedule(&self, removal: &PendingRemoval) {
        let mut removals = self.removals.lock();
        if let Some(entry) = removals.names.get_mut(&removal.names.entry) {
            entry.is_scheduled |= entry.number == removal.number;
        }
    }

    /// Returns the next scheduled removals.
    pub(crate) fn scheduled(&self, count_max: usize) -> Vec<PendingRemoval> {
        if self.count() == 0 {
            return Vec::new();
        }
        let removals = self.removals.lock();
        let due = removals.names.values().filter(|entry| entry.is_scheduled).take(count_max);
        due.map(|entry| PendingRemoval { names: entry.names.clone(), number: entry.number })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    fn names(number: usize) -> Arc<Names> {
        let mut key = KeyBuf::new("site");
        key.part(&number.to_le_bytes());
        Arc::new(Names::of("n", key.borrowed()))
    }

    #[test]
    fn repeated_removal_is_not_completed_by_the_first_one() {
        let pending = PendingRemovals::default();
        let first = pending.add(&names(1), Reason::Removed);
        let second = pending.add(&names(1), Reason::Superseded);
        pending.complete(&first);
        assert!(pending.contains(&names(1).entry));
        assert!(!pending.contains(&names(2).entry));
        pending.schedule(&first);
        assert!(pending.scheduled(9).is_empty(), "its caller may still remove it");
        pending.schedule(&second);
        assert_eq!(pending.scheduled(9).len(), 1);
        pending.complete(&second);
        assert_eq!((pending.count(), pending.contains(&names(1).entry)), (0, false));
    }

    #[test]
    fn pending_purge_is_never_dropped() {
        let pending = PendingRemovals::default();
        for number in 0..PENDING_MAX {
            pending.add(&names(number), Reason::Superseded);
        }
        pending.add(&names(PENDING_MAX), Reason::Superseded);
        assert!(!pending.has_overflowed() && pending.count() == PENDING_MAX);
        pending.add(&names(0), Reason::Removed);
        assert!(!pending.has_overflowed());
        pending.add(&names(PENDING_MAX), Reason::Removed);
        assert!(pending.has_overflowed());
    }
}

//! What an endpoint still has and must not have: entries that were to be removed or replaced while
//! it did not answer. They are not read, and are removed when it answers again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::names::Names;

/// How many entries an endpoint may owe the removal of. Beyond it the endpoint is not used again:
/// what was purged could not be told from what was not.
const DEBTS_MAX: usize = 10_000;

/// Why something must not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It was purged.
    Removed,
    /// There is, or there may be, something newer. Forgotten if there is no room: it is no older
    /// than it may be, only older than what else there is.
    Superseded,
}

#[derive(Default)]
pub(crate) struct Debts {
    /// As many as in the map; read without its lock.
    count: AtomicUsize,
    too_many: AtomicBool,
    owed: Mutex<Owed>,
}

#[derive(Default)]
struct Owed {
    /// By where their bytes stand.
    names: HashMap<Box<str>, Note>,
    noted: u64,
}

struct Note {
    names: Arc<Names>,
    number: u64,
    /// Whether whoever noted it has given up paying it.
    is_due: bool,
}

/// One debt. It is no other than that which was noted: another may have taken its place.
pub(crate) struct Debt {
    pub(crate) names: Arc<Names>,
    number: u64,
}

impl Debts {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.too_many.load(Ordering::Acquire)
    }

    /// Whether what stands there must not be read.
    pub(crate) fn has(&self, entry_name: &str) -> bool {
        self.count() > 0 && self.owed.lock().names.contains_key(entry_name)
    }

    /// Notes what must not be there. It is not due yet: whoever notes it is about to pay.
    pub(crate) fn note(&self, names: &Arc<Names>, reason: Reason) -> Debt {
        let mut owed = self.owed.lock();
        owed.noted += 1;
        let number = owed.noted;
        let has_room = owed.names.len() < DEBTS_MAX || owed.names.contains_key(&names.entry);
        if has_room {
            let note = Note { names: names.clone(), number, is_due: false };
            owed.names.insert(names.entry.clone(), note);
        } else if reason == Reason::Removed {
            self.too_many.store(true, Ordering::Release);
        }
        self.count.store(owed.names.len(), Ordering::Release);
        Debt { names: names.clone(), number }
    }

    pub(crate) fn forgive(&self, debt: &Debt) {
        let mut owed = self.owed.lock();
        if owed.names.get(&debt.names.entry).is_some_and(|note| note.number == debt.number) {
            owed.names.remove(&debt.names.entry);
        }
        self.count.store(owed.names.len(), Ordering::Release);
    }

    /// It was not paid by the one who noted it.
    pub(crate) fn fall_due(&self, debt: &Debt) {
        let mut owed = self.owed.lock();
        if let Some(note) = owed.names.get_mut(&debt.names.entry) {
            note.is_due |= note.number == debt.number;
        }
    }

    /// Some that are due.
    pub(crate) fn due(&self, count_max: usize) -> Vec<Debt> {
        if self.count() == 0 {
            return Vec::new();
        }
        let owed = self.owed.lock();
        let due = owed.names.values().filter(|note| note.is_due).take(count_max);
        due.map(|note| Debt { names: note.names.clone(), number: note.number }).collect()
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
    fn a_debt_that_is_noted_again_is_not_forgiven_by_the_first_payment() {
        let debts = Debts::default();
        let first = debts.note(&names(1), Reason::Removed);
        let second = debts.note(&names(1), Reason::Superseded);
        debts.forgive(&first);
        assert!(debts.has(&names(1).entry));
        assert!(!debts.has(&names(2).entry));
        debts.fall_due(&first);
        assert!(debts.due(9).is_empty(), "whoever noted it may still pay");
        debts.fall_due(&second);
        assert_eq!(debts.due(9).len(), 1);
        debts.forgive(&second);
        assert_eq!((debts.count(), debts.has(&names(1).entry)), (0, false));
    }

    #[test]
    fn what_was_purged_is_never_forgotten_and_what_is_older_may_be() {
        let debts = Debts::default();
        for number in 0..DEBTS_MAX {
            debts.note(&names(number), Reason::Superseded);
        }
        debts.note(&names(DEBTS_MAX), Reason::Superseded);
        assert!(!debts.are_too_many() && debts.count() == DEBTS_MAX);
        debts.note(&names(0), Reason::Removed);
        assert!(!debts.are_too_many());
        debts.note(&names(DEBTS_MAX), Reason::Removed);
        assert!(debts.are_too_many());
    }
}

//! Purges that an endpoint has to be told of, since it did not answer, or was not the one that is
//! used. What they reach is not read from it until then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::{KeyRef, Purge, Reach, Standing, TagSet};
use parking_lot::Mutex;

use crate::era::{Token, reaches, standing_of};
use crate::tombstones::Tombstone;

/// How many purges an endpoint may have to be told of. Beyond it one of everything takes their
/// place: some entries are loaded again without need, none is served without right.
const PURGES_MAX: usize = 10_000;

/// How many are told at once.
const DUE_MAX: usize = 256;

/// A purge that is to be told now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) number: u64,
    pub(crate) what: Purge,
    pub(crate) reach: Reach,
    /// As what it was told before: a server that still knows it need not be told again.
    pub(crate) before: Option<Token>,
}

#[derive(Default)]
pub(crate) struct PurgeDebts {
    /// As many as are owed; read without its lock.
    count: AtomicUsize,
    owed: Mutex<Owed>,
}

#[derive(Default)]
struct Owed {
    purges: VecDeque<Note>,
    numbered: u64,
}

#[derive(Clone)]
struct Note {
    number: u64,
    what: Purge,
    reach: Reach,
    /// As what it was told before, if it was.
    before: Option<Token>,
    /// Whether whoever noted it has given up telling.
    is_due: bool,
}

impl Owed {
    fn put(&mut self, note: Note) {
        self.purges.push_back(note);
        if self.purges.len() > PURGES_MAX {
            self.purges.clear();
            let (what, reach) = (Purge::All, Reach::Hard);
            self.purges.push_back(Note { number: 0, what, reach, before: None, is_due: true });
        }
    }
}

impl PurgeDebts {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Notes a purge. It is not due yet: whoever notes it is about to tell.
    pub(crate) fn note(&self, what: &Purge, reach: Reach) -> u64 {
        let mut owed = self.owed.lock();
        owed.numbered += 1;
        let number = owed.numbered;
        // The same that is due already need not be told twice.
        owed.purges.retain(|note| !note.is_due || note.what != *what || note.reach != reach);
        owed.put(Note { number, what: what.clone(), reach, before: None, is_due: false });
        self.count.store(owed.purges.len(), Ordering::Release);
        number
    }

    /// Notes all that it was told of, and may not know any more. They are due.
    pub(crate) fn owe_again(&self, all: Vec<Tombstone>) {
        let mut owed = self.owed.lock();
        owed.purges.retain(|note| note.before.is_none());
        for Tombstone { what, reach, token } in all {
            owed.numbered += 1;
            let number = owed.numbered;
            owed.put(Note { number, what, reach, before: Some(token), is_due: true });
        }
        self.count.store(owed.purges.len(), Ordering::Release);
    }

    pub(crate) fn forgive(&self, number: u64) {
        let mut owed = self.owed.lock();
        owed.purges.retain(|note| note.number != number);
        self.count.store(owed.purges.len(), Ordering::Release);
    }

    pub(crate) fn fall_due(&self, number: u64) {
        let mut owed = self.owed.lock();
        if let Some(note) = owed.purges.iter_mut().find(|note| note.number == number) {
            note.is_due = true;
        }
    }

    /// Some that are due, in their order.
    pub(crate) fn due(&self) -> Vec<Due> {
        if self.count() == 0 {
            return Vec::new();
        }
        let owed = self.owed.lock();
        let due = owed.purges.iter().filter(|note| note.is_due).take(DUE_MAX);
        let due = due.cloned();
        due.map(|Note { number, what, reach, before, .. }| Due { number, what, reach, before })
            .collect()
    }

    /// What all of them make of an entry.
    pub(crate) fn standing(&self, key: KeyRef<'_>, tags: &TagSet) -> Standing {
        if self.count() == 0 {
            return Standing::Good;
        }
        let owed = self.owed.lock();
        let reaching = owed.purges.iter().filter(|note| reaches(&note.what, key, tags));
        reaching.fold(Standing::Good, |worst, note| worst.max(standing_of(note.reach)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;
    use crate::era::BusId;

    #[test]
    fn what_is_owed_is_told_in_order_and_once() {
        let debts = PurgeDebts::default();
        let tag = |name: &str| Purge::Tag(name.into());
        let first = debts.note(&tag("red"), Reach::Hard);
        let second = debts.note(&tag("blue"), Reach::Soft);
        assert!(debts.due().is_empty(), "whoever noted them may still tell");
        let key = KeyBuf::new("shop");
        let standing = |name: &str| debts.standing(key.borrowed(), &TagSet::new([name]));
        assert_eq!(standing("red"), Standing::Gone);
        assert_eq!(standing("blue"), Standing::Softened);
        assert_eq!(standing("green"), Standing::Good);
        debts.fall_due(second);
        debts.fall_due(first);
        let numbers: Vec<u64> = debts.due().iter().map(|due| due.number).collect();
        assert_eq!(numbers, [first, second]);
        debts.fall_due(debts.note(&tag("red"), Reach::Hard));
        assert_eq!(debts.count(), 2, "the same again takes its place");
        for due in debts.due() {
            debts.forgive(due.number);
        }
        assert_eq!((debts.count(), standing("red")), (0, Standing::Good));
    }

    #[test]
    fn what_may_have_been_forgotten_is_due_once() {
        let debts = PurgeDebts::default();
        let token = |random| Token { id: BusId::default(), random };
        let tag = |name: &str| Purge::Tag(name.into());
        let first = debts.note(&tag("red"), Reach::Hard);
        for _ in 0..2 {
            let again = [("blue", 1), ("green", 2)].map(|(name, random)| Tombstone {
                what: tag(name),
                reach: Reach::Soft,
                token: token(random),
            });
            debts.owe_again(again.to_vec());
        }
        let due: Vec<_> = debts.due().into_iter().map(|due| (due.what, due.before)).collect();
        assert_eq!(due, [(tag("blue"), Some(token(1))), (tag("green"), Some(token(2)))]);
        debts.fall_due(first);
        assert_eq!(debts.due().len(), 3);
    }

    #[test]
    fn too_many_become_one_of_everything() {
        let debts = PurgeDebts::default();
        for number in 0..=PURGES_MAX {
            debts.fall_due(debts.note(&Purge::Tag(number.to_string().into()), Reach::Soft));
        }
        let all = Due { number: 0, what: Purge::All, reach: Reach::Hard, before: None };
        assert_eq!(debts.due(), [all]);
    }
}

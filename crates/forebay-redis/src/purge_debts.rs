//! Purges that an endpoint has to be told of, since it did not answer, or was not the one that is
//! used. What they reach is not read from it until then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::{KeyRef, Purge, Reach, Standing, TagSet};
use parking_lot::Mutex;

use crate::era::{reaches, standing_of};

/// How many purges an endpoint may have to be told of. Beyond it one of everything takes their
/// place: some entries are loaded again without need, none is served without right.
const PURGES_MAX: usize = 10_000;

/// How many are told at once.
const DUE_MAX: usize = 256;

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

struct Note {
    number: u64,
    what: Purge,
    reach: Reach,
    /// Whether whoever noted it has given up telling.
    is_due: bool,
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
        owed.purges.push_back(Note { number, what: what.clone(), reach, is_due: false });
        if owed.purges.len() > PURGES_MAX {
            owed.purges.clear();
            let (what, reach) = (Purge::All, Reach::Hard);
            owed.purges.push_back(Note { number: 0, what, reach, is_due: true });
        }
        self.count.store(owed.purges.len(), Ordering::Release);
        number
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
    pub(crate) fn due(&self) -> Vec<(u64, Purge, Reach)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let owed = self.owed.lock();
        let due = owed.purges.iter().filter(|note| note.is_due).take(DUE_MAX);
        due.map(|note| (note.number, note.what.clone(), note.reach)).collect()
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
        let numbers: Vec<u64> = debts.due().iter().map(|due| due.0).collect();
        assert_eq!(numbers, [first, second]);
        debts.fall_due(debts.note(&tag("red"), Reach::Hard));
        assert_eq!(debts.count(), 2, "the same again takes its place");
        for (number, ..) in debts.due() {
            debts.forgive(number);
        }
        assert_eq!((debts.count(), standing("red")), (0, Standing::Good));
    }

    #[test]
    fn too_many_become_one_of_everything() {
        let debts = PurgeDebts::default();
        for number in 0..=PURGES_MAX {
            debts.fall_due(debts.note(&Purge::Tag(number.to_string().into()), Reach::Soft));
        }
        assert_eq!(debts.due(), [(0, Purge::All, Reach::Hard)]);
    }
}

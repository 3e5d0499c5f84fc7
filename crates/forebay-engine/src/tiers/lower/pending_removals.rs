//! Removals that a tier has not carried out yet.

use std::collections::HashMap;

use forebay_core::{Key, KeyRef};

/// Maximum number of pending removals. Beyond it the tier is not used any more.
const DEBTS_MAX: usize = 10_000;

/// Removals that have failed. The entry of such a key is purged, so the tier is not read for the
/// key until the removal has succeeded.
#[derive(Debug, Default)]
pub(super) struct Debts {
    keys: HashMap<Key, u64, ahash::RandomState>,
    noted: u64,
    too_many: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Debt {
    Nothing,
    /// Pending removal with its number: another one may be added while it is carried out.
    Removal(u64),
    Everything,
}

impl Debts {
    pub(super) fn of(&self, primary: KeyRef<'_>) -> Debt {
        if self.too_many {
            return Debt::Everything;
        }
        if self.keys.is_empty() {
            return Debt::Nothing;
        }
        self.keys.get(primary.bytes()).map_or(Debt::Nothing, |number| Debt::Removal(*number))
    }

    pub(super) fn note(&mut self, primary: KeyRef<'_>) {
        if self.too_many {
            return;
        }
        self.noted += 1;
        self.keys.insert(primary.to_key(), self.noted);
        self.too_many = self.keys.len() > DEBTS_MAX;
    }

    pub(super) fn forgive(&mut self, primary: KeyRef<'_>, number: u64) -> bool {
        let is_paid = self.of(primary) == Debt::Removal(number);
        if is_paid {
            self.keys.remove(primary.bytes());
        }
        // Another task may have carried out the same removal.
        self.of(primary) == Debt::Nothing
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    #[test]
    fn a_removal_that_is_owed_again_meanwhile_is_not_forgiven() {
        let mut debts = Debts::default();
        let key = KeyBuf::new("test");
        let key = key.borrowed();
        assert_eq!(debts.of(key), Debt::Nothing);
        debts.note(key);
        debts.note(key);
        assert!(!debts.forgive(key, 1));
        assert_eq!(debts.of(key), Debt::Removal(2));
        assert!(debts.forgive(key, 2));
        assert_eq!(debts.of(key), Debt::Nothing);
    }

    #[test]
    fn a_tier_that_owes_too_much_is_used_no_more() {
        let mut debts = Debts::default();
        for number in 0..=DEBTS_MAX as u64 {
            let key = KeyBuf::new("test").part(&number.to_le_bytes()).clone();
            debts.note(key.borrowed());
        }
        assert_eq!(debts.of(KeyBuf::new("other").borrowed()), Debt::Everything);
    }
}

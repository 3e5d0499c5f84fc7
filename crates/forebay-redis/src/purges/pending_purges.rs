//! Purges that an endpoint has not received, because it did not answer or was not in use. Entries
//! that they target are not read from it meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::{KeyRef, Purge, PurgeState, Reach, TagSet};
use parking_lot::Mutex;

use crate::purges::generation::{Token, reaches, standing_of};
use crate::purges::tombstones::Tombstone;

/// Maximum number of pending purges. Beyond it one purge of everything replaces them: entries are
/// loaded again, and none is served wrongly.
const PURGES_MAX: usize = 10_000;

/// Maximum number of purges per batch.
const SCHEDULED_MAX: usize = 256;

/// A purge to publish now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScheduledPurge {
    pub(crate) number: u64,
    pub(crate) what: Purge,
    pub(crate) reach: Reach,
    /// Token of an earlier publication; a server that still has it does not need the purge again.
    pub(crate) before: Option<Token>,
}

#[derive(Default)]
pub(crate) struct PendingPurges {
    /// Number of pending purges, readable without the lock.
    count: AtomicUsize,
    state: Mutex<Purges>,
}

#[derive(Default)]
struct Purges {
    purges: VecDeque<Entry>,
    last_number: u64,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    what: Purge,
    reach: Reach,
    /// Token of an earlier publication, if any.
    before: Option<Token>,
    /// True if the caller that added the purge has given up publishing it.
    is_scheduled: bool,
}

impl Purges {
    fn put(&mut self, entry: Entry) {
        self.purges.push_back(entry);
        if self.purges.len() > PURGES_MAX {
            self.purges.clear();
            let (what, reach) = (Purge::All, Reach::Hard);
            self.purges.push_back(Entry {
                number: 0,
                what,
                reach,
                before: None,
                is_scheduled: true,
            });
        }
    }
}

impl PendingPurges {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Adds a purge. It is not scheduled yet, since the caller publishes it itself.
    pub(crate) fn add(&self, what: &Purge, reach: Reach) -> u64 {
        let mut state = self.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        // An equal scheduled purge is replaced.
        state
            .purges
            .retain(|entry| !entry.is_scheduled || entry.what != *what || entry.reach != reach);
        state.put(Entry { number, what: what.clone(), reach, before: None, is_scheduled: false });
        self.count.store(state.purges.len(), Ordering::Release);
        number
    }

    /// Schedules all purges that the endpoint may have lost.
    pub(crate) fn republish_all(&self, all: Vec<Tombstone>) {
        let mut state = self.state.lock();
        state.purges.retain(|entry| entry.before.is_none());
        for Tombstone { what, reach, token } in all {
            state.last_number += 1;
            let number = state.last_number;
            state.put(Entry { number, what, reach, before: Some(token), is_scheduled: true });
        }
        self.count.store(state.purges.len(), Ordering::Release);
    }

    pub(crate) fn complete(&self, number: u64) {
        let mut state = self.state.lock();
        state.purges.retain(|entry| entry.number != number);
        self.count.store(state.purges.len(), Ordering::Release);
    }

    pub(crate) fn schedule(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(entry) = state.purges.iter_mut().find(|entry| entry.number == number) {
            entry.is_scheduled = true;
        }
    }

    /// Returns the next scheduled purges, in order.
    pub(crate) fn scheduled(&self) -> Vec<ScheduledPurge> {
        if self.count() == 0 {
            return Vec::new();
        }
        let state = self.state.lock();
        let scheduled = state.purges.iter().filter(|entry| entry.is_scheduled).take(SCHEDULED_MAX);
        let scheduled = scheduled.cloned();
        scheduled
            .map(|Entry { number, what, reach, before, .. }| ScheduledPurge {
                number,
                what,
                reach,
                before,
            })
            .collect()
    }

    /// Returns the purge state of an entry under all pending purges.
    pub(crate) fn standing(&self, key: KeyRef<'_>, tags: &TagSet) -> PurgeState {
        if self.count() == 0 {
            return PurgeState::Valid;
        }
        let state = self.state.lock();
        let reaching = state.purges.iter().filter(|entry| reaches(&entry.what, key, tags));
        reaching.fold(PurgeState::Valid, |worst, entry| worst.max(standing_of(entry.reach)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;
    use crate::purges::generation::BusId;

    #[test]
    fn pending_purges_are_scheduled_in_order_and_once() {
        let pending = PendingPurges::default();
        let tag = |name: &str| Purge::Tag(name.into());
        let first = pending.add(&tag("red"), Reach::Hard);
        let second = pending.add(&tag("blue"), Reach::Soft);
        assert!(pending.scheduled().is_empty(), "their callers may still publish them");
        let key = KeyBuf::new("shop");
        let standing = |name: &str| pending.standing(key.borrowed(), &TagSet::new([name]));
        assert_eq!(standing("red"), PurgeState::Removed);
        assert_eq!(standing("blue"), PurgeState::SoftPurged);
        assert_eq!(standing("green"), PurgeState::Valid);
        pending.schedule(second);
        pending.schedule(first);
        let numbers: Vec<u64> =
            pending.scheduled().iter().map(|scheduled| scheduled.number).collect();
        assert_eq!(numbers, [first, second]);
        pending.schedule(pending.add(&tag("red"), Reach::Hard));
        assert_eq!(pending.count(), 2, "the same again takes its place");
        for scheduled in pending.scheduled() {
            pending.complete(scheduled.number);
        }
        assert_eq!((pending.count(), standing("red")), (0, PurgeState::Valid));
    }

    #[test]
    fn lost_purge_is_scheduled_once() {
        let pending = PendingPurges::default();
        let token = |random| Token { id: BusId::default(), random };
        let tag = |name: &str| Purge::Tag(name.into());
        let first = pending.add(&tag("red"), Reach::Hard);
        for _ in 0..2 {
            let again = [("blue", 1), ("green", 2)].map(|(name, random)| Tombstone {
                what: tag(name),
                reach: Reach::Soft,
                token: token(random),
            });
            pending.republish_all(again.to_vec());
        }
        let scheduled: Vec<_> = pending
            .scheduled()
            .into_iter()
            .map(|scheduled| (scheduled.what, scheduled.before))
            .collect();
        assert_eq!(scheduled, [(tag("blue"), Some(token(1))), (tag("green"), Some(token(2)))]);
        pending.schedule(first);
        assert_eq!(pending.scheduled().len(), 3);
    }

    #[test]
    fn too_many_pending_purges_become_one_of_everything() {
        let pending = PendingPurges::default();
        for number in 0..=PURGES_MAX {
            pending.schedule(pending.add(&Purge::Tag(number.to_string().into()), Reach::Soft));
        }
        let all = ScheduledPurge { number: 0, what: Purge::All, reach: Reach::Hard, before: None };
        assert_eq!(pending.scheduled(), [all]);
    }
}

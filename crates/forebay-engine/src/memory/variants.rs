//! Who belongs to a family of variants, and who of them was used last.
//!
//! A lookup never comes here for more than to say that it took place; the list is gone through
//! when a variant is added.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use forebay_core::Key;

use crate::entry::Entry;
use crate::runtime::sync::Mutex;

/// What a member costs beside its entry.
pub(super) const MEMBER_OVERHEAD: usize = size_of::<Member>();

/// The members of one family.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Grows by one with each use.
    turn: AtomicU32,
    list: Mutex<Vec<Member>>,
}

#[derive(Debug)]
struct Member {
    key: Key,
    /// What stands there, as long as memory or somebody else has it.
    entry: Weak<Entry>,
}

impl Member {
    /// Who has left memory has not been used for longer than all others.
    fn idle(&self, turn: u32) -> u32 {
        self.entry.upgrade().map_or(u32::MAX, |entry| idle(&entry, turn))
    }
}

/// For how many turns it has not been used. Who has not been for four thousand million of them
/// may seem to be in use.
fn idle(entry: &Entry, turn: u32) -> u32 {
    turn.wrapping_sub(entry.used.load(Ordering::Relaxed))
}

impl Members {
    /// This one has just been used.
    pub(super) fn touch(&self, entry: &Entry) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        entry.used.store(turn, Ordering::Relaxed);
    }

    /// Takes a member in, and gives back who has to leave so that there are `most` at most: those
    /// that were used longest ago.
    pub(super) fn admit(&self, key: &Key, entry: &Arc<Entry>, most: usize) -> Vec<Key> {
        self.touch(entry);
        let mut list = self.list.lock();
        list.retain(|member| member.key != *key);
        let mut leaving = Vec::new();
        while list.len() >= most.max(1) {
            let turn = self.turn.load(Ordering::Relaxed);
            let oldest =
                list.iter().enumerate().min_by_key(|(_, member)| Reverse(member.idle(turn)));
            let Some((place, _)) = oldest else { break };
            leaving.push(list.swap_remove(place).key);
        }
        list.push(Member { key: key.clone(), entry: Arc::downgrade(entry) });
        leaving
    }
}

//! Members of a family of variants, in the order of their last use.
//!
//! A lookup only counts a use; the list is searched when a variant is added.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use forebay_core::Key;

use crate::entry::Entry;
use crate::runtime::sync::Mutex;

/// Size of a member besides its entry.
pub(super) const MEMBER_OVERHEAD: usize = size_of::<Member>();

/// Members of one family.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Number of uses so far.
    turn: AtomicU32,
    list: Mutex<Vec<Member>>,
}

#[derive(Debug)]
struct Member {
    key: Key,
    /// Entry, while it is in memory or in use.
    entry: Weak<Entry>,
}

impl Member {
    /// A member that has left memory counts as unused for the longest time.
    fn idle(&self, turn: u32) -> u32 {
        self.entry.upgrade().map_or(u32::MAX, |entry| idle(&entry, turn))
    }
}

/// Returns the number of uses of the family since the last use of an entry. It wraps around after
/// four thousand million.
fn idle(entry: &Entry, turn: u32) -> u32 {
    turn.wrapping_sub(entry.used.load(Ordering::Relaxed))
}

impl Members {
    /// Returns the keys of all members; some may have left memory.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.list.lock().iter().map(|member| member.key.clone()).collect()
    }

    /// Notes a use of an entry.
    pub(super) fn touch(&self, entry: &Entry) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        entry.used.store(turn, Ordering::Relaxed);
    }

    /// Adds a member, and returns the least recently used ones to be removed, so that at most
    /// `most` remain.
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

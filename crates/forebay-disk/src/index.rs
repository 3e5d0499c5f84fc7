//! Locations of all entries, and purges that name no single key.
//!
//! The index takes 28 bytes of memory per entry, without the key. This folder uses `format`; it never
//! sees files, the queue or the log.

pub(crate) mod prefixes;
pub(crate) mod purge_marks;
pub(crate) mod residence;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::format::layout::{Digest, Location};

/// Number of shards. Growing one delays few readers, for less than a millisecond with millions of
/// entries.
const SHARDS: usize = 64;

type Shard = HashMap<Digest, Location, ahash::RandomState>;

/// Locations of all readable entries.
pub(crate) struct Index {
    shards: [Mutex<Shard>; SHARDS],
    entries: AtomicU64,
    /// True while earlier segments are being loaded.
    is_loading: AtomicBool,
}

impl Index {
    pub(crate) fn new() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, entries: AtomicU64::new(0), is_loading: AtomicBool::new(true) }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn shard(&self, digest: Digest) -> &Mutex<Shard> {
        &self.shards[digest.shard(SHARDS)]
    }

    /// Returns the location and marks the entry as hit.
    pub(crate) fn hit(&self, digest: Digest) -> Option<Location> {
        let mut shard = self.shard(digest).lock();
        let location = shard.get_mut(&digest).filter(|location| !location.is_gone())?;
        location.mark_hit();
        Some(*location)
    }

    /// Returns the location without marking the entry as hit.
    pub(crate) fn get(&self, digest: Digest) -> Option<Location> {
        self.shard(digest).lock().get(&digest).copied().filter(|location| !location.is_gone())
    }

    /// Inserts a location and returns the previous one.
    pub(crate) fn put(&self, digest: Digest, location: Location) -> Option<Location> {
        let before = self
            .shard(digest)
            .lock()
            .insert(digest, location)
            .filter(|location| !location.is_gone());
        if before.is_none() {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// Inserts a location unless the entry has one.
    pub(crate) fn put_if_absent(&self, digest: Digest, location: Location) -> bool {
        let mut shard = self.shard(digest).lock();
        if shard.contains_key(&digest) {
            return false;
        }
        shard.insert(digest, location);
        self.entries.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(crate) fn remove(&self, digest: Digest) -> Option<Location> {
        let removed =
            self.shard(digest).lock().remove(&digest).filter(|location| !location.is_gone());
        self.left(usize::from(removed.is_some()));
        removed
    }

    /// Removes the entry if it is still at this location. While segments are loaded a tombstone
    /// stays, so that no older version is inserted.
    pub(crate) fn remove_if(&self, digest: Digest, location: Location) -> bool {
        let mut shard = self.shard(digest).lock();
        let is_current = |found: &&mut Location| found.is(location) && !found.is_gone();
        let Some(found) = shard.get_mut(&digest).filter(is_current) else { return false };
        found.mark_gone();
        if !self.is_loading.load(Ordering::Relaxed) {
            shard.remove(&digest);
        }
        self.left(1);
        true
    }

    /// Ends the loading of segments and drops the tombstones.
    pub(crate) fn finish_loading(&self) {
        self.is_loading.store(false, Ordering::Relaxed);
        // A thread that has seen the old flag holds the lock of its shard.
        for shard in &self.shards {
            shard.lock().retain(|_, location| !location.is_gone());
        }
    }

    /// Moves the entry if it is still at `from`.
    pub(crate) fn move_if(&self, digest: Digest, from: Location, to: Location) -> bool {
        let mut shard = self.shard(digest).lock();
        match shard.get_mut(&digest) {
            Some(found) if found.is(from) && !found.is_gone() => *found = to,
            _ => return false,
        }
        true
    }

    /// Returns all hit entries of a segment in the order of their offsets.
    pub(crate) fn hits_in(&self, segment: u32) -> Vec<(Digest, Location)> {
        let mut hits = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let inside = |location: &Location| {
                location.segment == segment && location.was_hit() && !location.is_gone()
            };
            hits.extend(
                shard.iter().filter(|(_, location)| inside(location)).map(|(key, at)| (*key, *at)),
            );
        }
        hits.sort_unstable_by_key(|(_, location)| location.offset);
        hits
    }

    /// Removes all entries of a segment and returns their number.
    pub(crate) fn forget(&self, segment: u32) -> usize {
        let mut forgotten = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|_, location| {
                let goes = location.segment == segment;
                forgotten += usize::from(goes && !location.is_gone());
                !goes
            });
        }
        self.left(forgotten);
        forgotten
    }

    fn left(&self, count: usize) {
        self.entries.fetch_sub(count as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::{Kind, Row, Seed};

    fn digest(number: u8) -> Digest {
        Digest::of(&[number], Seed(1))
    }

    fn location(segment: u32, offset: u32) -> Location {
        let row = Row { digest: digest(0), offset, len: 80, kind: Kind::Entry };
        Location::new(segment, &row)
    }

    #[test]
    fn outdated_location_is_neither_moved_nor_removed() {
        let index = Index::new();
        index.put(digest(1), location(1, 40));
        assert!(!index.put_if_absent(digest(1), location(0, 40)));
        assert_eq!(index.put(digest(1), location(2, 40)), Some(location(1, 40)));
        assert!(!index.remove_if(digest(1), location(1, 40)));
        assert!(!index.move_if(digest(1), location(1, 40), location(3, 40)));
        assert!(index.move_if(digest(1), location(2, 40), location(3, 40)));
        assert!(index.remove_if(digest(1), location(3, 40)));
        assert_eq!((index.entries(), index.remove(digest(1))), (0, None));
    }

    #[test]
    fn tombstone_stays_while_segments_are_loaded() {
        let index = Index::new();
        index.put(digest(1), location(2, 40));
        assert!(
            index.remove_if(digest(1), location(2, 40))
                && !index.remove_if(digest(1), location(2, 40))
        );
        assert!(!index.put_if_absent(digest(1), location(1, 40)), "it is older");
        assert_eq!((index.hit(digest(1)), index.entries()), (None, 0));
        assert!(!index.move_if(digest(1), location(2, 40), location(3, 40)));
        assert_eq!((index.forget(2), index.hits_in(2).len()), (0, 0));
        assert!(
            index.put_if_absent(digest(1), location(1, 40))
                && index.remove_if(digest(1), location(1, 40))
        );
        index.finish_loading();
        assert!(
            index.put_if_absent(digest(1), location(0, 40))
                && index.remove_if(digest(1), location(0, 40))
        );
        assert!(index.put_if_absent(digest(1), location(0, 80)), "nothing is kept of it now");
        assert_eq!(index.put(digest(1), location(4, 40)), Some(location(0, 80)));
    }

    #[test]
    fn hits_of_a_segment_are_returned_in_order() {
        let index = Index::new();
        for number in (0..100_u8).rev() {
            index.put(digest(number), location(u32::from(number) % 2, u32::from(number) * 80));
        }
        for number in [9, 4, 5, 50, 1] {
            index.hit(digest(number));
        }
        let offsets: Vec<u32> =
            index.hits_in(1).iter().map(|(_, location)| location.offset / 80).collect();
        assert_eq!(offsets, [1, 5, 9]);
        assert_eq!((index.forget(1), index.entries()), (50, 50));
        assert_eq!(index.hits_in(1), []);
    }
}

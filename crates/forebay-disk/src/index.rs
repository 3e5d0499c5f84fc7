//! Where each entry stands: 28 bytes in memory for each, and no key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::layout::{Digest, Spot};

/// How many parts the index has: a part that grows holds up a few readers, and for less than a
/// millisecond even with millions of entries.
const SHARDS: usize = 64;

type Shard = HashMap<Digest, Spot, ahash::RandomState>;

/// All entries that can be read.
pub(crate) struct Index {
    shards: [Mutex<Shard>; SHARDS],
    entries: AtomicU64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), entries: AtomicU64::new(0) }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    fn shard(&self, digest: Digest) -> &Mutex<Shard> {
        &self.shards[digest.shard(SHARDS)]
    }

    /// Where it stands; from now on it counts as hit.
    pub(crate) fn hit(&self, digest: Digest) -> Option<Spot> {
        let mut shard = self.shard(digest).lock();
        let spot = shard.get_mut(&digest)?;
        spot.mark_hit();
        Some(*spot)
    }

    /// Puts it there, and tells what stood there before.
    pub(crate) fn put(&self, digest: Digest, spot: Spot) -> Option<Spot> {
        let before = self.shard(digest).lock().insert(digest, spot);
        if before.is_none() {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// Puts it there if nothing stands there.
    pub(crate) fn put_if_absent(&self, digest: Digest, spot: Spot) -> bool {
        let mut shard = self.shard(digest).lock();
        if shard.contains_key(&digest) {
            return false;
        }
        shard.insert(digest, spot);
        self.entries.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(crate) fn remove(&self, digest: Digest) -> Option<Spot> {
        let removed = self.shard(digest).lock().remove(&digest);
        self.left(usize::from(removed.is_some()));
        removed
    }

    /// Removes it if it still stands there.
    pub(crate) fn remove_if(&self, digest: Digest, spot: Spot) -> bool {
        let mut shard = self.shard(digest).lock();
        let stands = shard.get(&digest).is_some_and(|found| found.is(spot));
        if stands {
            shard.remove(&digest);
            self.left(1);
        }
        stands
    }

    /// Moves it if it still stands where it stood.
    pub(crate) fn move_if(&self, digest: Digest, (from, to): (Spot, Spot)) -> bool {
        let mut shard = self.shard(digest).lock();
        match shard.get_mut(&digest) {
            Some(found) if found.is(from) => *found = to,
            _ => return false,
        }
        true
    }

    /// Everything in a segment that was hit, in the order in which it stands there.
    pub(crate) fn hits_in(&self, segment: u32) -> Vec<(Digest, Spot)> {
        let mut hits = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let inside = |spot: &Spot| spot.segment == segment && spot.was_hit();
            hits.extend(shard.iter().filter(|(_, spot)| inside(spot)).map(|(key, at)| (*key, *at)));
        }
        hits.sort_unstable_by_key(|(_, spot)| spot.offset);
        hits
    }

    /// Removes everything in a segment, and tells how much that was.
    pub(crate) fn forget(&self, segment: u32) -> usize {
        let mut forgotten = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.len();
            shard.retain(|_, spot| spot.segment != segment);
            forgotten += before - shard.len();
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
    use crate::layout::{Kind, Row, Seed};

    fn digest(number: u8) -> Digest {
        Digest::of(&[number], Seed(1))
    }

    fn spot(segment: u32, offset: u32) -> Spot {
        let row = Row { digest: digest(0), offset, len: 80, kind: Kind::Entry };
        Spot::new(segment, &row)
    }

    #[test]
    fn what_is_not_there_any_more_is_neither_moved_nor_removed() {
        let index = Index::new();
        index.put(digest(1), spot(1, 40));
        assert!(!index.put_if_absent(digest(1), spot(0, 40)));
        assert_eq!(index.put(digest(1), spot(2, 40)), Some(spot(1, 40)));
        assert!(!index.remove_if(digest(1), spot(1, 40)));
        assert!(!index.move_if(digest(1), (spot(1, 40), spot(3, 40))));
        assert!(index.move_if(digest(1), (spot(2, 40), spot(3, 40))));
        assert!(index.remove_if(digest(1), spot(3, 40)));
        assert_eq!((index.entries(), index.remove(digest(1))), (0, None));
    }

    #[test]
    fn what_was_hit_in_a_segment_is_told_in_order_before_it_is_forgotten() {
        let index = Index::new();
        for number in (0..100_u8).rev() {
            index.put(digest(number), spot(u32::from(number) % 2, u32::from(number) * 80));
        }
        for number in [9, 4, 5, 50, 1] {
            index.hit(digest(number));
        }
        let offsets: Vec<u32> = index.hits_in(1).iter().map(|(_, spot)| spot.offset / 80).collect();
        assert_eq!(offsets, [1, 5, 9]);
        assert_eq!((index.forget(1), index.entries()), (50, 50));
        assert_eq!(index.hits_in(1), []);
    }
}

//! Store of entries by key, bounded in bytes, and their eviction.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::key::Name;
use forebay_core::{Key, KeyRef, Vary, heap};
use quick_cache::{Equivalent, Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;

use super::variants::{MEMBER_OVERHEAD, Members};
use crate::entry::body::Body;
use crate::entry::in_flight::{Charged, InFlight};
use crate::entry::{Entry, SLOT_OVERHEAD};
use crate::runtime::sync::Cache;

/// Number of the largest entries that must fit into a shard. The store refuses an entry larger than
/// the share of a shard.
const HEAVIEST_PER_SHARD: u64 = 4;

/// Maximum number of shards per core; more bring nothing.
const SHARDS_PER_CORE: usize = 4;

/// Minimum estimate of the number of entries.
pub(super) const ITEMS_MIN: u64 = 64;

/// Maximum number of entries for which the tables are reserved at the start, so that they are not
/// moved while they fill. Unused memory is not touched, and so not allocated by the system.
const RESERVED_MAX: u64 = 1 << 20;

/// Bounds of a store, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Size of all entries.
    pub(super) size: u64,
    /// Size of one entry.
    pub(super) object_max: u64,
    /// Typical size of an entry, which decides how many evicted keys are remembered.
    pub(super) typical: u64,
}

/// Value of a key.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Entry(Arc<Entry>),
    /// The key has variants, which have keys of their own.
    Variants(Arc<Variants>),
}

/// Family of variants of a primary key.
#[derive(Debug)]
pub(super) struct Variants {
    pub(super) vary: Vary,
    /// Part of every variant's key: a new generation makes all old variants unreachable.
    pub(super) generation: u64,
    /// Stored variants.
    pub(super) members: Members,
}

impl Variants {
    pub(super) fn new(vary: &Vary, generation: u64) -> Arc<Self> {
        Arc::new(Self { vary: vary.clone(), generation, members: Members::default() })
    }
}

/// Key with its slot. For the store both are the key, and the value is empty: the store returns
/// clones of values, and the clone of a pointer is two writes to a cache line that all readers
/// share. The slot is read while the store compares keys.
#[derive(Debug)]
struct Held {
    key: Key,
    slot: Slot,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Held {}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.key.borrowed().tail());
    }
}

/// Key of a lookup, owned or in parts.
pub(super) trait Asked {
    fn tail(&self) -> &[u8];
    fn is(&self, key: KeyRef<'_>) -> bool;
}

impl Asked for KeyRef<'_> {
    #[inline]
    fn tail(&self) -> &[u8] {
        (*self).tail()
    }

    #[inline]
    fn is(&self, key: KeyRef<'_>) -> bool {
        *self == key
    }
}

impl Asked for Name<'_> {
    #[inline]
    fn tail(&self) -> &[u8] {
        (*self).tail()
    }

    #[inline]
    fn is(&self, key: KeyRef<'_>) -> bool {
        (*self).is(key)
    }
}

/// Lookup of a key, with a function that reads the slot.
struct Question<A, F> {
    asked: A,
    found: F,
}

impl<A: Asked, F> Hash for Question<A, F> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.asked.tail());
    }
}

impl<A: Asked, F: Fn(&Slot)> Equivalent<Held> for Question<A, F> {
    #[inline]
    fn equivalent(&self, held: &Held) -> bool {
        let is_it = self.asked.is(held.key.borrowed());
        if is_it {
            (self.found)(&held.slot);
        }
        is_it
    }
}

#[derive(Debug)]
pub(super) struct Slots {
    slots: Cache<Held, (), ByBytes, ahash::RandomState, Leaving>,
    evicted: Arc<AtomicU64>,
    object_max: u64,
    in_flight: Arc<InFlight>,
}

impl Slots {
    pub(super) fn new(bounds: Bounds, in_flight: &Arc<InFlight>) -> Self {
        let Bounds { size, object_max, typical } = bounds;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let by_weight = size / object_max.clamp(1, size.max(1)) / HEAVIEST_PER_SHARD;
        let shards = usize::try_from(by_weight).unwrap_or(1).clamp(1, cores * SHARDS_PER_CORE);
        let items = usize::try_from((size / typical).max(ITEMS_MIN)).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(size)
            .estimated_items_capacity(items)
            .build()
            .expect("capacity and item estimate are both given");
        let evicted = Arc::new(AtomicU64::new(0));
        let lifecycle = Leaving { evicted: evicted.clone(), in_flight: in_flight.clone() };
        let hasher = ahash::RandomState::new();
        let slots = Cache::with_options(options, ByBytes, hasher, lifecycle);
        Self { slots, evicted, object_max, in_flight: in_flight.clone() }
    }

    /// Reserves the tables for the number of typical entries.
    pub(super) fn reserve(&self, bounds: Bounds) {
        let entries = (bounds.size / bounds.typical).min(RESERVED_MAX);
        self.slots.reserve(usize::try_from(entries).unwrap_or(0));
    }

    /// Calls `found` with the slot of a key, with the store locked. Counts as a use.
    #[inline]
    pub(super) fn see(&self, asked: impl Asked, found: impl Fn(&Slot)) {
        self.slots.get(&Question { asked, found });
    }

    /// Returns the slot of a key. Counts as a use.
    pub(super) fn get(&self, key: KeyRef<'_>) -> Option<Slot> {
        let slot = Cell::new(None);
        self.see(key, |found| slot.set(Some(found.clone())));
        slot.into_inner()
    }

    /// Returns the slot of a key, without counting as a use.
    pub(super) fn peek(&self, key: KeyRef<'_>) -> Option<Slot> {
        let slot = Cell::new(None);
        let found = |found: &Slot| slot.set(Some(found.clone()));
        self.slots.peek(&Question { asked: key, found });
        slot.into_inner()
    }

    pub(super) fn has(&self, key: KeyRef<'_>) -> bool {
        self.slots.contains_key(&Question { asked: key, found: |_: &Slot| () })
    }

    pub(super) fn insert(&self, key: Key, slot: Slot) {
        // Released after evicted entries are charged: otherwise memory would seem free in between.
        let _charged: SmallVec<[Charged; 1]> = match &slot {
            Slot::Entry(entry) => entry.bodies().filter_map(Body::settle).collect(),
            Slot::Variants(_) => SmallVec::new(),
        };
        self.slots.insert(Held { key, slot }, ());
    }

    pub(super) fn remove(&self, key: KeyRef<'_>) -> bool {
        let removed = self.slots.remove(&Question { asked: key, found: |_: &Slot| () });
        removed.map(|(held, ())| held.slot.leave(&self.in_flight)).is_some()
    }

    /// Evicts a key.
    pub(super) fn evict(&self, key: KeyRef<'_>) {
        self.evicted.fetch_add(u64::from(self.remove(key)), Ordering::Relaxed);
    }

    pub(super) const fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    pub(super) const fn object_max(&self) -> u64 {
        self.object_max
    }

    pub(super) fn bytes(&self) -> u64 {
        self.slots.weight()
    }

    pub(super) fn count(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Held, ()> for ByBytes {
    fn weight(&self, Held { key, slot }: &Held, (): &()) -> u64 {
        match slot {
            Slot::Entry(entry) => {
                let member = if entry.meta.vary().is_some() { MEMBER_OVERHEAD } else { 0 };
                entry.charge(key.heap_size()) + member as u64
            }
            Slot::Variants(variants) => {
                let own = heap::shared(size_of::<Variants>()) + SLOT_OVERHEAD;
                (key.heap_size() + variants.vary.heap_size() + own) as u64
            }
        }
    }
}

impl Slot {
    /// Charges the bodies of an evicted entry to their readers.
    fn leave(self, in_flight: &Arc<InFlight>) {
        if let Self::Entry(entry) = self {
            let shared = Arc::strong_count(&entry) > 1;
            entry.bodies().for_each(|body| body.unsettle(in_flight, shared));
        }
    }
}

/// Hook of evictions.
#[derive(Clone, Debug)]
struct Leaving {
    evicted: Arc<AtomicU64>,
    in_flight: Arc<InFlight>,
}

/// Evicted slots, released after the store is unlocked.
#[derive(Default)]
struct Left(SmallVec<[(Slot, Arc<InFlight>); 1]>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(slot, in_flight)| slot.leave(&in_flight));
    }
}

impl Lifecycle<Held, ()> for Leaving {
    type RequestState = Left;

    /// Called for evictions only, not when an entry is replaced.
    fn before_evict(&self, _left: &mut Left, _held: &Held, (): &mut ()) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    fn on_evict(&self, left: &mut Left, held: Held, (): ()) {
        left.0.push((held.slot, self.in_flight.clone()));
    }
}

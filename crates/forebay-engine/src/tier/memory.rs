//! L1: memory, concrete and synchronous, bounded in bytes.

mod family;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::{Key, KeyRef, Vary, key};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::entry::Entry;
use crate::load::{Select, selected};
use crate::sync::Cache;
use family::{MEMBER_OVERHEAD, Members};

/// The size of an entry that the first table is laid out for; it grows as needed.
const TYPICAL_ENTRY: u64 = 8 << 10;

/// How many of the heaviest objects a shard must have room for. The store refuses what is
/// heavier than a shard's share.
const HEAVIEST_PER_SHARD: u64 = 4;

/// Shards beyond this many per core bring nothing.
const SHARDS_PER_CORE: usize = 4;

/// What a slot costs that holds no entry.
const SLOT_OVERHEAD: u64 = 160;

/// The memory tier.
#[derive(Debug)]
pub struct MemoryTier {
    slots: Cache<Key, Slot, ByBytes, ahash::RandomState, Evictions>,
    evicted: Arc<AtomicU64>,
    generations: AtomicU64,
    object_max: u64,
}

/// What stands under a key.
#[derive(Clone, Debug)]
enum Slot {
    Entry(Arc<Entry>),
    /// The key has variants; they stand under keys of their own.
    Variants(Variants),
}

/// The family of variants of a primary key.
#[derive(Clone, Debug)]
struct Variants {
    vary: Vary,
    /// Part of every variant's key: a new generation leaves all old variants behind.
    generation: u64,
    /// Those that have been stored, for whoever wants all of them.
    members: Arc<Members>,
}

impl Variants {
    fn new(vary: &Vary, generation: u64) -> Self {
        Self { vary: vary.clone(), generation, members: Arc::default() }
    }
}

/// What a lookup found.
pub(crate) enum Found {
    /// An entry.
    Entry(Arc<Entry>),
    /// Variants are known by these fields, but not the one that this request selects.
    NoVariant(Vary),
    /// Nothing.
    Nothing,
}

impl MemoryTier {
    /// A tier of at most `size` bytes that takes entries of up to `object_max` bytes.
    #[must_use]
    pub fn new(size: u64, object_max: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let by_weight = size / object_max.clamp(1, size.max(1)) / HEAVIEST_PER_SHARD;
        let shards = usize::try_from(by_weight).unwrap_or(1).clamp(1, cores * SHARDS_PER_CORE);
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(size)
            .estimated_items_capacity(usize::try_from(size / TYPICAL_ENTRY).unwrap_or(1).max(64))
            .build()
            .expect("capacity and item estimate are both given");
        let evicted = Arc::new(AtomicU64::new(0));
        let lifecycle = Evictions(evicted.clone());
        let hasher = ahash::RandomState::new();
        let slots = Cache::with_options(options, ByBytes, hasher, lifecycle);
        let generations = AtomicU64::new(crate::clock::random_seed());
        Self { slots, evicted, generations, object_max }
    }

    /// The entry under exactly this key, if it has no variants.
    #[must_use]
    pub fn get(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        match self.slots.get(key.bytes())? {
            Slot::Entry(entry) => Some(entry),
            Slot::Variants(_) => None,
        }
    }

    /// The entry that this selection chooses under a primary key.
    #[inline]
    pub(crate) fn find(&self, primary: KeyRef<'_>, select: &dyn Select) -> Found {
        match self.slots.get(primary.bytes()) {
            None => Found::Nothing,
            Some(Slot::Entry(entry)) => Found::Entry(entry),
            Some(Slot::Variants(variants)) => self.find_variant(primary, select, variants),
        }
    }

    fn find_variant(&self, primary: KeyRef<'_>, select: &dyn Select, variants: Variants) -> Found {
        let fields = selected(&variants.vary, select);
        let key = key::variant(primary, variants.generation, fields);
        match self.get(key.borrowed()) {
            Some(entry) => {
                variants.members.touch(&entry);
                Found::Entry(entry)
            }
            None => Found::NoVariant(variants.vary),
        }
    }

    /// Makes the family of variants known as soon as a head names them, so that those who wait
    /// for the first variant can board their own. What stands there, an entry or another family,
    /// stays until the answer has come whole: a broken refresh leaves it untouched.
    pub(crate) fn announce(&self, primary: KeyRef<'_>, vary: &Vary) {
        if self.slots.peek(primary.bytes()).is_none() {
            self.variants(primary, vary);
        }
    }

    /// Takes over the family of variants that a lower tier knows, so that both mean the same by
    /// its generation. An entry that stands there stays, and so does another family: what memory
    /// knows came later.
    pub(crate) fn adopt(&self, primary: KeyRef<'_>, (vary, generation): (&Vary, u64)) {
        let stands = match self.slots.peek(primary.bytes()) {
            None => false,
            Some(Slot::Entry(_)) => true,
            Some(Slot::Variants(known)) => known.vary != *vary || known.generation == generation,
        };
        if !stands {
            self.replace_family(primary, (vary, generation));
        }
    }

    /// Puts a family of variants in the place of whatever stands there.
    pub(crate) fn replace_family(&self, primary: KeyRef<'_>, (vary, generation): (&Vary, u64)) {
        if self.generation(primary, vary) != Some(generation) {
            let variants = Variants::new(vary, generation);
            self.slots.insert(primary.to_key(), Slot::Variants(variants));
        }
    }

    /// The generation of a family, if it is known.
    pub(crate) fn generation(&self, primary: KeyRef<'_>, vary: &Vary) -> Option<u64> {
        match self.slots.peek(primary.bytes())? {
            Slot::Variants(known) if known.vary == *vary => Some(known.generation),
            Slot::Variants(_) | Slot::Entry(_) => None,
        }
    }

    /// All variants of a primary key that are stored, the one that was used last in front.
    pub(crate) fn family(&self, primary: KeyRef<'_>) -> Vec<Arc<Entry>> {
        match self.slots.peek(primary.bytes()) {
            Some(Slot::Variants(variants)) => variants.members.entries(),
            Some(Slot::Entry(_)) | None => Vec::new(),
        }
    }

    /// Stores a variant; of more than there may be, those leave that were used longest ago.
    fn store_variant(
        &self,
        (primary, vary): (KeyRef<'_>, &Vary),
        select: &dyn Select,
        entry: &Arc<Entry>,
    ) -> bool {
        let variants = self.variants(primary, vary);
        let key = key::variant(primary, variants.generation, selected(vary, select));
        let key = key.borrowed().to_key();
        let stored = self.put(key.clone(), entry.clone());
        if stored {
            for leaving in variants.members.admit(&key, entry, select.variants_max()) {
                let left = self.slots.remove(leaving.borrowed().bytes()).is_some();
                self.evicted.fetch_add(u64::from(left), Ordering::Relaxed);
            }
        }
        stored
    }

    fn variants(&self, primary: KeyRef<'_>, vary: &Vary) -> Variants {
        match self.slots.get(primary.bytes()) {
            Some(Slot::Variants(variants)) if variants.vary == *vary => variants,
            _ => {
                let generation = self.generations.fetch_add(1, Ordering::Relaxed);
                let variants = Variants::new(vary, generation);
                self.slots.insert(primary.to_key(), Slot::Variants(variants.clone()));
                variants
            }
        }
    }

    /// Whether a body of this many bytes could be kept at all.
    #[must_use]
    pub const fn takes(&self, bytes: u64) -> bool {
        bytes <= self.object_max
    }

    /// The largest entry this tier takes, in bytes.
    #[must_use]
    pub const fn object_max(&self) -> u64 {
        self.object_max
    }

    /// Stores an entry where its `vary` puts it, under a primary key. `false` if it is too large.
    pub(crate) fn store(
        &self,
        primary: KeyRef<'_>,
        select: &dyn Select,
        entry: Arc<Entry>,
    ) -> bool {
        match entry.meta.vary.clone() {
            None => self.put(primary.to_key(), entry),
            Some(vary) => self.store_variant((primary, &vary), select, &entry),
        }
    }

    /// Stores an entry with a whole body. `false` if it is too large.
    pub fn put(&self, key: Key, entry: Arc<Entry>) -> bool {
        debug_assert!(entry.body.is_whole(), "tiers hold whole entries");
        if !self.takes(entry.charge(0)) {
            self.slots.remove(key.borrowed().bytes());
            return false;
        }
        self.slots.insert(key, Slot::Entry(entry));
        true
    }

    /// Removes what stands under a primary key; its variants are left behind with it.
    pub fn remove(&self, primary: KeyRef<'_>) -> bool {
        self.slots.remove(primary.bytes()).is_some()
    }

    /// Bytes held: keys, heads, bodies, views and overhead.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slots.weight()
    }

    /// How many slots are in use.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.slots.len() as u64
    }

    /// How many entries have made room for others since the start.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Key, Slot> for ByBytes {
    fn weight(&self, key: &Key, slot: &Slot) -> u64 {
        match slot {
            Slot::Entry(entry) => {
                let member = if entry.meta.vary.is_some() { MEMBER_OVERHEAD } else { 0 };
                entry.charge(key.size()) + member as u64
            }
            Slot::Variants(variants) => {
                (key.size() + variants.vary.heap_size()) as u64 + SLOT_OVERHEAD
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<Key, Slot> for Evictions {
    type RequestState = ();

    /// Unlike the hook behind an eviction, this one is not called when an entry is replaced.
    fn before_evict(&self, (): &mut (), _key: &Key, _slot: &mut Slot) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

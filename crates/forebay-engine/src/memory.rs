//! Memory tier: synchronous, bounded in bytes.
//!
//! Negative entries have a share of their own. A lookup searches it only if the other part has no
//! entry, so that it costs a hit nothing; and a flood of unknown keys evicts only negative entries.
//!
//! There is at most one entry per key: storing one kind removes the other, in an order in which a
//! concurrent lookup finds either, and never neither. Stores under one primary key are serialized
//! by the lock of the flight table. This folder uses `entry` and `runtime`; it never sees a lower
//! tier, a flight or a purge.

mod model;
mod slots;
mod variants;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::key::Name;
use forebay_core::{Key, KeyRef, Presence, Vary, key};

use crate::entry::Entry;
use crate::entry::in_flight::InFlight;
use crate::entry::select::{Select, selected};
use crate::runtime::clock::{Clock, random_seed};
pub use model::MemoryModel;
use slots::{Bounds, Slot, Slots, Variants};

/// Divisor of the bound for negative entries: a small share, and thousands of keys per MiB of it.
const ABSENT_SHARE: u64 = 16;

/// Number of the largest negative entries that must fit into their share.
const HEAVIEST_ABSENT: u64 = 4;

/// Maximum size of a negative entry.
const ABSENT_OBJECT_MAX: u64 = 1 << 20;

/// Typical size of a negative entry, unless entries are counted.
const TYPICAL_ABSENT: u64 = 512;

/// Typical size of an entry of HTTP in bytes.
const TYPICAL_ENTRY: u64 = 8 << 10;

/// Memory bounds of an engine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of memory in total: entries with their keys and overhead, and bodies in
    /// flight. If entries are [counted](crate::Head::counted), each counts as one byte.
    pub memory: u64,
    /// Maximum size of an entry that memory stores, in bytes. Negative entries have a lower limit:
    /// see [`MemoryTier::object_max`].
    pub object_max: u64,
    /// Part of `memory` that is reserved for bodies in flight: streaming bodies, and evicted bodies
    /// that a client still reads. When it is used up, loads wait for memory, and are refused if
    /// none becomes free in time. One body at a time may exceed it.
    pub in_flight_max: u64,
    /// Expected size of an average entry, in bytes. It sets how many keys of evicted entries are
    /// remembered: half as many as such entries fit into memory. An entry that returns while its
    /// key is remembered is kept longer.
    pub typical: u64,
}

impl Limits {
    /// Returns the limits for `memory` bytes in total: a quarter for bodies in flight, entries of
    /// up to 16 MiB, and an average entry of 8 KiB.
    #[must_use]
    pub const fn of(memory: u64) -> Self {
        Self { memory, object_max: 16 << 20, in_flight_max: memory / 4, typical: TYPICAL_ENTRY }
    }
}

/// Memory tier of an engine: the entries in the memory of the process.
#[derive(Debug)]
pub struct MemoryTier {
    present: Slots,
    absent: Slots,
    generations: AtomicU64,
}

/// Result of a lookup.
pub(crate) enum Found {
    /// Entry of the request.
    Entry(Arc<Entry>),
    /// The key has variants, selected by these fields, but not the requested one.
    NoVariant(Vary),
    /// No entry.
    Nothing,
}

impl MemoryTier {
    /// Creates a tier within these limits, with a separate bound for bodies in flight.
    pub(crate) fn within(limits: &Limits, clock: &Arc<dyn Clock>) -> Self {
        let size = limits.memory.saturating_sub(limits.in_flight_max);
        Self::new(size, limits, &InFlight::new(limits.in_flight_max, clock.clone()))
    }

    /// Returns the bound of bodies in flight.
    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        self.present.in_flight()
    }

    /// Creates a tier of at most `size` bytes within these limits. A sixteenth of it is for
    /// negative entries. A body that leaves the tier while a client reads it is charged to
    /// `in_flight`.
    pub(crate) fn new(size: u64, limits: &Limits, in_flight: &Arc<InFlight>) -> Self {
        let object_max = limits.object_max.min(size);
        let typical = limits.typical.max(1);
        let share = size / ABSENT_SHARE;
        let absent_max = (share / HEAVIEST_ABSENT).min(ABSENT_OBJECT_MAX).min(object_max);
        let present = Bounds { size: size - share, object_max, typical };
        let typical = typical.min(TYPICAL_ABSENT);
        let absent = Bounds { size: share, object_max: absent_max, typical };
        let absent = Slots::new(absent, in_flight);
        let slots = Slots::new(present, in_flight);
        slots.reserve(present);
        Self { present: slots, absent, generations: AtomicU64::new(random_seed()) }
    }

    /// Returns the entry that is stored under exactly this key, whether it is fresh or not. Purges
    /// by tag, prefix, site or all are not considered. `None` if there is none, or if the key has
    /// variants. Counts as a use of the entry.
    #[must_use]
    pub fn get(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        match self.slot(key)? {
            Slot::Entry(entry) => Some(entry),
            Slot::Variants(_) => None,
        }
    }

    /// Returns the entry of exactly this key, without counting as a use.
    pub(crate) fn peek_at(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        match self.peek(key)? {
            Slot::Entry(entry) => Some(entry),
            Slot::Variants(_) => None,
        }
    }

    /// Returns the entry that [`find`](Self::find) would return, without counting as a use.
    pub(crate) fn peek_for(&self, primary: KeyRef<'_>, select: &dyn Select) -> Option<Arc<Entry>> {
        match self.peek_found(primary, select) {
            Found::Entry(entry) => Some(entry),
            Found::NoVariant(_) | Found::Nothing => None,
        }
    }

    /// Returns the result of [`find`](Self::find), without counting as a use.
    pub(crate) fn peek_found(&self, primary: KeyRef<'_>, select: &dyn Select) -> Found {
        match self.peek(primary) {
            None => Found::Nothing,
            Some(Slot::Entry(entry)) => Found::Entry(entry),
            Some(Slot::Variants(variants)) => {
                let fields = selected(&variants.vary, select);
                let key = key::variant(primary, variants.generation, fields);
                let entry = self.peek_at(key.borrowed());
                entry.map_or_else(|| Found::NoVariant(variants.vary.clone()), Found::Entry)
            }
        }
    }

    /// Returns all entries under a primary key with their own keys, without counting as uses.
    pub(crate) fn peek_all(&self, primary: KeyRef<'_>) -> Vec<(Key, Arc<Entry>)> {
        match self.peek(primary) {
            None => Vec::new(),
            Some(Slot::Entry(entry)) => vec![(primary.to_key(), entry)],
            Some(Slot::Variants(variants)) => {
                let keys = variants.members.keys().into_iter();
                keys.filter_map(|key| self.peek_at(key.borrowed()).map(|entry| (key, entry)))
                    .collect()
            }
        }
    }

    /// Calls `found` with the entry of exactly this name, if it is present and has no variants.
    #[inline]
    pub(crate) fn see(&self, name: Name<'_>, found: impl Fn(&Entry)) {
        self.present.see(name, |slot| match slot {
            Slot::Entry(entry) => found(entry),
            Slot::Variants(_) => {}
        });
    }

    /// Returns the entry that this selection chooses under a primary key.
    #[inline]
    pub(crate) fn find(&self, primary: KeyRef<'_>, select: &dyn Select) -> Found {
        match self.slot(primary) {
            None => Found::Nothing,
            Some(Slot::Entry(entry)) => Found::Entry(entry),
            Some(Slot::Variants(variants)) => self.find_variant(primary, select, variants),
        }
    }

    fn find_variant(
        &self,
        primary: KeyRef<'_>,
        select: &dyn Select,
        variants: Arc<Variants>,
    ) -> Found {
        let fields = selected(&variants.vary, select);
        let key = key::variant(primary, variants.generation, fields);
        match self.get(key.borrowed()) {
            Some(entry) => {
                variants.members.touch(&entry);
                Found::Entry(entry)
            }
            None => Found::NoVariant(variants.vary.clone()),
        }
    }

    /// Returns the slot of a key. Negative entries are searched last.
    #[inline]
    fn slot(&self, key: KeyRef<'_>) -> Option<Slot> {
        self.present.get(key).or_else(|| self.absent.get(key))
    }

    fn peek(&self, key: KeyRef<'_>) -> Option<Slot> {
        self.present.peek(key).or_else(|| self.absent.peek(key))
    }

    /// Returns the store of this kind of entry, and the other one.
    const fn home(&self, presence: Presence) -> (&Slots, &Slots) {
        match presence {
            Presence::Present => (&self.present, &self.absent),
            Presence::Absent => (&self.absent, &self.present),
        }
    }

    /// Stores a slot, and removes the one of the other kind.
    fn insert(&self, presence: Presence, key: Key, slot: Slot) {
        let (home, other) = self.home(presence);
        let twin = other.has(key.borrowed()).then(|| key.clone());
        home.insert(key, slot);
        if let Some(twin) = twin {
            other.remove(twin.borrowed());
        }
    }

    /// Announces a family of variants as soon as a head names the selecting fields, so that callers
    /// waiting for the first variant can join flights of their own. A stored entry or another
    /// family stays until the answer is complete: a broken refresh leaves it unchanged.
    pub(crate) fn announce(&self, primary: KeyRef<'_>, vary: &Vary, presence: Presence) {
        if self.peek(primary).is_none() {
            self.variants(primary, vary, presence);
        }
    }

    /// Uses the family of variants that a lower tier knows, so that both have the same generation.
    /// A stored entry stays, and so does another family, which is newer.
    pub(crate) fn adopt(
        &self,
        primary: KeyRef<'_>,
        vary: &Vary,
        generation: u64,
        presence: Presence,
    ) {
        let stands = match self.peek(primary) {
            None => false,
            Some(Slot::Entry(_)) => true,
            Some(Slot::Variants(known)) => known.vary != *vary || known.generation == generation,
        };
        if !stands {
            self.replace_family(primary, vary, generation, presence);
        }
    }

    /// Stores a family of variants under a primary key, in place of another entry or family there. A
    /// family of this generation stays.
    pub(crate) fn replace_family(
        &self,
        primary: KeyRef<'_>,
        vary: &Vary,
        generation: u64,
        presence: Presence,
    ) {
        if self.generation(primary, vary) != Some(generation) {
            let variants = Variants::new(vary, generation);
            self.insert(presence, primary.to_key(), Slot::Variants(variants));
        }
    }

    /// Returns the generation of a family, if it is known.
    pub(crate) fn generation(&self, primary: KeyRef<'_>, vary: &Vary) -> Option<u64> {
        match self.peek(primary)? {
            Slot::Variants(known) if known.vary == *vary => Some(known.generation),
            Slot::Variants(_) | Slot::Entry(_) => None,
        }
    }

    /// Stores a variant. Beyond the maximum number the least recently used ones are removed.
    fn store_variant(
        &self,
        primary: KeyRef<'_>,
        vary: &Vary,
        select: &dyn Select,
        entry: &Arc<Entry>,
    ) -> bool {
        let variants = self.variants(primary, vary, entry.meta.presence);
        let key = key::variant(primary, variants.generation, selected(vary, select));
        let key = key.borrowed().to_key();
        let stored = self.put(key.clone(), entry.clone());
        if stored {
            for leaving in variants.members.admit(&key, entry, select.variants_max()) {
                self.present.evict(leaving.borrowed());
                self.absent.evict(leaving.borrowed());
            }
        }
        stored
    }

    /// Returns the family of a primary key. A family in the share of negative entries moves to the
    /// other part with the first entry that is present: it must not be evicted with negative ones.
    fn variants(&self, primary: KeyRef<'_>, vary: &Vary, presence: Presence) -> Arc<Variants> {
        let variants = match self.slot(primary) {
            Some(Slot::Variants(variants)) if variants.vary == *vary => {
                if presence == Presence::Absent || self.present.has(primary) {
                    return variants;
                }
                variants
            }
            _ => {
                let generation = self.generations.fetch_add(1, Ordering::Relaxed);
                Variants::new(vary, generation)
            }
        };
        self.insert(presence, primary.to_key(), Slot::Variants(variants.clone()));
        variants
    }

    /// Returns the maximum size in bytes of an entry of this kind (regular or negative).
    #[must_use]
    pub const fn object_max(&self, presence: Presence) -> u64 {
        self.home(presence).0.object_max()
    }

    /// Stores an entry under a primary key, or under the key of its variant. Returns `false` if it
    /// is too large.
    pub(crate) fn store(
        &self,
        primary: KeyRef<'_>,
        select: &dyn Select,
        entry: Arc<Entry>,
    ) -> bool {
        // The members of a family refer to the stored entry.
        let entry = entry.kept();
        match entry.meta.vary().cloned() {
            None => self.put(primary.to_key(), entry),
            Some(vary) => self.store_variant(primary, &vary, select, &entry),
        }
    }

    /// Stores an entry with a complete body, in place of the stored one, present or absent. Returns
    /// `false` if it is too large; then the stored one is removed, too. Of a head whose [form is
    /// complete](crate::Head::of_form) it keeps the form.
    pub fn put(&self, key: Key, entry: Arc<Entry>) -> bool {
        debug_assert!(entry.body.is_whole(), "tiers hold whole entries");
        let entry = entry.kept();
        let presence = entry.meta.presence;
        if entry.charge(0) > self.object_max(presence) {
            self.remove(key.borrowed());
            return false;
        }
        self.insert(presence, key, Slot::Entry(entry));
        true
    }

    /// Removes the entry of a primary key, with all its variants. Returns `false` if there was
    /// none.
    pub fn remove(&self, primary: KeyRef<'_>) -> bool {
        let removed = [&self.present, &self.absent].map(|slots| slots.remove(primary));
        removed.contains(&true)
    }

    /// Returns the bytes that all entries use: keys, heads, bodies, views and overhead. Bodies in
    /// flight are not included. An entry that is [counted](crate::Head::counted) adds one.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.present.bytes() + self.absent.bytes()
    }

    /// Returns the bytes that negative entries use (stored facts that a key has no value). An entry
    /// that is [counted](crate::Head::counted) adds one.
    #[must_use]
    pub fn absent_bytes(&self) -> u64 {
        self.absent.bytes()
    }

    /// Returns the number of entries in memory, negative entries included. Each variant counts, and
    /// so does the record that lists the variants of a key.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.present.count() + self.absent.count()
    }

    /// Returns the number of entries that were evicted since the start: for lack of space, or
    /// beyond the maximum number of variants of a key. Removals by purges do not count.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.present.evictions() + self.absent.evictions()
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

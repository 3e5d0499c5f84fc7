//! L1: memory, concrete and synchronous, bounded in bytes.
//!
//! What is known to be absent stands in a share of its own. A lookup goes there only where the rest
//! has nothing, so that a hit on what is present costs no more for it; and a flood of keys that
//! nobody has drives out its like alone.
//!
//! Under one key there is at most one of both: who stores the one removes the other, in an order in
//! which a lookup in between finds either, and never nothing. Stores under one primary key exclude
//! each other by the lock of the board.

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
use slots::{Bounds, Slot, Slots, Variants};

/// The part of the bound that is for what is known to be absent: as good as nothing for a cache
/// of answers, and thousands of names that nobody has for each MiB of it.
const ABSENT_SHARE: u64 = 16;

/// How many of the heaviest negative entries their share must have room for.
const HEAVIEST_ABSENT: u64 = 4;

/// The largest negative entry; whatever is larger is no page that says that nothing is there.
const ABSENT_OBJECT_MAX: u64 = 1 << 20;

/// What a negative entry takes as a rule, if it does not count as one.
const TYPICAL_ABSENT: u64 = 512;

/// Bounds of an engine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of all entries, with everything that belongs to them, and of bodies in flight.
    pub memory: u64,
    /// Largest entry that memory stores.
    pub object_max: u64,
    /// Part of `memory` for bodies in flight: streaming bodies, and bodies that left memory while a
    /// client reads them. When it is used up, loads wait for memory, and are refused if there is
    /// none in time. One body at a time may exceed it.
    pub in_flight_max: u64,
    /// Typical size of an entry. Half as many keys as such entries would fit are remembered after
    /// they have left memory, so that an entry that returns soon stays.
    pub typical: u64,
}

impl Limits {
    /// Limits of `memory` bytes in all: a quarter for bodies in flight, entries of up to 16 MiB, and
    /// a typical size of 8 KiB.
    #[must_use]
    pub const fn of(memory: u64) -> Self {
        Self { memory, object_max: 16 << 20, in_flight_max: memory / 4, typical: 8 << 10 }
    }
}

/// Memory tier.
#[derive(Debug)]
pub struct MemoryTier {
    present: Slots,
    absent: Slots,
    generations: AtomicU64,
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
    /// Creates a tier within these limits, with a separate bound for bodies in flight.
    pub(crate) fn within(limits: &Limits, clock: &Arc<dyn Clock>) -> Self {
        let size = limits.memory.saturating_sub(limits.in_flight_max);
        Self::new(size, limits, &InFlight::new(limits.in_flight_max, clock.clone()))
    }

    /// Returns the bound of bodies in flight.
    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        self.present.in_flight()
    }

    /// A tier of at most `size` bytes that takes entries within these limits. A sixteenth
    /// of it is for what is known to be absent. What leaves it while somebody reads it is charged
    /// to the bodies in flight.
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

    /// The entry under exactly this key, if it has no variants.
    #[must_use]
    pub fn get(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        match self.slot(key)? {
            Slot::Entry(entry) => Some(entry),
            Slot::Variants(_) => None,
        }
    }

    /// The same, which is no use of it: for what the engine itself wants to know.
    pub(crate) fn peek_at(&self, key: KeyRef<'_>) -> Option<Arc<Entry>> {
        match self.peek(key)? {
            Slot::Entry(entry) => Some(entry),
            Slot::Variants(_) => None,
        }
    }

    /// What [`find`](Self::find) would, which is no use of it either.
    pub(crate) fn peek_for(&self, primary: KeyRef<'_>, select: &dyn Select) -> Option<Arc<Entry>> {
        match self.peek(primary)? {
            Slot::Entry(entry) => Some(entry),
            Slot::Variants(variants) => {
                let fields = selected(&variants.vary, select);
                let key = key::variant(primary, variants.generation, fields);
                self.peek_at(key.borrowed())
            }
        }
    }

    /// Lets the entry be seen that is present under exactly this name, if it has no variants.
    #[inline]
    pub(crate) fn see(&self, name: Name<'_>, found: impl Fn(&Entry)) {
        self.present.see(name, |slot| match slot {
            Slot::Entry(entry) => found(entry),
            Slot::Variants(_) => {}
        });
    }

    /// The entry that this selection chooses under a primary key.
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

    /// What is present comes first: only where nothing is, anything else is looked at.
    #[inline]
    fn slot(&self, key: KeyRef<'_>) -> Option<Slot> {
        self.present.get(key).or_else(|| self.absent.get(key))
    }

    fn peek(&self, key: KeyRef<'_>) -> Option<Slot> {
        self.present.peek(key).or_else(|| self.absent.peek(key))
    }

    /// Where an entry of this kind stands, and where one of the other kind would.
    const fn home(&self, presence: Presence) -> (&Slots, &Slots) {
        match presence {
            Presence::Present => (&self.present, &self.absent),
            Presence::Absent => (&self.absent, &self.present),
        }
    }

    /// Puts a slot in its place and takes away what stands under its key in the other one.
    fn insert(&self, presence: Presence, key: Key, slot: Slot) {
        let (home, other) = self.home(presence);
        let twin = other.has(key.borrowed()).then(|| key.clone());
        home.insert(key, slot);
        if let Some(twin) = twin {
            other.remove(twin.borrowed());
        }
    }

    /// Makes the family of variants known as soon as a head names them, so that those who wait
    /// for the first variant can board their own. What stands there, an entry or another family,
    /// stays until the answer has come whole: a broken refresh leaves it untouched.
    pub(crate) fn announce(&self, primary: KeyRef<'_>, (vary, presence): (&Vary, Presence)) {
        if self.peek(primary).is_none() {
            self.variants(primary, (vary, presence));
        }
    }

    /// Takes over the family of variants that a lower tier knows, so that both mean the same by
    /// its generation. An entry that stands there stays, and so does another family: what memory
    /// knows came later.
    pub(crate) fn adopt(
        &self,
        primary: KeyRef<'_>,
        (vary, generation): (&Vary, u64),
        presence: Presence,
    ) {
        let stands = match self.peek(primary) {
            None => false,
            Some(Slot::Entry(_)) => true,
            Some(Slot::Variants(known)) => known.vary != *vary || known.generation == generation,
        };
        if !stands {
            self.replace_family(primary, (vary, generation), presence);
        }
    }

    /// Puts a family of variants in the place of whatever stands there.
    pub(crate) fn replace_family(
        &self,
        primary: KeyRef<'_>,
        (vary, generation): (&Vary, u64),
        presence: Presence,
    ) {
        if self.generation(primary, vary) != Some(generation) {
            let variants = Variants::new(vary, generation);
            self.insert(presence, primary.to_key(), Slot::Variants(variants));
        }
    }

    /// The generation of a family, if it is known.
    pub(crate) fn generation(&self, primary: KeyRef<'_>, vary: &Vary) -> Option<u64> {
        match self.peek(primary)? {
            Slot::Variants(known) if known.vary == *vary => Some(known.generation),
            Slot::Variants(_) | Slot::Entry(_) => None,
        }
    }

    /// Stores a variant; of more than there may be, those leave that were used longest ago.
    fn store_variant(
        &self,
        (primary, vary): (KeyRef<'_>, &Vary),
        select: &dyn Select,
        entry: &Arc<Entry>,
    ) -> bool {
        let variants = self.variants(primary, (vary, entry.meta.presence));
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

    /// The family of a primary key. One that only negative entries have needed so far moves to
    /// the first that is present: it must not go with them.
    fn variants(&self, primary: KeyRef<'_>, (vary, presence): (&Vary, Presence)) -> Arc<Variants> {
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

    /// The largest entry of this kind that the tier takes, in bytes.
    #[must_use]
    pub const fn object_max(&self, presence: Presence) -> u64 {
        self.home(presence).0.object_max()
    }

    /// Stores an entry where its `vary` puts it, under a primary key. `false` if it is too large.
    pub(crate) fn store(
        &self,
        primary: KeyRef<'_>,
        select: &dyn Select,
        entry: Arc<Entry>,
    ) -> bool {
        // What a family knows its members by is what stands there.
        let entry = entry.kept();
        match entry.meta.vary().cloned() {
            None => self.put(primary.to_key(), entry),
            Some(vary) => self.store_variant((primary, &vary), select, &entry),
        }
    }

    /// Stores an entry with a whole body, in the place of what stands there, present or absent.
    /// `false` if it is too large; what stood there is gone then, too. Of a head whose
    /// [form says all](crate::Head::of_form) it keeps the form.
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

    /// Removes what stands under a primary key; its variants are left behind with it.
    pub fn remove(&self, primary: KeyRef<'_>) -> bool {
        let removed = [&self.present, &self.absent].map(|slots| slots.remove(primary));
        removed.contains(&true)
    }

    /// Bytes held: keys, heads, bodies, views and overhead.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.present.bytes() + self.absent.bytes()
    }

    /// Those of them that what is known to be absent takes.
    #[must_use]
    pub fn absent_bytes(&self) -> u64 {
        self.absent.bytes()
    }

    /// How many slots are in use.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.present.count() + self.absent.count()
    }

    /// How many entries have made room for others since the start.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.present.evictions() + self.absent.evictions()
    }
}

#[cfg(not(feature = "interleavings"))]
#[cfg(test)]
mod tests;

//! Families of variants in memory: announced, adopted, replaced, purged.

use std::borrow::Cow;
use std::time::Duration;

use forebay_core::{Position, Presence, Vary};

use super::{Arc, Entry, LIMITS, explore, fresh, in_flight, join, key, number_of, numbered, spawn};
use crate::entry::select::Select;
use crate::flight::{Flights, JoinRequest, LeaderGuard};
use crate::memory::{Found, MemoryTier};
use crate::runtime::sync::Mutex;
use crate::runtime::sync::atomic::{AtomicU64, Ordering};

struct Language(&'static str);

impl Select for Language {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "accept-language").then_some(Cow::Borrowed(self.0.as_bytes()))
    }
}

const LANGUAGES: [&str; 2] = ["de", "fr"];

/// The family that the lower tier of these tests knows.
const BELOW: u64 = 7;

fn vary() -> Vary {
    Vary::new(["accept-language"]).expect("one name")
}

fn varying(number: u64) -> Arc<Entry> {
    let mut meta = fresh();
    meta.set_vary(Some(vary()));
    numbered(number, meta)
}

/// The origin, memory, and what a lower tier knows: a family, and its first answer.
struct World {
    flights: Arc<Flights>,
    memory: MemoryTier,
    below: Mutex<Option<u64>>,
    truth: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            flights: Flights::new(),
            memory: MemoryTier::new(1 << 20, &LIMITS, &in_flight(1 << 20)),
            below: Mutex::new(Some(0)),
            truth: AtomicU64::new(0),
        })
    }

    fn start(&self) -> LeaderGuard {
        let key = key();
        let (primary, now) = (key.borrowed(), Duration::ZERO);
        let request = JoinRequest { primary, key: primary, passed_over: None, now };
        self.flights.lead_alone(request, Position::default)
    }

    fn find(&self, language: &'static str) -> Option<u64> {
        match self.memory.find(key().borrowed(), &Language(language)) {
            Found::Entry(entry) => Some(number_of(&entry)),
            Found::NoVariant(_) | Found::Nothing => None,
        }
    }

    /// Looks into the lower tier, unless the tier is being purged. Returns its value.
    fn walk(&self, leader: &LeaderGuard) -> Option<u64> {
        leader.flight().may_search_tiers.then(|| *self.below.lock()).flatten()
    }

    /// An answer of the origin: its family is announced with its head, and it is stored when it
    /// is whole. `false` if it was refused.
    fn load(&self, language: &'static str) -> bool {
        let leader = self.start();
        let number = self.truth.load(Ordering::SeqCst);
        leader.unless_purged(|| self.memory.announce(key().borrowed(), &vary(), Presence::Present));
        let store = || self.memory.store(key().borrowed(), &Language(language), varying(number));
        leader.unless_purged(store).is_some()
    }

    /// An answer of the origin, by a flight that has found a family below.
    fn load_adopting(&self, language: &'static str) -> bool {
        let leader = self.start();
        let known = self.walk(&leader).is_some();
        let number = self.truth.load(Ordering::SeqCst);
        let store = || {
            if known {
                self.memory.adopt(key().borrowed(), &vary(), BELOW, Presence::Present);
            }
            self.memory.store(key().borrowed(), &Language(language), varying(number))
        };
        leader.unless_purged(store).is_some()
    }

    /// An answer of a lower tier, which is of the family that it knows there.
    fn take_in(&self, language: &'static str) -> bool {
        let leader = self.start();
        let Some(number) = self.walk(&leader) else { return false };
        let store = || {
            self.memory.replace_family(key().borrowed(), &vary(), BELOW, Presence::Present);
            self.memory.store(key().borrowed(), &Language(language), varying(number))
        };
        leader.unless_purged(store).is_some()
    }

    fn purge(&self) -> u64 {
        let floor = self.truth.fetch_add(1, Ordering::SeqCst) + 1;
        let remove = || self.memory.remove(key().borrowed());
        let (_purging, _) = self.flights.begin_purge(key().borrowed(), remove);
        *self.below.lock() = None;
        floor
    }
}

/// Invariant 5: a purge reaches all variants at once, also those that are on their way, and no
/// family that comes later finds a member of one that was purged.
///
/// 1. A: starts
/// 2. P: purges
/// 3. A: puts its family back, under the generation it knows, and    all that the purge had reached
///    with it
///
/// And:
///
/// 1. B: stores "de" in family 1
/// 2. P: purges
/// 3. B: stores "fr", and so names a family: were that family 1 again, "de" would be back
#[test]
fn after_a_purge_no_variant_of_before_is_found() {
    explore(&["refused", "stored", "found"], |seen| {
        let world = World::new();
        let loads = |load: fn(&World, &'static str) -> bool, language: &'static str| {
            let (world, seen) = (world.clone(), seen.clone());
            spawn(async move {
                let stored = load(&world, language);
                seen.note(if stored { "stored" } else { "refused" });
            })
        };
        let tasks = [
            loads(World::load, "de"),
            loads(World::load_adopting, "fr"),
            loads(World::take_in, "de"),
        ];
        let purges = {
            let (world, seen) = (world.clone(), seen.clone());
            spawn(async move {
                let floor = world.purge();
                for language in LANGUAGES {
                    let found = world.find(language);
                    let old = found.filter(|number| *number < floor);
                    assert_eq!(old, None, "{language} after a purge at {floor}");
                    if found.is_some() {
                        seen.note("found");
                    }
                }
            })
        };
        join(tasks.into_iter().chain([purges]));
        for language in LANGUAGES {
            assert_ne!(world.find(language), Some(0), "{language} was purged");
        }
        assert!(world.load("de") && world.load("fr"));
        assert_eq!(LANGUAGES.map(|language| world.find(language)), [Some(1), Some(1)]);
    });
}

/// Invariant 6: what only announces a family leaves what stands there, however it interleaves
/// with what stores.
///
/// 1. A: sees that nothing stands there
/// 2. B: stores, whole
/// 3. A: announces, over it
#[test]
fn an_announcement_takes_nothing_away() {
    explore(&["announced first", "stored first"], |seen| {
        let world = World::new();
        let announces = {
            let (world, seen) = (world.clone(), seen.clone());
            spawn(async move {
                let leader = world.start();
                leader.unless_purged(|| {
                    world.memory.announce(key().borrowed(), &vary(), Presence::Present);
                });
                seen.note(if world.find("de").is_none() {
                    "announced first"
                } else {
                    "stored first"
                });
            })
        };
        let stores = {
            let world = world.clone();
            spawn(async move {
                let leader = world.start();
                leader.unless_purged(|| world.memory.put(key(), numbered(1, fresh())));
            })
        };
        join([announces, stores]);
        assert_eq!(world.find("de"), Some(1));
    });
}

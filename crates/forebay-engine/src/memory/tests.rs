use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyBuf, Lifetime, Meta, Timestamp};

use super::*;
use crate::entry::Head;
use crate::entry::body::Body;
use crate::runtime::clock::SystemClock;

const MIB: u64 = 1 << 20;

fn memory(size: u64, object_max: u64) -> MemoryTier {
    let limits = Limits { object_max, ..Limits::of(size) };
    MemoryTier::new(size, &limits, &InFlight::new(size, Arc::new(SystemClock)))
}

fn key(name: &str) -> KeyBuf {
    KeyBuf::new("test").part(name.as_bytes()).clone()
}

fn entry(size: usize) -> Arc<Entry> {
    let meta = Meta::new(Timestamp::default(), Lifetime::fresh(Duration::from_secs(60)));
    let body = Body::whole(Bytes::from(vec![1; size]));
    Arc::new(Entry::new(meta, Head::default(), body))
}

fn varying(size: usize) -> Arc<Entry> {
    let entry = entry(size);
    let mut meta = entry.meta.clone();
    meta.set_vary(Vary::new(["accept-language"]));
    Arc::new(entry.with_meta(meta))
}

struct Language(&'static str);

impl Select for Language {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "accept-language").then_some(Cow::Borrowed(self.0.as_bytes()))
    }
}

fn hits(tier: &MemoryTier, key: &KeyBuf, language: &'static str) -> bool {
    matches!(tier.find(key.borrowed(), &Language(language)), Found::Entry(..))
}

#[test]
fn the_bound_is_one_of_bytes_whatever_the_sizes_are() {
    let tier = memory(8 * MIB, MIB);
    for round in 0..4_000_usize {
        let size = [1, 100, 5_000, 300_000, 1_000_000][round % 5];
        tier.put(key(&round.to_string()).borrowed().to_key(), entry(size));
        assert!(tier.bytes() <= 8 * MIB);
    }
    assert!(tier.evictions() > 0);
    assert!(tier.bytes() > 4 * MIB, "half of it is used at least: {}", tier.bytes());
}

#[test]
fn replacing_and_removing_are_no_evictions() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    for size in [1, 2, 3] {
        tier.put(key.borrowed().to_key(), entry(size));
    }
    assert!(tier.remove(key.borrowed()));
    assert_eq!((tier.evictions(), tier.entries(), tier.bytes()), (0, 0, 0));
}

#[test]
fn small_entries_are_charged_with_what_surrounds_them() {
    let tier = memory(MIB, MIB);
    for round in 0..100_000_u32 {
        tier.put(key(&round.to_string()).borrowed().to_key(), entry(1));
    }
    assert!(tier.entries() * size_of::<Entry>() as u64 <= MIB, "{} entries", tier.entries());
}

#[test]
fn what_is_too_large_is_refused_and_takes_what_it_would_replace_with_it() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    assert!(tier.put(key.borrowed().to_key(), entry(10)));
    assert!(!tier.put(key.borrowed().to_key(), entry(2 << 20)));
    assert!(tier.get(key.borrowed()).is_none());
}

#[test]
fn the_largest_object_fits_whatever_shard_it_falls_into() {
    let tier = memory(64 * MIB, 16 * MIB);
    for name in 0..16 {
        let key = key(&name.to_string());
        assert!(tier.put(key.borrowed().to_key(), entry(15 << 20)));
        assert!(tier.get(key.borrowed()).is_some(), "object {name}");
    }
}

#[test]
fn variants_stand_side_by_side_and_fall_together() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    let primary = key.borrowed();
    assert!(tier.store(primary, &Language("de"), varying(1)));
    assert!(tier.store(primary, &Language("fr"), varying(2)));
    assert!(hits(&tier, &key, "de") && hits(&tier, &key, "fr"));
    assert!(matches!(tier.find(primary, &Language("it")), Found::NoVariant(_)));
    assert!(tier.remove(primary));
    assert!(!hits(&tier, &key, "de") && !hits(&tier, &key, "fr"));
    assert!(tier.store(primary, &Language("fr"), varying(3)));
    assert!(!hits(&tier, &key, "de"), "a new family does not find the old members");
}

#[test]
fn announcing_variants_leaves_an_entry_where_it_stands() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    let vary = Vary::new(["accept-language"]).expect("one name");
    tier.put(key.borrowed().to_key(), entry(1));
    tier.announce(key.borrowed(), &vary, Presence::Present);
    assert!(hits(&tier, &key, "de"));
    tier.remove(key.borrowed());
    tier.announce(key.borrowed(), &vary, Presence::Present);
    assert!(matches!(tier.find(key.borrowed(), &Language("de")), Found::NoVariant(_)));
}

fn absent(entry: &Arc<Entry>) -> Arc<Entry> {
    let mut meta = entry.meta.clone();
    meta.presence = Presence::Absent;
    Arc::new(entry.with_meta(meta))
}

fn presence(tier: &MemoryTier, key: &KeyBuf, language: &'static str) -> Option<Presence> {
    match tier.find(key.borrowed(), &Language(language)) {
        Found::Entry(entry) => Some(entry.meta.presence),
        Found::NoVariant(_) | Found::Nothing => None,
    }
}

/// Stores keys that are read repeatedly and use half of the memory.
fn hot(tier: &MemoryTier) -> Vec<KeyBuf> {
    let keys: Vec<_> = (0..4_000).map(|number: u32| key(&format!("hot {number}"))).collect();
    for _ in 0..3 {
        for key in &keys {
            if tier.get(key.borrowed()).is_none() {
                tier.put(key.borrowed().to_key(), entry(500));
            }
        }
    }
    assert!(tier.bytes() > 3 * MIB && tier.bytes() < 5 * MIB, "{} bytes", tier.bytes());
    keys
}

/// Keys of which each is asked for once.
const FLOOD: u32 = 1_000_000;

/// In a flood, the hot keys are asked for once per this many others.
const FLOOD_ROUND: u32 = 50_000;

fn flooded(tier: &MemoryTier, hot: &[KeyBuf], of: &Arc<Entry>) -> usize {
    for number in 0..FLOOD {
        tier.put(key(&number.to_string()).borrowed().to_key(), of.clone());
        if number % FLOOD_ROUND == 0 {
            hot.iter().for_each(|key| drop(tier.get(key.borrowed())));
        }
    }
    hot.iter().filter(|key| tier.get(key.borrowed()).is_none()).count()
}

#[test]
fn a_flood_of_keys_that_nobody_has_evicts_nothing_that_is_there() {
    let tier = memory(8 * MIB, MIB);
    let hot = hot(&tier);
    let bytes = tier.bytes();
    assert_eq!(flooded(&tier, &hot, &absent(&entry(0))), 0);
    assert!(tier.absent_bytes() <= 8 * MIB / ABSENT_SHARE, "{} bytes", tier.absent_bytes());
    assert!(tier.absent_bytes() > MIB / 4, "half of the share is used at least");
    assert_eq!(tier.bytes() - tier.absent_bytes(), bytes);
}

#[test]
fn a_flood_of_negative_answers_with_variants_evicts_nothing_that_is_there() {
    let tier = memory(8 * MIB, MIB);
    let hot = hot(&tier);
    let negative = absent(&varying(0));
    for number in 0..FLOOD / 10 {
        tier.store(key(&number.to_string()).borrowed(), &Language("de"), negative.clone());
    }
    assert!(hot.iter().all(|key| tier.get(key.borrowed()).is_some()));
    assert!(tier.absent_bytes() <= 8 * MIB / ABSENT_SHARE, "{} bytes", tier.absent_bytes());
}

#[test]
fn a_flood_of_keys_that_are_asked_for_once_evicts_nothing_that_is_asked_for_often() {
    let tier = memory(8 * MIB, MIB);
    let hot = hot(&tier);
    assert_eq!(flooded(&tier, &hot, &entry(500)), 0);
    assert!(tier.evictions() > 900_000, "{} evictions", tier.evictions());
    assert!(tier.bytes() <= 8 * MIB);
}

#[test]
fn under_one_key_there_is_what_was_stored_last_and_nothing_else() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    let (there, gone) = (entry(10), absent(&entry(10)));
    for (stored, expected) in [
        (&there, Presence::Present),
        (&gone, Presence::Absent),
        (&there, Presence::Present),
        (&gone, Presence::Absent),
    ] {
        assert!(tier.put(key.borrowed().to_key(), stored.clone()));
        assert_eq!((presence(&tier, &key, "de"), tier.entries()), (Some(expected), 1));
        assert_eq!(tier.absent_bytes() > 0, expected == Presence::Absent);
    }
    assert!(tier.remove(key.borrowed()));
    assert_eq!((presence(&tier, &key, "de"), tier.entries(), tier.bytes()), (None, 0, 0));
}

#[test]
fn a_negative_entry_that_is_too_large_for_its_share_takes_what_it_replaces_with_it() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    assert!(tier.put(key.borrowed().to_key(), entry(200 << 10)));
    assert!(!tier.put(key.borrowed().to_key(), absent(&entry(200 << 10))));
    assert_eq!((tier.entries(), tier.object_max(Presence::Absent)), (0, 128 << 10));
}

#[test]
fn variants_that_are_there_and_variants_that_are_not_are_one_family() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    let primary = key.borrowed();
    assert!(tier.store(primary, &Language("de"), absent(&varying(1))));
    assert_eq!(tier.bytes(), tier.absent_bytes(), "nothing of it is among what is present");
    assert!(tier.store(primary, &Language("fr"), varying(2)));
    let of = |language| presence(&tier, &key, language);
    assert_eq!((of("de"), of("fr")), (Some(Presence::Absent), Some(Presence::Present)));
    assert!(tier.store(primary, &Language("fr"), absent(&varying(2))));
    assert!(tier.store(primary, &Language("de"), varying(1)));
    assert_eq!((of("fr"), of("de")), (Some(Presence::Absent), Some(Presence::Present)));
    assert_eq!(tier.entries(), 3, "one family, two members");
    // Negative entries come and go; what is present does not go with them.
    for number in 0..20_000 {
        let key = self::key(&number.to_string()).borrowed().to_key();
        tier.put(key, absent(&entry(0)));
    }
    assert!(tier.evictions() > 0);
    assert_eq!(of("de"), Some(Presence::Present));
    assert!(tier.remove(primary));
    assert_eq!(of("de"), None);
}

/// A selection by language, and how many of them are kept.
struct Bounded(&'static str, usize);

impl Select for Bounded {
    fn field(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        Language(self.0).field(name).map(|value| Cow::Owned(value.into_owned()))
    }

    fn variants_max(&self) -> usize {
        self.1
    }
}

#[test]
fn of_more_variants_than_are_kept_the_one_that_was_used_longest_ago_leaves() {
    let tier = memory(8 * MIB, MIB);
    let key = key("a");
    let store = |language| tier.store(key.borrowed(), &Bounded(language, 3), varying(10));
    for language in ["a", "b", "c"] {
        assert!(store(language));
    }
    assert!(hits(&tier, &key, "a"), "used again, so that b is the oldest");
    assert!(store("d"));
    assert!(hits(&tier, &key, "a") && hits(&tier, &key, "c") && hits(&tier, &key, "d"));
    assert!(!hits(&tier, &key, "b"));
    assert_eq!(tier.evictions(), 1);
    assert_eq!(tier.entries(), 4, "three variants, and what names them");
    assert!(store("d"), "one that is there already takes nobody's place");
    assert_eq!((tier.entries(), tier.evictions()), (4, 1));
    assert!(tier.store(key.borrowed(), &Bounded("e", 1), varying(10)));
    assert_eq!(tier.entries(), 2, "a smaller bound holds from the next store on");
}

/// A head whose form says all, on its way.
fn written() -> Head {
    Head::of_form(Arc::new(7_u8), 1).written_as(Bytes::from_static(b"seven"))
}

fn stands_without_bytes(tier: &MemoryTier, key: &KeyBuf, language: &'static str) -> bool {
    let Found::Entry(entry) = tier.find(key.borrowed(), &Language(language)) else { return false };
    entry.head.view() == Some(&7_u8) && entry.head.bytes().is_none()
}

#[test]
fn whatever_way_an_entry_comes_its_form_is_kept_alone() {
    let tier = memory(MIB, MIB);
    let of_form = |entry: &Entry| {
        let meta = entry.meta.clone();
        Arc::new(Entry::new(meta, written(), entry.body.clone()))
    };
    let (plain, various) = (of_form(&entry(1)), of_form(&varying(1)));
    assert!(tier.put(key("put").borrowed().to_key(), plain.clone()));
    assert!(stands_without_bytes(&tier, &key("put"), "de"));
    assert!(tier.store(key("stored").borrowed(), &(), plain.clone()));
    assert!(stands_without_bytes(&tier, &key("stored"), "de"));
    let family = key("family");
    assert!(tier.store(family.borrowed(), &Language("de"), various.clone()));
    assert!(stands_without_bytes(&tier, &family, "de"));
    assert!(plain.head.bytes().is_some() && various.head.bytes().is_some());
}

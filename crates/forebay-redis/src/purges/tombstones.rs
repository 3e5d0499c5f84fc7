//! Purges of the last minutes that this instance published or received.
//!
//! Redis acknowledges a write before its replicas have it. A server that takes over may lack the
//! last purges and still have the entries that they removed, while its bus looks intact. Each
//! instance therefore keeps recent purges for a while. An entry whose load started before one of
//! them is not read from any server, and a server that may lack a purge receives it again, once for
//! all instances.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::{KeyRef, Purge, PurgeState, Reach, TagSet, Timestamp};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::purges::generation::{BusId, Token, standing_of, written_prefix};

/// Maximum number of tombstones. Frequent purges shorten their retention, which still exceeds the
/// lag of a replica by far.
const TOMBSTONES_MAX: usize = 4_096;

/// Maximum total bytes of the tombstones' targets.
const BYTES_MAX: usize = 4 << 20;

/// Retention while the bus is connected. A replica lags by milliseconds, and a failover of a
/// disconnected one takes at most a minute.
pub(crate) const RETENTION: Duration = Duration::from_secs(5 * 60);

/// Typical bytes of a target's name, which are looked up without an allocation.
const NAME_TYPICAL: usize = 128;

/// One purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) what: Purge,
    pub(crate) reach: Reach,
    /// Bus id of the purge, and its random number.
    pub(crate) token: Token,
}

#[derive(Default)]
pub(crate) struct Tombstones {
    /// Number of tombstones, readable without the lock.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tombstones in the order of their arrival.
    purges: BTreeMap<u64, (Tombstone, Timestamp)>,
    last_number: u64,
    bytes: usize,
    /// The last tombstone of each reach, by target.
    named: HashMap<Box<[u8]>, Last>,
    /// Tombstones of prefixes, which are compared one by one. Their number is limited like the
    /// rules in Redis.
    prefixes: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct Last {
    hard: Option<u64>,
    soft: Option<u64>,
}

impl Last {
    const fn of(&mut self, reach: Reach) -> &mut Option<u64> {
        match reach {
            Reach::Hard => &mut self.hard,
            Reach::Soft => &mut self.soft,
        }
    }
}

impl Tombstones {
    /// Adds a purge that was published or received, and replaces an equal one.
    pub(crate) fn note(&self, tombstone: Tombstone, now: Timestamp) {
        let mut state = self.state.lock();
        state.put(tombstone, now);
        while state.purges.len() > TOMBSTONES_MAX || state.bytes > BYTES_MAX {
            state.forget_first();
        }
        self.count.store(state.purges.len(), Ordering::Release);
    }

    /// Returns whether this purge is known, at any bus position.
    pub(crate) fn has(&self, Tombstone { what, reach, token }: &Tombstone) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let state = self.state.lock();
        let last = state.named.get(name_of(what).as_slice());
        let number = last.copied().and_then(|mut last| *last.of(*reach));
        let same = number.and_then(|number| state.purges.get(&number));
        same.is_some_and(|(same, _)| same.token.random == token.random)
    }

    /// Removes tombstones older than this time. It is not called while the bus is lost, since a
    /// failover may happen late.
    pub(crate) fn forget(&self, before: Timestamp) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        while state.purges.first_key_value().is_some_and(|(_, (_, noted))| *noted < before) {
            state.forget_first();
        }
        self.count.store(state.purges.len(), Ordering::Release);
    }

    /// Returns all tombstones in the order of their arrival.
    pub(crate) fn all(&self) -> Vec<Tombstone> {
        self.state.lock().purges.values().map(|(tombstone, _)| tombstone.clone()).collect()
    }

    /// Returns the purge state of an entry whose load started at this bus position.
    pub(crate) fn standing(
        &self,
        key: KeyRef<'_>,
        tags: &TagSet,
        load_position: BusId,
    ) -> PurgeState {
        if self.count.load(Ordering::Acquire) == 0 {
            return PurgeState::Valid;
        }
        let state = self.state.lock();
        let reaching = state.matching(key, tags).filter(|one| load_position < one.token.id);
        reaching.fold(PurgeState::Valid, |worst, one| worst.max(standing_of(one.reach)))
    }
}

impl State {
    fn put(&mut self, tombstone: Tombstone, now: Timestamp) {
        let name = name_of(&tombstone.what);
        self.last_number += 1;
        let number = self.last_number;
        let last = self.named.entry(name.as_slice().into()).or_default();
        let before = last.of(tombstone.reach).replace(number);
        if matches!(tombstone.what, Purge::Prefix { .. }) {
            self.prefixes.retain(|its| Some(*its) != before);
            self.prefixes.push(number);
        }
        if before.is_none_or(|before| self.purges.remove(&before).is_none()) {
            self.bytes += name.len();
        }
        self.purges.insert(number, (tombstone, now));
    }

    fn forget_first(&mut self) {
        let Some((number, (tombstone, _))) = self.purges.pop_first() else { return };
        let name = name_of(&tombstone.what);
        self.bytes = self.bytes.saturating_sub(name.len());
        self.prefixes.retain(|its| *its != number);
        if let Some(last) = self.named.get_mut(name.as_slice()) {
            *last.of(tombstone.reach) = None;
            if last.hard.or(last.soft).is_none() {
                self.named.remove(name.as_slice());
            }
        }
    }

    /// Returns the tombstones that target the entry.
    fn matching<'a>(
        &'a self,
        key: KeyRef<'a>,
        tags: &'a TagSet,
    ) -> impl Iterator<Item = &'a Tombstone> {
        let of_key = [name(b'k', key.bytes()), name(b's', key.namespace()), name(b'a', b"")];
        let names = of_key.into_iter().chain(tags.iter().map(|tag| name(b't', tag.as_bytes())));
        let named = names.filter_map(|name| self.named.get(name.as_slice()));
        let numbers = named.flat_map(|last| [last.hard, last.soft]).flatten();
        let exact = numbers.filter_map(|number| self.purges.get(&number));
        let prefixes = self.prefixes.iter().filter_map(|number| self.purges.get(number));
        let prefixes = prefixes.filter(move |(one, _)| one.what.is_about(key));
        exact.chain(prefixes).map(|(one, _)| one)
    }
}

type Name = SmallVec<[u8; NAME_TYPICAL]>;

fn name_of(what: &Purge) -> Name {
    match what {
        Purge::Key(key) => name(b'k', key.borrowed().bytes()),
        Purge::Tag(tag) => name(b't', tag.as_bytes()),
        Purge::Site(site) => name(b's', site.as_bytes()),
        Purge::Prefix { site, prefix } => name(b'p', &written_prefix(site, prefix.as_str())),
        Purge::All => name(b'a', b""),
    }
}

fn name(kind: u8, bytes: &[u8]) -> Name {
    let mut name = Name::from_slice(&[kind]);
    name.extend_from_slice(bytes);
    name
}

#[cfg(test)]
mod tests {
    use forebay_core::{Key, KeyBuf};

    use super::*;

    const fn id(millis: u64) -> BusId {
        BusId { millis, number: 0 }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn tombstone(what: &Purge, reach: Reach, millis: u64) -> Tombstone {
        Tombstone { what: what.clone(), reach, token: Token { id: id(millis), random: millis } }
    }

    fn key(path: &str) -> Key {
        KeyBuf::new("shop").part(path.as_bytes()).borrowed().to_key()
    }

    fn tag(name: &str) -> Purge {
        Purge::Tag(name.into())
    }

    #[test]
    fn tombstone_applies_to_earlier_loads() {
        let prefix = Purge::Prefix { site: "shop".into(), prefix: "/a".into() };
        let reaching =
            [Purge::Key(key("/a/1")), tag("red"), prefix, Purge::Site("shop".into()), Purge::All];
        let others = [Purge::Key(key("/b")), tag("blue"), Purge::Site("blog".into())];
        let tags = TagSet::new(["green", "red"]);
        for (reach, worst) in
            [(Reach::Soft, PurgeState::SoftPurged), (Reach::Hard, PurgeState::Removed)]
        {
            for what in &reaching {
                let tombstones = Tombstones::default();
                let standing =
                    |millis| tombstones.standing(key("/a/1").borrowed(), &tags, id(millis));
                assert_eq!(standing(0), PurgeState::Valid);
                others.iter().for_each(|what| tombstones.note(tombstone(what, reach, 9), at(0)));
                tombstones.note(tombstone(what, reach, 5), at(0));
                assert_eq!((standing(4), standing(5)), (worst, PurgeState::Valid), "{what:?}");
            }
        }
    }

    #[test]
    fn last_tombstone_of_each_reach_counts() {
        let tombstones = Tombstones::default();
        for (reach, millis) in [(Reach::Hard, 3), (Reach::Soft, 5), (Reach::Hard, 4)] {
            tombstones.note(tombstone(&tag("red"), reach, millis), at(0));
        }
        let places: Vec<u64> = tombstones.all().iter().map(|one| one.token.id.millis).collect();
        assert_eq!(places, [5, 4]);
        let has = |reach, millis| tombstones.has(&tombstone(&tag("red"), reach, millis));
        assert_eq!([3, 4].map(|millis| has(Reach::Hard, millis)), [false, true]);
        assert!(has(Reach::Soft, 5) && !has(Reach::Soft, 4));
        let tags = TagSet::new(["red"]);
        let standing = |millis| tombstones.standing(key("/").borrowed(), &tags, id(millis));
        assert_eq!(
            [3, 4, 5].map(standing),
            [PurgeState::Removed, PurgeState::SoftPurged, PurgeState::Valid]
        );
    }

    #[test]
    fn tombstones_expire_in_order_by_time_and_number() {
        let tombstones = Tombstones::default();
        for number in 0..10 {
            let what = Purge::Prefix { site: "shop".into(), prefix: number.to_string().into() };
            tombstones.note(tombstone(&what, Reach::Hard, 1), at(number));
        }
        tombstones.forget(at(7));
        assert_eq!(tombstones.all().len(), 3);
        for number in 0..=TOMBSTONES_MAX as u64 {
            tombstones.note(tombstone(&tag(&number.to_string()), Reach::Soft, 1), at(9));
        }
        assert_eq!(tombstones.all().len(), TOMBSTONES_MAX);
        assert_eq!(tombstones.all()[0].what, tag("1"));
        let huge = "x".repeat(BYTES_MAX / 2);
        for number in 0..3 {
            tombstones.note(tombstone(&tag(&format!("{huge}{number}")), Reach::Hard, 1), at(9));
        }
        assert_eq!(tombstones.all().len(), 1);
        tombstones.forget(at(10));
        let state = tombstones.state.lock();
        assert!(state.named.is_empty() && state.prefixes.is_empty() && state.bytes == 0);
    }
}

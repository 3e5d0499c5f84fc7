//! Purges that name no single key: by tag, by site, by prefix, or of everything.
//!
//! A purge is a record like a removal, and an entry stores the log position at which its write
//! began. A purge reaches all entries whose position is not behind its own, regardless of where
//! their records are now. Soft purges, also those of a single key, have digests of their own.

use std::collections::HashMap;

use forebay_core::{KeyRef, Purge, PurgeState, Reach, TagSet};
use parking_lot::RwLock;

use crate::format::layout::{Digest, Seed, log_position};
use crate::index::prefixes::{PrefixPurge, PrefixPurges};

/// Maximum number of tags and sites. A purge of a further one counts as a purge of everything.
const MARKS_MAX: usize = 100_000;

/// Maximum number of keys with a soft purge. A further one is removed instead.
const KEYS_MAX: usize = 100_000;

/// Purge marks of a directory.
pub(crate) struct PurgeMarks {
    seed: Seed,
    noted: RwLock<Noted>,
}

#[derive(Default)]
struct Noted {
    /// Log position of the last purge, by target.
    marks: HashMap<Digest, u64, ahash::RandomState>,
    everything: Option<u64>,
    everything_soft: Option<u64>,
    newest: Option<u64>,
    rules: PrefixPurges,
    /// Log position of the last soft purge, by primary key.
    keys: HashMap<Digest, u64, ahash::RandomState>,
    newest_key: Option<u64>,
}

impl PurgeMarks {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { seed, noted: RwLock::default() }
    }

    /// Returns the digest of a purge in its record; `None` for a hard purge of a single key, which
    /// is a removal.
    pub(crate) fn digest(&self, what: &Purge, reach: Reach) -> Option<Digest> {
        let (kind, name) = match what {
            Purge::Key(_) if reach == Reach::Hard => return None,
            Purge::Key(key) => (b'k', key.borrowed().bytes()),
            Purge::Tag(tag) => (b't', tag.as_bytes()),
            // The prefix is in the payload.
            Purge::Site(site) | Purge::Prefix { site, .. } => (b's', site.as_bytes()),
            Purge::All => (b'a', &b""[..]),
        };
        Some(self.digest_of(letter(kind, reach), name))
    }

    /// Returns the effect of the purge of a site, whose record has this digest.
    pub(crate) fn reach_of_site(&self, digest: Digest, site: &str) -> Reach {
        let soft = self.digest_of(letter(b's', Reach::Soft), site.as_bytes());
        if digest == soft { Reach::Soft } else { Reach::Hard }
    }

    /// Returns true if one more key can be marked as softly purged.
    pub(crate) fn takes_key(&self, digest: Digest) -> bool {
        let noted = self.noted.read();
        noted.keys.len() < KEYS_MAX || noted.keys.contains_key(&digest)
    }

    /// Records a soft purge of a key at a log position.
    pub(crate) fn note_key(&self, digest: Digest, position: u64) {
        let mut noted = self.noted.write();
        noted.newest_key = noted.newest_key.max(Some(position));
        let mark = noted.keys.entry(digest).or_insert(position);
        *mark = position.max(*mark);
    }

    /// Returns the digest of a separator record, which purges nothing.
    pub(crate) fn separator(&self) -> Digest {
        self.digest_of(b'g', b"")
    }

    fn digest_of(&self, kind: u8, name: &[u8]) -> Digest {
        Digest::of(&[&[kind], name].concat(), self.seed)
    }

    /// Records a purge at a log position.
    pub(crate) fn note(&self, digest: Digest, position: u64) {
        self.note_in(&mut self.noted.write(), digest, position);
    }

    fn note_in(&self, noted: &mut Noted, digest: Digest, position: u64) {
        noted.newest = noted.newest.max(Some(position));
        let is_one_more = !noted.marks.contains_key(&digest) && noted.marks.len() >= MARKS_MAX;
        if digest == self.digest_of(letter(b'a', Reach::Hard), b"") || is_one_more {
            noted.everything = noted.everything.max(Some(position));
        } else if digest == self.digest_of(letter(b'a', Reach::Soft), b"") {
            noted.everything_soft = noted.everything_soft.max(Some(position));
        } else {
            let mark = noted.marks.entry(digest).or_insert(position);
            *mark = position.max(*mark);
        }
    }

    /// Records a prefix purge. Returns true if an older one was widened to its whole site.
    pub(crate) fn note_prefix_purge(&self, purge: PrefixPurge, position: u64) -> bool {
        let mut noted = self.noted.write();
        noted.newest = noted.newest.max(Some(position));
        let widened = noted.rules.add(purge, position);
        if let Some((PrefixPurge { site, reach, .. }, position)) = &widened {
            let site = self.digest_of(letter(b's', *reach), site.as_bytes());
            self.note_in(&mut noted, site, *position);
        }
        widened.is_some()
    }

    /// Drops purges of prefixes and keys that concern only deleted segments.
    pub(crate) fn forget_before(&self, segment: u32) {
        let first = log_position(segment, 0);
        let mut noted = self.noted.write();
        noted.rules.forget_before(first);
        noted.keys.retain(|_, position| *position >= first);
    }

    /// True if any purge of more than one key is newer than this generation.
    pub(crate) fn any_after(&self, generation: u64) -> bool {
        self.noted.read().newest.is_some_and(|newest| newest >= generation)
    }

    /// Returns the effect of all purges on an entry of this generation.
    pub(crate) fn state(&self, generation: u64, key: KeyRef<'_>, tags: &TagSet) -> PurgeState {
        let noted = self.noted.read();
        let is_any = |newest: Option<u64>| newest.is_some_and(|newest| newest >= generation);
        if is_any(noted.newest) {
            if self.is_reached(&noted, Reach::Hard, Aged { generation, key, tags }) {
                return PurgeState::Removed;
            }
            if self.is_reached(&noted, Reach::Soft, Aged { generation, key, tags }) {
                return PurgeState::SoftPurged;
            }
        }
        if is_any(noted.newest_key) && self.is_key_reached(&noted, generation, key) {
            return PurgeState::SoftPurged;
        }
        PurgeState::Valid
    }

    fn is_reached(&self, noted: &Noted, reach: Reach, entry: Aged<'_>) -> bool {
        let Aged { generation, key, tags } = entry;
        let is_after = |mark: Option<u64>| mark.is_some_and(|mark| mark >= generation);
        let named = |kind, name: &[u8]| {
            let digest = self.digest_of(letter(kind, reach), name);
            is_after(noted.marks.get(&digest).copied())
        };
        let everything = match reach {
            Reach::Soft => noted.everything_soft,
            Reach::Hard => noted.everything,
        };
        is_after(everything)
            || named(b's', key.namespace())
            || noted.rules.reach(reach, generation, key)
            || tags.iter().any(|tag| named(b't', tag.as_bytes()))
    }

    /// True if a soft purge reaches this key, or a key that it begins with: the key of a variant
    /// begins with its primary key.
    pub(crate) fn is_softened(&self, generation: u64, key: KeyRef<'_>) -> bool {
        self.is_key_reached(&self.noted.read(), generation, key)
    }

    fn is_key_reached(&self, noted: &Noted, generation: u64, key: KeyRef<'_>) -> bool {
        let is_reached = |begin: &[u8]| {
            let digest = self.digest_of(letter(b'k', Reach::Soft), begin);
            noted.keys.get(&digest).is_some_and(|mark| *mark >= generation)
        };
        !noted.keys.is_empty() && key.beginnings().any(is_reached)
    }
}

/// Entry as purges see it.
#[derive(Clone, Copy)]
struct Aged<'a> {
    generation: u64,
    key: KeyRef<'a>,
    tags: &'a TagSet,
}

/// Letter of the digests of a kind of purges: in lower case, or in upper case for soft ones.
const fn letter(kind: u8, reach: Reach) -> u8 {
    match reach {
        Reach::Soft => kind.to_ascii_uppercase(),
        Reach::Hard => kind,
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::KeyBuf;

    use super::*;

    #[test]
    fn a_purge_reaches_what_is_older_and_what_it_names() {
        let (marks, key) = (PurgeMarks::new(Seed(3)), KeyBuf::new("shop"));
        let reach = |generation, tags: &[&str]| {
            let tags = TagSet::new(tags.iter().copied());
            marks.state(generation, key.borrowed(), &tags) == PurgeState::Removed
        };
        let note = |what: Purge, position| {
            marks.note(marks.digest(&what, Reach::Hard).unwrap(), position);
        };
        note(Purge::Tag("red".into()), 5);
        note(Purge::Tag("red".into()), 4);
        assert!(reach(5, &["blue", "red"]) && !reach(6, &["red"]) && !reach(0, &["blue"]));
        note(Purge::Site("blog".into()), 6);
        assert!(!reach(6, &["blue"]));
        note(Purge::Site("shop".into()), 7);
        assert!(reach(7, &[]) && !reach(8, &["red"]));
        let mut inside = KeyBuf::new("shop");
        inside.part(b"/items/7");
        let (site, prefix) = ("shop".into(), "/items".into());
        let items = PrefixPurge { site, prefix, reach: Reach::Hard };
        assert!(!marks.note_prefix_purge(items, 8));
        let within = |generation| {
            let state = marks.state(generation, inside.borrowed(), &TagSet::default());
            state == PurgeState::Removed
        };
        assert!(within(8) && !within(9) && !reach(8, &["red"]));
        note(Purge::All, 9);
        assert!(reach(9, &[]) && !reach(10, &[]) && marks.any_after(9) && !marks.any_after(10));
    }

    #[test]
    fn too_many_marks_purge_everything() {
        let marks = PurgeMarks::new(Seed(3));
        for number in 0..=MARKS_MAX as u64 {
            marks.note(marks.digest_of(b't', &number.to_le_bytes()), number);
        }
        let (key, tags) = (KeyBuf::new("shop"), TagSet::default());
        let state = marks.state(MARKS_MAX as u64, key.borrowed(), &tags);
        assert_eq!(state, PurgeState::Removed);
    }

    #[test]
    fn a_soft_purge_makes_stale_and_a_hard_one_outweighs_it() {
        use PurgeState::{Removed, SoftPurged, Valid};
        let marks = PurgeMarks::new(Seed(3));
        let key = KeyBuf::new("shop").part(b"/a").clone();
        let variant = key.clone().part(b"de").clone();
        let other = KeyBuf::new("shop").part(b"/ab").clone();
        let state = |key: &KeyBuf, generation| {
            marks.state(generation, key.borrowed(), &TagSet::new(["red"]))
        };
        let soft = |what: Purge| marks.digest(&what, Reach::Soft).unwrap();
        marks.note_key(soft(Purge::Key(key.borrowed().to_key())), 3);
        let rows = [(&key, 3, SoftPurged), (&variant, 3, SoftPurged), (&key, 4, Valid)];
        for (key, generation, expected) in rows.into_iter().chain([(&other, 0, Valid)]) {
            assert_eq!(state(key, generation), expected, "{:?} {generation}", key.borrowed());
        }
        assert!(!marks.any_after(0), "an entry of another key is written again");
        let prefix = PrefixPurge { site: "shop".into(), prefix: "/a".into(), reach: Reach::Soft };
        marks.note_prefix_purge(prefix, 4);
        assert_eq!((state(&other, 4), state(&other, 5)), (SoftPurged, Valid));
        for (position, what) in
            [Purge::Tag("red".into()), Purge::Site("shop".into()), Purge::All].iter().enumerate()
        {
            let position = 10 + position as u64;
            marks.note(soft(what.clone()), position);
            assert_eq!((state(&key, position), state(&key, position + 1)), (SoftPurged, Valid));
        }
        marks.note(marks.digest(&Purge::Tag("red".into()), Reach::Hard).unwrap(), 7);
        assert_eq!((state(&key, 7), state(&key, 8)), (Removed, SoftPurged));
    }
}

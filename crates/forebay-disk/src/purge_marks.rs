//! Purges that name no single key: by tag, by site, by prefix, of everything.
//!
//! A purge is a record like a removal, and an entry remembers where the log ended when it was
//! begun. So it is reached by every purge whose record does not stand before that position, wherever
//! the entry stands now.

use std::collections::HashMap;

use forebay_core::{KeyRef, Purge, TagSet};
use parking_lot::RwLock;

use crate::layout::{Digest, Seed, log_position};
use crate::prefixes::{PrefixPurge, PrefixPurges};

/// How many tags and sites are told apart. Beyond it, a purge of one more counts as one of
/// everything: too little is kept then, and never too much.
const MARKS_MAX: usize = 100_000;

/// All marks of a directory.
pub(crate) struct PurgeMarks {
    seed: Seed,
    noted: RwLock<Noted>,
}

#[derive(Default)]
struct Noted {
    /// By what was purged: the position in the log of the last such purge.
    marks: HashMap<Digest, u64, ahash::RandomState>,
    everything: Option<u64>,
    newest: Option<u64>,
    rules: PrefixPurges,
}

impl PurgeMarks {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { seed, noted: RwLock::default() }
    }

    /// What a purge is called in a record; nothing if it is one of a single key.
    pub(crate) fn digest(&self, what: &Purge) -> Option<Digest> {
        match what {
            Purge::Key(_) => None,
            Purge::Tag(tag) => Some(self.digest_of(b't', tag.as_bytes())),
            // What names the prefix stands behind it.
            Purge::Site(site) | Purge::Prefix { site, .. } => {
                Some(self.digest_of(b's', site.as_bytes()))
            }
            Purge::All => Some(self.digest_of(b'a', b"")),
        }
    }

    /// What a record is called that parts what is before it from what comes behind, and purges
    /// nothing.
    pub(crate) fn separator(&self) -> Digest {
        self.digest_of(b'g', b"")
    }

    fn digest_of(&self, kind: u8, name: &[u8]) -> Digest {
        Digest::of(&[&[kind], name].concat(), self.seed)
    }

    /// Notes a purge at a position in the log.
    pub(crate) fn note(&self, digest: Digest, position: u64) {
        self.note_in(&mut self.noted.write(), digest, position);
    }

    fn note_in(&self, noted: &mut Noted, digest: Digest, position: u64) {
        let everything = self.digest_of(b'a', b"");
        noted.newest = noted.newest.max(Some(position));
        let is_one_more = !noted.marks.contains_key(&digest) && noted.marks.len() >= MARKS_MAX;
        if digest == everything || is_one_more {
            noted.everything = noted.everything.max(Some(position));
        } else {
            let mark = noted.marks.entry(digest).or_insert(position);
            *mark = position.max(*mark);
        }
    }

    /// Notes a purge by prefix. `true` if one became a purge of its whole site by that.
    pub(crate) fn note_prefix_purge(&self, purge: PrefixPurge, position: u64) -> bool {
        let mut noted = self.noted.write();
        noted.newest = noted.newest.max(Some(position));
        let widened = noted.rules.add(purge, position);
        if let Some((PrefixPurge { site, .. }, position)) = &widened {
            self.note_in(&mut noted, self.digest_of(b's', site.as_bytes()), *position);
        }
        widened.is_some()
    }

    /// The segments before this one are gone, and all that prefixes reach there.
    pub(crate) fn forget_prefix_purges_before(&self, segment: u32) {
        self.noted.write().rules.forget_before(log_position(segment, 0));
    }

    /// Whether any purge is newer than an entry of this generation.
    pub(crate) fn any_after(&self, generation: u64) -> bool {
        self.noted.read().newest.is_some_and(|newest| newest >= generation)
    }

    /// Whether a purge has reached an entry of this generation.
    pub(crate) fn reach(&self, generation: u64, key: KeyRef<'_>, tags: &TagSet) -> bool {
        if !self.any_after(generation) {
            return false;
        }
        let noted = self.noted.read();
        let is_after = |mark: Option<u64>| mark.is_some_and(|mark| mark >= generation);
        let named = |kind, name: &[u8]| {
            let digest = self.digest_of(kind, name);
            is_after(noted.marks.get(&digest).copied())
        };
        is_after(noted.everything)
            || named(b's', key.namespace())
            || noted.rules.reach(generation, key)
            || tags.iter().any(|tag| named(b't', tag.as_bytes()))
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
            marks.reach(generation, key.borrowed(), &TagSet::new(tags.iter().copied()))
        };
        let note = |what: Purge, position| marks.note(marks.digest(&what).unwrap(), position);
        note(Purge::Tag("red".into()), 5);
        note(Purge::Tag("red".into()), 4);
        assert!(reach(5, &["blue", "red"]) && !reach(6, &["red"]) && !reach(0, &["blue"]));
        note(Purge::Site("blog".into()), 6);
        assert!(!reach(6, &["blue"]));
        note(Purge::Site("shop".into()), 7);
        assert!(reach(7, &[]) && !reach(8, &["red"]));
        let mut inside = KeyBuf::new("shop");
        inside.part(b"/items/7");
        let items = PrefixPurge { site: "shop".into(), prefix: "/items".into() };
        assert!(!marks.note_prefix_purge(items, 8));
        let within = |generation| marks.reach(generation, inside.borrowed(), &TagSet::default());
        assert!(within(8) && !within(9) && !reach(8, &["red"]));
        note(Purge::All, 9);
        assert!(reach(9, &[]) && !reach(10, &[]) && marks.any_after(9) && !marks.any_after(10));
    }

    #[test]
    fn more_than_are_told_apart_reach_everything() {
        let marks = PurgeMarks::new(Seed(3));
        for number in 0..=MARKS_MAX as u64 {
            marks.note(marks.digest_of(b't', &number.to_le_bytes()), number);
        }
        let (key, tags) = (KeyBuf::new("shop"), TagSet::default());
        assert!(marks.reach(MARKS_MAX as u64, key.borrowed(), &tags));
    }
}

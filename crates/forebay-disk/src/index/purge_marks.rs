//! Purges that name no single key: by tag, by site, by prefix, or of everything.
//!
//! A purge is a record like a removal, and an entry stores the log position at which its write
//! began. A purge reaches all entries whose position is not behind its own, regardless of where
//! their records are now.

use std::collections::HashMap;

use forebay_core::{KeyRef, Purge, TagSet};
use parking_lot::RwLock;

use crate::format::layout::{Digest, Seed, log_position};
use crate::index::prefixes::{PrefixPurge, PrefixPurges};

/// Maximum number of tags and sites. A purge of a further one counts as a purge of everything.
const MARKS_MAX: usize = 100_000;

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
    newest: Option<u64>,
    rules: PrefixPurges,
}

impl PurgeMarks {
    pub(crate) fn new(seed: Seed) -> Self {
        Self { seed, noted: RwLock::default() }
    }

    /// Returns the digest of a purge in its record; `None` for a purge of a single key.
    pub(crate) fn digest(&self, what: &Purge) -> Option<Digest> {
        match what {
            Purge::Key(_) => None,
            Purge::Tag(tag) => Some(self.digest_of(b't', tag.as_bytes())),
            // The prefix is in the payload.
            Purge::Site(site) | Purge::Prefix { site, .. } => {
                Some(self.digest_of(b's', site.as_bytes()))
            }
            Purge::All => Some(self.digest_of(b'a', b"")),
        }
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

    /// Records a prefix purge. Returns true if an older one was widened to its whole site.
    pub(crate) fn note_prefix_purge(&self, purge: PrefixPurge, position: u64) -> bool {
        let mut noted = self.noted.write();
        noted.newest = noted.newest.max(Some(position));
        let widened = noted.rules.add(purge, position);
        if let Some((PrefixPurge { site, .. }, position)) = &widened {
            self.note_in(&mut noted, self.digest_of(b's', site.as_bytes()), *position);
        }
        widened.is_some()
    }

    /// Drops prefix purges that concern only deleted segments.
    pub(crate) fn forget_prefix_purges_before(&self, segment: u32) {
        self.noted.write().rules.forget_before(log_position(segment, 0));
    }

    /// True if any purge is newer than this generation.
    pub(crate) fn any_after(&self, generation: u64) -> bool {
        self.noted.read().newest.is_some_and(|newest| newest >= generation)
    }

    /// True if a purge reaches an entry of this generation.
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
    fn too_many_marks_purge_everything() {
        let marks = PurgeMarks::new(Seed(3));
        for number in 0..=MARKS_MAX as u64 {
            marks.note(marks.digest_of(b't', &number.to_le_bytes()), number);
        }
        let (key, tags) = (KeyBuf::new("shop"), TagSet::default());
        assert!(marks.reach(MARKS_MAX as u64, key.borrowed(), &tags));
    }
}

//! Tags, positions in the purge log, and the effect of purges on an entry.
//!
//! A purge by tag or site does not search for its members. It records the position of the purge log;
//! an entry carries the position at which its load was sent, and every later purge applies to it.
//! So the cost of a purge does not depend on the number of entries that it invalidates.

use std::collections::HashMap;
use std::sync::Arc;

use crate::entry::Meta;
use crate::heap;
use crate::key::KeyRef;
use crate::key_pattern::KeyPattern;
use crate::time::Timestamp;

/// Maximum number of tags with a recorded purge. When it is exceeded, the records are merged into one
/// for all tagged entries: some entries are loaded again needlessly, but no purged one is served.
pub const TAG_MARKS_MAX: usize = 100_000;

/// Maximum number of recorded prefix purges: each is compared with every entry that is older than
/// the newest purge. When it is exceeded, the oldest becomes a purge of its whole site.
pub const PREFIXES_MAX: usize = 64;

/// Position in the purge log of this process. Each purge takes the next position, except purges of
/// a single key, which are not in the log. An entry keeps the newest position at the start of its
/// load: later purges apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// Returns the position in the purge log with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the position: consecutive within this process, larger is later.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the position after this one; the largest position is its own successor.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Tags of an entry, sorted and without duplicates.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TagSet(Option<Arc<[Box<str>]>>);

impl TagSet {
    /// Set of tags without any tag.
    pub const NONE: Self = Self(None);

    /// Creates a set of tags from tags in any order.
    #[must_use]
    pub fn new<'a>(tags: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tags: Vec<Box<str>> = tags.into_iter().map(Into::into).collect();
        tags.sort_unstable();
        tags.dedup();
        if tags.is_empty() { Self(None) } else { Self(Some(tags.into())) }
    }

    /// Returns the tags of the set, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|tags| tags.iter().map(|tag| &**tag))
    }

    /// Returns true if the set has no tags.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the memory in bytes that the set takes on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        let list = |tags: &Arc<[Box<str>]>| heap::shared(size_of_val(&**tags));
        let tags: usize = self.iter().map(|tag| heap::allocated(tag.len())).sum();
        self.0.as_ref().map_or(0, list) + tags
    }
}

/// Target of a purge: the entries that it invalidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All variants of the entry with this key.
    Key(crate::key::Key),
    /// All entries with this tag, in all namespaces.
    Tag(Box<str>),
    /// All entries of one namespace whose key has a part, or two adjacent parts joined, that starts
    /// with the bytes of `prefix`, or whose path matches it. The namespace itself is not compared.
    Prefix {
        /// Namespace of the entries: a site, or a named cache.
        site: Box<str>,
        /// Beginning of a part of the key, or of two adjacent parts joined; or a regular expression.
        prefix: KeyPattern,
    },
    /// All entries of this namespace: a site, or a named cache.
    Site(Box<str>),
    /// All entries of all namespaces.
    All,
}

impl Purge {
    /// Returns the name of the target's kind for metrics and logs: `key`, `tag`, `prefix`, `site`
    /// or `all`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Tag(_) => "tag",
            Self::Prefix { .. } => "prefix",
            Self::Site(_) => "site",
            Self::All => "all",
        }
    }

    /// Returns true if the purge applies to every entry under a primary key. False for a purge by
    /// tag: whether that applies depends on the tags of each entry.
    #[must_use]
    pub fn is_about(&self, key: KeyRef<'_>) -> bool {
        match self {
            Self::Key(purged) => purged.borrowed() == key,
            Self::Tag(_) => false,
            Self::Prefix { site, prefix } => prefix.matches(site, key),
            Self::Site(site) => key.namespace() == site.as_bytes(),
            Self::All => true,
        }
    }
}

/// Effect of a purge on entries: they become stale, or are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Purged entries become stale: they are revalidated before their next use, or served within
    /// their stale windows. A lower tier may remove them instead. So does memory with the variants
    /// of a key that is purged, if there are lower tiers.
    Soft,
    /// Purged entries are removed.
    Hard,
}

/// Effect of the purges since an entry's load was sent, in order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PurgeState {
    /// No purge applies to the entry.
    #[default]
    Valid,
    /// A soft purge made the entry stale.
    SoftPurged,
    /// A purge by another instance that this instance may have missed may have invalidated the
    /// entry, and its grace period is over. It is revalidated before it is served.
    Unverified,
    /// A hard purge removed the entry.
    Removed,
}

/// Positions of the latest soft and the latest hard purge of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mark {
    soft: Position,
    hard: Position,
}

impl Mark {
    /// Records a purge of the target at a position of the purge log.
    pub fn note(&mut self, reach: Reach, at: Position) {
        match reach {
            Reach::Soft => self.soft = self.soft.max(at),
            Reach::Hard => self.hard = self.hard.max(at),
        }
    }

    /// Returns the effect of the recorded purges of the target on an entry whose load was sent at
    /// `position` of the purge log.
    #[must_use]
    pub fn standing(self, position: Position) -> PurgeState {
        if position < self.hard {
            PurgeState::Removed
        } else if position < self.soft {
            PurgeState::SoftPurged
        } else {
            PurgeState::Valid
        }
    }

    fn newest(self) -> Position {
        self.soft.max(self.hard)
    }

    fn fold(&mut self, other: Self) {
        self.soft = self.soft.max(other.soft);
        self.hard = self.hard.max(other.hard);
    }
}

/// Record of one purged prefix.
#[derive(Clone, Debug)]
struct Prefix {
    site: Box<str>,
    prefix: KeyPattern,
    mark: Mark,
    /// Time of its latest purge.
    at: Timestamp,
}

/// Number of sites, tags and prefixes with a recorded purge. An entry that was loaded before the
/// newest purge is compared with the records of its site and tags, and with all prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Number of purged sites, with those whose prefix purges were widened to the site.
    pub sites: usize,
    /// Number of purged tags; an entry is compared with its own tags only.
    pub tags: usize,
    /// Number of purged prefixes and expressions; an entry is compared with all of them.
    pub prefixes: usize,
}

/// Record of the purges by tag, prefix, site and of everything, in the order of the purge log.
#[derive(Clone, Debug, Default)]
pub struct Purges {
    newest: Position,
    all: Mark,
    sites: HashMap<Box<str>, Mark>,
    /// In the order of their latest purge.
    prefixes: Vec<Prefix>,
    tags: HashMap<Box<str>, Mark>,
    /// Merged record of tags that are no longer recorded one by one.
    forgotten: Mark,
}

impl Purges {
    /// Returns the newest recorded position. No purge applies to an entry whose load was sent at or
    /// after it.
    #[must_use]
    pub const fn newest(&self) -> Position {
        self.newest
    }

    /// Records a purge at a position and a time. A purge of a single key is not recorded here: it
    /// acts on the entry and the flights of that key.
    pub fn note(&mut self, what: &Purge, reach: Reach, at: Position, now: Timestamp) {
        match what {
            Purge::Key(_) => return,
            Purge::All => self.all.note(reach, at),
            Purge::Site(site) => self.sites.entry(site.clone()).or_default().note(reach, at),
            Purge::Prefix { site, prefix } => self.note_prefix(site, prefix, reach, at, now),
            Purge::Tag(tag) => {
                if self.tags.len() >= TAG_MARKS_MAX && !self.tags.contains_key(tag) {
                    self.tags.drain().for_each(|(_, mark)| self.forgotten.fold(mark));
                }
                self.tags.entry(tag.clone()).or_default().note(reach, at);
            }
        }
        self.newest = self.newest.max(at);
    }

    fn note_prefix(
        &mut self,
        site: &str,
        prefix: &KeyPattern,
        reach: Reach,
        at: Position,
        now: Timestamp,
    ) {
        let is_it = |known: &Prefix| *known.site == *site && known.prefix == *prefix;
        let known = self.prefixes.iter().position(is_it);
        let mut mark = known.map(|known| self.prefixes.remove(known).mark).unwrap_or_default();
        mark.note(reach, at);
        if self.prefixes.len() >= PREFIXES_MAX {
            let oldest = self.prefixes.remove(0);
            self.sites.entry(oldest.site).or_default().fold(oldest.mark);
        }
        self.prefixes.push(Prefix { site: site.into(), prefix: prefix.clone(), mark, at: now });
    }

    /// Replaces each record of a prefix that was last purged before `before` by a record of its
    /// whole site, so that fewer prefixes are compared. Nearly all entries from before that time
    /// have expired, so few are loaded again without need.
    pub fn retire_prefixes(&mut self, before: Timestamp) {
        let retired = self.prefixes.iter().take_while(|prefix| prefix.at < before).count();
        for Prefix { site, mark, .. } in self.prefixes.drain(..retired) {
            self.sites.entry(site).or_default().fold(mark);
        }
    }

    /// Moves the purge log to its next position without recording a purge, so that entries loaded
    /// before and after this moment can be distinguished. Returns the new position.
    pub fn advance(&mut self) -> Position {
        self.newest = self.newest.next();
        self.newest
    }

    /// Returns how many sites, tags and prefixes have a recorded purge now.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        let (sites, tags) = (self.sites.len(), self.tags.len());
        Recorded { sites, tags, prefixes: self.prefixes.len() }
    }

    /// Returns the most severe effect of all recorded purges on the entry with these metadata under
    /// this key.
    #[must_use]
    pub fn standing(&self, key: KeyRef<'_>, meta: &Meta) -> PurgeState {
        let position = meta.position;
        if position >= self.newest {
            return PurgeState::Valid;
        }
        let site = std::str::from_utf8(key.namespace()).ok().and_then(|id| self.sites.get(id));
        let mut worst = self.all.standing(position);
        worst = worst.max(site.map_or(PurgeState::Valid, |mark| mark.standing(position)));
        for prefix in self.prefixes.iter().filter(|prefix| prefix.mark.newest() > position) {
            if prefix.prefix.matches(&prefix.site, key) {
                worst = worst.max(prefix.mark.standing(position));
            }
        }
        let tags = meta.tags();
        if !tags.is_empty() {
            worst = worst.max(self.forgotten.standing(position));
        }
        tags.iter()
            .filter_map(|tag| self.tags.get(tag))
            .fold(worst, |worst, mark| worst.max(mark.standing(position)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Lifetime;
    use crate::key::KeyBuf;
    use crate::time::Timestamp;

    fn entry(position: u64, tags: &[&str]) -> Meta {
        let mut meta = Meta::new(Timestamp::default(), Lifetime::default());
        meta.position = Position::new(position);
        meta.set_tags(TagSet::new(tags.iter().copied()));
        meta
    }

    /// Records a hard or soft purge at a position and the time of the same number.
    fn note(purges: &mut Purges, what: &Purge, reach: Reach, number: u64) {
        let now = Timestamp::from_millis(number.cast_signed());
        purges.note(what, reach, Position::new(number), now);
    }

    fn prefix(site: &str, prefix: &str) -> Purge {
        Purge::Prefix { site: site.into(), prefix: prefix.into() }
    }

    fn standing(purges: &Purges, site: &str, meta: &Meta) -> PurgeState {
        purges.standing(KeyBuf::new(site).borrowed(), meta)
    }

    #[test]
    fn a_purge_applies_only_to_entries_loaded_before_it() {
        let mut purges = Purges::default();
        note(&mut purges, &Purge::Site("shop".into()), Reach::Hard, 1);
        note(&mut purges, &Purge::Tag("red".into()), Reach::Soft, 2);
        let rows = [
            ("shop", 0, &[][..], PurgeState::Removed),
            ("shop", 1, &[][..], PurgeState::Valid),
            ("blog", 0, &[][..], PurgeState::Valid),
            ("blog", 1, &["blue", "red"][..], PurgeState::SoftPurged),
            ("blog", 2, &["red"][..], PurgeState::Valid),
            ("shop", 0, &["red"][..], PurgeState::Removed),
        ];
        for (site, position, tags, expected) in rows {
            assert_eq!(
                standing(&purges, site, &entry(position, tags)),
                expected,
                "{site} {position} {tags:?}"
            );
        }
    }

    #[test]
    fn a_purge_of_all_applies_to_every_entry() {
        let mut purges = Purges::default();
        note(&mut purges, &Purge::All, Reach::Hard, 9);
        assert_eq!(standing(&purges, "any", &entry(8, &[])), PurgeState::Removed);
        assert_eq!(standing(&purges, "any", &entry(9, &[])), PurgeState::Valid);
    }

    #[test]
    fn a_full_record_merges_tags_and_still_covers_every_purged_entry() {
        let mut purges = Purges::default();
        for number in 0..=TAG_MARKS_MAX as u64 {
            let tag = Purge::Tag(number.to_string().into());
            note(&mut purges, &tag, Reach::Hard, number + 1);
        }
        assert_eq!(purges.tags.len(), 1);
        assert_eq!(standing(&purges, "any", &entry(0, &["0"])), PurgeState::Removed);
        assert_eq!(standing(&purges, "any", &entry(0, &[])), PurgeState::Valid);
    }

    #[test]
    fn a_prefix_applies_to_keys_of_its_site_with_a_matching_part() {
        let mut purges = Purges::default();
        note(&mut purges, &prefix("shop", "/items/"), Reach::Hard, 1);
        note(&mut purges, &prefix("shop", "/items/7"), Reach::Soft, 3);
        let rows = [
            ("shop", "/items/1", 0, PurgeState::Removed),
            ("shop", "/items/1", 1, PurgeState::Valid),
            ("shop", "/items/7", 1, PurgeState::SoftPurged),
            ("shop", "/items/7", 3, PurgeState::Valid),
            ("shop", "/other", 0, PurgeState::Valid),
            ("blog", "/items/1", 0, PurgeState::Valid),
        ];
        for (site, path, position, expected) in rows {
            let mut key = KeyBuf::new(site);
            let key = key.part(b"http").part(path.as_bytes()).borrowed();
            let found = purges.standing(key, &entry(position, &[]));
            assert_eq!(found, expected, "{site} {path} {position}");
        }
    }

    #[test]
    fn too_many_prefixes_and_old_ones_become_purges_of_their_sites() {
        let mut purges = Purges::default();
        for number in 0..=PREFIXES_MAX as u64 {
            let site = if number == 0 { "first" } else { "shop" };
            note(&mut purges, &prefix(site, &number.to_string()), Reach::Hard, number + 1);
            note(&mut purges, &prefix(site, &number.to_string()), Reach::Hard, number + 1);
        }
        let recorded = purges.recorded();
        assert_eq!(recorded, Recorded { sites: 1, tags: 0, prefixes: PREFIXES_MAX });
        assert_eq!(standing(&purges, "first", &entry(0, &[])), PurgeState::Removed);
        assert_eq!(standing(&purges, "shop", &entry(0, &[])), PurgeState::Valid);
        purges.retire_prefixes(Timestamp::from_millis(PREFIXES_MAX as i64));
        assert_eq!(purges.recorded(), Recorded { sites: 2, tags: 0, prefixes: 2 });
        let last = PREFIXES_MAX as u64 - 1;
        assert_eq!(standing(&purges, "shop", &entry(last - 1, &[])), PurgeState::Removed);
        assert_eq!(standing(&purges, "shop", &entry(last, &[])), PurgeState::Valid);
    }
}

//! Tags, positions in the log of purges, and what a purge has reached.
//!
//! A purge by tag or site never looks for its members. It writes down how far the log of purges
//! has come; an entry knows where the log stood when its load departed, and is reached by every
//! purge behind that point. So the cost of a purge does not depend on how much it hits.

use std::collections::HashMap;
use std::sync::Arc;

use crate::entry::Meta;
use crate::key::KeyRef;
use crate::time::Timestamp;

/// How many tags may have purges of their own on record. Beyond it the record is folded into one
/// mark for all tagged entries: some are loaded again without need, none is served without right.
pub const TAG_MARKS_MAX: usize = 100_000;

/// How many prefixes may be on record: each of them is compared with every entry that is older
/// than the newest purge. Beyond it the oldest becomes a purge of its whole site.
pub const PREFIXES_MAX: usize = 64;

/// A place in the log of purges. Each purge takes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// The position with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The position behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The tags of an entry, as the origin named them: each once, sorted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TagSet(Option<Arc<[Box<str>]>>);

impl TagSet {
    /// No tags.
    pub const NONE: Self = Self(None);

    /// From tags in any order.
    #[must_use]
    pub fn new<'a>(tags: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tags: Vec<Box<str>> = tags.into_iter().map(Into::into).collect();
        tags.sort_unstable();
        tags.dedup();
        if tags.is_empty() { Self(None) } else { Self(Some(tags.into())) }
    }

    /// The tags, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|tags| tags.iter().map(|tag| &**tag))
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        self.iter().map(|tag| tag.len() + size_of::<Box<str>>()).sum()
    }
}

/// What to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// One key, with all its variants.
    Key(crate::key::Key),
    /// Everything that carries a tag.
    Tag(Box<str>),
    /// Everything in a namespace whose key has a part behind it that begins so.
    Prefix {
        /// The namespace.
        site: Box<str>,
        /// How a part begins.
        prefix: Box<str>,
    },
    /// Everything in a namespace.
    Site(Box<str>),
    /// Everything.
    All,
}

impl Purge {
    /// What it is called in metrics and logs.
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

    /// Whether it reaches whatever stands under a primary key. Of a tag only the entry tells.
    #[must_use]
    pub fn is_about(&self, key: KeyRef<'_>) -> bool {
        match self {
            Self::Key(purged) => purged.borrowed() == key,
            Self::Tag(_) => false,
            Self::Prefix { site, prefix } => key.is_within(site, prefix),
            Self::Site(site) => key.namespace() == site.as_bytes(),
            Self::All => true,
        }
    }
}

/// How hard a purge hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What it hits is stale from now on.
    Soft,
    /// What it hits is gone.
    Hard,
}

/// What the purges since an entry's departure have made of it, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// No purge reached it.
    #[default]
    Good,
    /// A soft purge made it stale.
    Softened,
    /// A purge may have reached it that was not heard of here.
    Suspect,
    /// A hard purge removed it.
    Gone,
}

/// How far the log of purges had come when something was last purged, soft and hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mark {
    soft: Position,
    hard: Position,
}

impl Mark {
    /// Notes a purge.
    pub fn note(&mut self, reach: Reach, at: Position) {
        match reach {
            Reach::Soft => self.soft = self.soft.max(at),
            Reach::Hard => self.hard = self.hard.max(at),
        }
    }

    /// What this mark makes of an entry that departed at `departed`.
    #[must_use]
    pub fn standing(self, departed: Position) -> Standing {
        if departed < self.hard {
            Standing::Gone
        } else if departed < self.soft {
            Standing::Softened
        } else {
            Standing::Good
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

/// What is on record of one prefix.
#[derive(Clone, Debug)]
struct Prefix {
    site: Box<str>,
    prefix: Box<str>,
    mark: Mark,
    /// When it was last purged.
    at: Timestamp,
}

/// How much is on record: what an entry is compared with that is older than the newest purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Sites.
    pub sites: usize,
    /// Tags, of which each entry is compared with its own alone.
    pub tags: usize,
    /// Prefixes, all of which each entry is compared with.
    pub prefixes: usize,
}

/// The record of all purges that name no single key.
#[derive(Clone, Debug, Default)]
pub struct Purges {
    newest: Position,
    all: Mark,
    sites: HashMap<Box<str>, Mark>,
    /// In the order in which they were last purged.
    prefixes: Vec<Prefix>,
    tags: HashMap<Box<str>, Mark>,
    /// The folded record of tags that were forgotten one by one.
    forgotten: Mark,
}

impl Purges {
    /// The newest position on record. An entry that departed at or after it stands well: nothing
    /// needs to be looked up.
    #[must_use]
    pub const fn newest(&self) -> Position {
        self.newest
    }

    /// Notes a purge at a position and a time. A purge of one key is not kept here: it acts on the
    /// key's own slot and flights.
    pub fn note(&mut self, what: &Purge, reach: Reach, (at, now): (Position, Timestamp)) {
        match what {
            Purge::Key(_) => return,
            Purge::All => self.all.note(reach, at),
            Purge::Site(site) => self.sites.entry(site.clone()).or_default().note(reach, at),
            Purge::Prefix { site, prefix } => self.note_prefix((site, prefix), reach, (at, now)),
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
        (site, prefix): (&str, &str),
        reach: Reach,
        (at, now): (Position, Timestamp),
    ) {
        let is_it = |known: &Prefix| *known.site == *site && *known.prefix == *prefix;
        let known = self.prefixes.iter().position(is_it);
        let mut mark = known.map(|known| self.prefixes.remove(known).mark).unwrap_or_default();
        mark.note(reach, at);
        if self.prefixes.len() >= PREFIXES_MAX {
            let oldest = self.prefixes.remove(0);
            self.sites.entry(oldest.site).or_default().fold(oldest.mark);
        }
        self.prefixes.push(Prefix { site: site.into(), prefix: prefix.into(), mark, at: now });
    }

    /// Turns prefixes that were last purged before this time into purges of their whole sites: what
    /// is older has ended its lifetime by then, and only somebody who takes it however stale it is
    /// might miss it.
    pub fn retire_prefixes(&mut self, before: Timestamp) {
        let retired = self.prefixes.iter().take_while(|prefix| prefix.at < before).count();
        for Prefix { site, mark, .. } in self.prefixes.drain(..retired) {
            self.sites.entry(site).or_default().fold(mark);
        }
    }

    /// Takes the next position without a purge: entries that depart from here on can be told from
    /// those that came before.
    pub fn advance(&mut self) -> Position {
        self.newest = self.newest.next();
        self.newest
    }

    /// How much is on record.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        let (sites, tags) = (self.sites.len(), self.tags.len());
        Recorded { sites, tags, prefixes: self.prefixes.len() }
    }

    /// What the purges have made of an entry under this key.
    #[must_use]
    pub fn standing(&self, key: KeyRef<'_>, meta: &Meta) -> Standing {
        let departed = meta.position;
        if departed >= self.newest {
            return Standing::Good;
        }
        let site = std::str::from_utf8(key.namespace()).ok().and_then(|id| self.sites.get(id));
        let mut worst = self.all.standing(departed);
        worst = worst.max(site.map_or(Standing::Good, |mark| mark.standing(departed)));
        for prefix in self.prefixes.iter().filter(|prefix| prefix.mark.newest() > departed) {
            if key.is_within(&prefix.site, &prefix.prefix) {
                worst = worst.max(prefix.mark.standing(departed));
            }
        }
        let tags = meta.tags();
        if !tags.is_empty() {
            worst = worst.max(self.forgotten.standing(departed));
        }
        tags.iter()
            .filter_map(|tag| self.tags.get(tag))
            .fold(worst, |worst, mark| worst.max(mark.standing(departed)))
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

    /// A position and a time.
    fn at(number: u64) -> (Position, Timestamp) {
        (Position::new(number), Timestamp::from_millis(number.cast_signed()))
    }

    fn prefix(site: &str, prefix: &str) -> Purge {
        Purge::Prefix { site: site.into(), prefix: prefix.into() }
    }

    fn standing(purges: &Purges, site: &str, meta: &Meta) -> Standing {
        purges.standing(KeyBuf::new(site).borrowed(), meta)
    }

    #[test]
    fn a_purge_reaches_what_departed_before_it_and_nothing_else() {
        let mut purges = Purges::default();
        purges.note(&Purge::Site("shop".into()), Reach::Hard, at(1));
        purges.note(&Purge::Tag("red".into()), Reach::Soft, at(2));
        let rows = [
            ("shop", 0, &[][..], Standing::Gone),
            ("shop", 1, &[][..], Standing::Good),
            ("blog", 0, &[][..], Standing::Good),
            ("blog", 1, &["blue", "red"][..], Standing::Softened),
            ("blog", 2, &["red"][..], Standing::Good),
            ("shop", 0, &["red"][..], Standing::Gone),
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
    fn a_purge_of_everything_reaches_everything() {
        let mut purges = Purges::default();
        purges.note(&Purge::All, Reach::Hard, at(9));
        assert_eq!(standing(&purges, "any", &entry(8, &[])), Standing::Gone);
        assert_eq!(standing(&purges, "any", &entry(9, &[])), Standing::Good);
    }

    #[test]
    fn a_full_record_forgets_names_but_never_lets_a_purged_entry_through() {
        let mut purges = Purges::default();
        for number in 0..=TAG_MARKS_MAX as u64 {
            let tag = Purge::Tag(number.to_string().into());
            purges.note(&tag, Reach::Hard, at(number + 1));
        }
        assert_eq!(purges.tags.len(), 1);
        assert_eq!(standing(&purges, "any", &entry(0, &["0"])), Standing::Gone);
        assert_eq!(standing(&purges, "any", &entry(0, &[])), Standing::Good);
    }

    #[test]
    fn a_prefix_reaches_the_keys_of_its_site_that_have_a_part_like_that() {
        let mut purges = Purges::default();
        purges.note(&prefix("shop", "/items/"), Reach::Hard, at(1));
        purges.note(&prefix("shop", "/items/7"), Reach::Soft, at(3));
        let rows = [
            ("shop", "/items/1", 0, Standing::Gone),
            ("shop", "/items/1", 1, Standing::Good),
            ("shop", "/items/7", 1, Standing::Softened),
            ("shop", "/items/7", 3, Standing::Good),
            ("shop", "/other", 0, Standing::Good),
            ("blog", "/items/1", 0, Standing::Good),
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
            purges.note(&prefix(site, &number.to_string()), Reach::Hard, at(number + 1));
            purges.note(&prefix(site, &number.to_string()), Reach::Hard, at(number + 1));
        }
        let recorded = purges.recorded();
        assert_eq!(recorded, Recorded { sites: 1, tags: 0, prefixes: PREFIXES_MAX });
        assert_eq!(standing(&purges, "first", &entry(0, &[])), Standing::Gone);
        assert_eq!(standing(&purges, "shop", &entry(0, &[])), Standing::Good);
        purges.retire_prefixes(Timestamp::from_millis(PREFIXES_MAX as i64));
        assert_eq!(purges.recorded(), Recorded { sites: 2, tags: 0, prefixes: 2 });
        let last = PREFIXES_MAX as u64 - 1;
        assert_eq!(standing(&purges, "shop", &entry(last - 1, &[])), Standing::Gone);
        assert_eq!(standing(&purges, "shop", &entry(last, &[])), Standing::Good);
    }
}

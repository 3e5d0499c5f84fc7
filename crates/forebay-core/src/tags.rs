//! Tags, positions in the log of purges, and what a purge has reached.
//!
//! A purge by tag or site never looks for its members. It writes down how far the log of purges
//! has come; an entry knows where the log stood when its load departed, and is reached by every
//! purge behind that point. So the cost of a purge does not depend on how much it hits.

use std::collections::HashMap;
use std::sync::Arc;

use crate::entry::Meta;
use crate::key::KeyRef;

/// How many tags may have purges of their own on record. Beyond it the record is folded into one
/// mark for all tagged entries: some are loaded again without need, none is served without right.
pub const TAG_MARKS_MAX: usize = 100_000;

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
            Self::Site(_) => "site",
            Self::All => "all",
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

/// What the purges since an entry's departure have made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Standing {
    /// No purge reached it.
    #[default]
    Good,
    /// A soft purge made it stale.
    Softened,
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

    fn fold(&mut self, other: Self) {
        self.soft = self.soft.max(other.soft);
        self.hard = self.hard.max(other.hard);
    }
}

/// The record of all purges that name no single key.
#[derive(Clone, Debug, Default)]
pub struct Purges {
    newest: Position,
    all: Mark,
    sites: HashMap<Box<str>, Mark>,
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

    /// Notes a purge at a position. A purge of one key is not kept here: it acts on the key's own
    /// slot and flights.
    pub fn note(&mut self, what: &Purge, reach: Reach, at: Position) {
        let mark = match what {
            Purge::Key(_) => return,
            Purge::All => &mut self.all,
            Purge::Site(site) => self.sites.entry(site.clone()).or_default(),
            Purge::Tag(tag) => {
                if self.tags.len() >= TAG_MARKS_MAX && !self.tags.contains_key(tag) {
                    self.tags.drain().for_each(|(_, mark)| self.forgotten.fold(mark));
                }
                self.tags.entry(tag.clone()).or_default()
            }
        };
        mark.note(reach, at);
        self.newest = self.newest.max(at);
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
        if !meta.tags.is_empty() {
            worst = worst.max(self.forgotten.standing(departed));
        }
        meta.tags
            .iter()
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
        meta.tags = TagSet::new(tags.iter().copied());
        meta
    }

    fn standing(purges: &Purges, site: &str, meta: &Meta) -> Standing {
        purges.standing(KeyBuf::new(site).borrowed(), meta)
    }

    #[test]
    fn a_purge_reaches_what_departed_before_it_and_nothing_else() {
        let mut purges = Purges::default();
        purges.note(&Purge::Site("shop".into()), Reach::Hard, Position::new(1));
        purges.note(&Purge::Tag("red".into()), Reach::Soft, Position::new(2));
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
        purges.note(&Purge::All, Reach::Hard, Position::new(9));
        assert_eq!(standing(&purges, "any", &entry(8, &[])), Standing::Gone);
        assert_eq!(standing(&purges, "any", &entry(9, &[])), Standing::Good);
    }

    #[test]
    fn a_full_record_forgets_names_but_never_lets_a_purged_entry_through() {
        let mut purges = Purges::default();
        for number in 0..=TAG_MARKS_MAX as u64 {
            let tag = Purge::Tag(number.to_string().into());
            purges.note(&tag, Reach::Hard, Position::new(number + 1));
        }
        assert_eq!(purges.tags.len(), 1);
        assert_eq!(standing(&purges, "any", &entry(0, &["0"])), Standing::Gone);
        assert_eq!(standing(&purges, "any", &entry(0, &[])), Standing::Good);
    }
}

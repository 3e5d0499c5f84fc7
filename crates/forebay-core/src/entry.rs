//! What the cache knows of an entry besides its bytes.

mod packed;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::tags::{Position, TagSet};
use crate::time::Timestamp;
use packed::{Cost, PackedLifetime};

/// What stands on the heap in front of what is shared: two counts.
const ARC_OVERHEAD: usize = 2 * size_of::<usize>();

/// All that [`judge`](crate::judge()) needs to know of an entry.
///
/// What few entries have is kept elsewhere, and spans are kept in four bytes each: memory has one
/// of these for every entry. What a plain hit reads stands last; see the entry of the engine.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct Meta {
    /// When its age was zero: the landing minus the age it already had. May lie before the start
    /// of the process.
    pub born: Timestamp,
    pub(crate) lifetime: PackedLifetime,
    /// Whether it is something, or the knowledge that there is nothing.
    pub presence: Presence,
    pub(crate) load_cost: Cost,
    /// When the load that brought it left for the origin.
    pub departed: Timestamp,
    /// Nothing if all of it is empty.
    pub(crate) rare: Option<Arc<Rare>>,
    /// Where the log of purges stood when the load departed: an entry is reached by every purge
    /// after it.
    pub position: Position,
}

/// What many entries do without.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Rare {
    pub(crate) tags: TagSet,
    pub(crate) validator: Option<Validator>,
    pub(crate) vary: Option<Vary>,
}

static NOTHING_RARE: Rare = Rare { tags: TagSet::NONE, validator: None, vary: None };

impl Meta {
    /// An entry that was born and departed at `at`, with this lifetime and nothing else. It is
    /// present.
    #[must_use]
    pub fn new(at: Timestamp, lifetime: Lifetime) -> Self {
        Self {
            presence: Presence::Present,
            departed: at,
            born: at,
            position: Position::default(),
            lifetime: lifetime.into(),
            load_cost: Cost::default(),
            rare: None,
        }
    }

    /// How long it may be used, and how: in whole milliseconds, beyond 24 days in whole seconds,
    /// and 68 years at most.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        self.lifetime.into()
    }

    /// Sets how long it may be used, and how. What is no whole millisecond is rounded up.
    pub fn set_lifetime(&mut self, lifetime: Lifetime) {
        self.lifetime = lifetime.into();
    }

    /// What the last load took, to the microsecond and an hour at most; early refresh starts
    /// earlier for what is expensive. Zero if nothing is known of it.
    #[must_use]
    pub const fn load_cost(&self) -> Duration {
        self.load_cost.duration()
    }

    /// Sets what the last load took.
    pub fn set_load_cost(&mut self, cost: Duration) {
        self.load_cost = Cost::of(cost);
    }

    /// The tags by which it can be purged.
    #[must_use]
    pub fn tags(&self) -> &TagSet {
        &self.rare().tags
    }

    /// Sets the tags by which it can be purged.
    pub fn set_tags(&mut self, tags: TagSet) {
        if self.rare.is_some() || !tags.is_empty() {
            self.change_rare(|rare| rare.tags = tags);
        }
    }

    /// By what the origin can be asked whether it is still good.
    #[must_use]
    pub fn validator(&self) -> Option<&Validator> {
        self.rare().validator.as_ref()
    }

    /// Sets by what the origin can be asked whether it is still good.
    pub fn set_validator(&mut self, validator: Option<Validator>) {
        if self.rare.is_some() || validator.is_some() {
            self.change_rare(|rare| rare.validator = validator);
        }
    }

    /// The request fields that selected it among its variants.
    #[inline]
    #[must_use]
    pub fn vary(&self) -> Option<&Vary> {
        self.rare().vary.as_ref()
    }

    /// Sets the request fields that selected it among its variants.
    pub fn set_vary(&mut self, vary: Option<Vary>) {
        if self.rare.is_some() || vary.is_some() {
            self.change_rare(|rare| rare.vary = vary);
        }
    }

    #[inline]
    pub(crate) fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&NOTHING_RARE)
    }

    fn change_rare(&mut self, change: impl FnOnce(&mut Rare)) {
        let rare = Arc::make_mut(self.rare.get_or_insert_default());
        change(rare);
        if *rare == NOTHING_RARE {
            self.rare = None;
        }
    }

    /// How old the entry is at `now`.
    #[inline]
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Duration {
        now.since(self.born)
    }

    /// Whether the freshness lifetime is longer than the age (RFC 9111 section 4.2).
    #[inline]
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.lifetime.fresh.millis() > now.millis_since(self.born)
    }

    /// What is left of the freshness lifetime; zero once it is stale.
    #[inline]
    #[must_use]
    pub fn fresh_left(&self, now: Timestamp) -> Duration {
        Duration::from_millis(self.fresh_left_millis(now))
    }

    #[inline]
    pub(crate) fn fresh_left_millis(&self, now: Timestamp) -> u64 {
        self.lifetime.fresh.millis().saturating_sub(now.millis_since(self.born))
    }

    /// How long it has been stale; zero while it is fresh.
    #[inline]
    #[must_use]
    pub fn staleness(&self, now: Timestamp) -> Duration {
        let age = now.millis_since(self.born);
        Duration::from_millis(age.saturating_sub(self.lifetime.fresh.millis()))
    }

    /// Bytes this occupies beside the value itself: what its parts hold on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        let Some(rare) = &self.rare else { return 0 };
        size_of::<Rare>()
            + ARC_OVERHEAD
            + rare.tags.heap_size()
            + rare.validator.as_ref().map_or(0, Validator::len)
            + rare.vary.as_ref().map_or(0, Vary::heap_size)
    }
}

/// What an entry says about its key. What is known to be absent is kept in a share of its own: who
/// asks for keys that nobody has must not drive out what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Presence {
    /// There is something.
    #[default]
    Present,
    /// The origin knows of nothing under this key: a negative entry.
    Absent,
}

/// How long an entry may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Fresh for this long from birth.
    pub fresh: Duration,
    /// After that, served for this long while one flight refreshes it (RFC 5861 section 3).
    pub stale_while_revalidate: Duration,
    /// After its lifetime, served for this long when a load fails (RFC 5861 section 4).
    pub stale_if_error: Duration,
    /// Whether it may be served stale at all.
    pub stale: Stale,
}

impl Lifetime {
    /// Fresh for `fresh`; stale only for a caller that accepts it.
    #[must_use]
    pub const fn fresh(fresh: Duration) -> Self {
        Self {
            fresh,
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            stale: Stale::Permitted,
        }
    }
}

/// Whether the origin lets an entry be served past its lifetime (RFC 9111 section 4.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stale {
    /// Where a window or the caller allows it.
    #[default]
    Permitted,
    /// Never: must-revalidate, proxy-revalidate, no-cache or s-maxage.
    Forbidden,
}

/// By what the origin can be asked whether an entry is still good. Both parts are kept as the
/// origin wrote them; a door other than HTTP puts its row version into `tag`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Validator {
    /// An opaque version (HTTP: ETag).
    pub tag: Option<Bytes>,
    /// When it was last changed (HTTP: Last-Modified).
    pub modified: Option<Bytes>,
}

impl Validator {
    fn len(&self) -> usize {
        self.tag.as_ref().map_or(0, Bytes::len) + self.modified.as_ref().map_or(0, Bytes::len)
    }
}

/// The names of the request fields that select a variant: lower case, sorted, each once, so that
/// `Vary: A, b` and `Vary: B,a` are one and the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vary(Arc<[Box<str>]>);

impl Vary {
    /// From field names in any order and case; `None` if there is none.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut names: Vec<Box<str>> =
            names.into_iter().map(|name| name.to_ascii_lowercase().into()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { None } else { Some(Self(names.into())) }
    }

    /// The names, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        self.0.iter().map(|name| name.len() + size_of::<Box<str>>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_case_and_repetition_of_selecting_fields_do_not_matter() {
        let one = Vary::new(["Accept", "accept-language", "ACCEPT"]);
        let other = Vary::new(["accept-LANGUAGE", "accept"]);
        assert_eq!(one, other);
        assert_eq!(Vary::new([]), None);
    }

    #[test]
    fn an_entry_has_room_in_a_line_of_the_processors_cache() {
        assert!(size_of::<Meta>() <= 56, "{} bytes", size_of::<Meta>());
    }

    #[test]
    fn what_few_entries_have_takes_nothing_where_it_is_not() {
        let mut meta = Meta::new(Timestamp::default(), Lifetime::default());
        meta.set_tags(TagSet::default());
        meta.set_validator(None);
        meta.set_vary(None);
        assert_eq!((meta.heap_size(), meta.rare.is_none()), (0, true));
        meta.set_vary(Vary::new(["accept"]));
        meta.set_tags(TagSet::new(["red"]));
        meta.set_validator(Some(Validator { tag: Some("v".into()), modified: None }));
        assert!(meta.tags().iter().eq(["red"]));
        assert_eq!(meta.validator().unwrap().tag.as_deref(), Some(&b"v"[..]));
        assert_eq!(meta.vary().unwrap().names().collect::<Vec<_>>(), ["accept"]);
        assert!(meta.heap_size() > size_of::<Rare>());
        meta.set_vary(None);
        meta.set_tags(TagSet::default());
        meta.set_validator(None);
        assert_eq!(meta, Meta::new(Timestamp::default(), Lifetime::default()));
    }

    #[test]
    fn an_entry_is_stale_from_the_very_end_of_its_lifetime() {
        let born = Timestamp::from_millis(1_000);
        let meta = Meta::new(born, Lifetime::fresh(Duration::from_secs(1)));
        assert!(meta.is_fresh(Timestamp::from_millis(1_999)));
        assert!(!meta.is_fresh(Timestamp::from_millis(2_000)));
        assert_eq!(meta.staleness(Timestamp::from_millis(2_500)), Duration::from_millis(500));
        assert_eq!(meta.fresh_left(Timestamp::from_millis(1_400)), Duration::from_millis(600));
    }
}

//! Metadata of an entry.

mod packed;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::heap;
use crate::tags::{Position, TagSet};
use crate::time::Timestamp;
use packed::{Cost, PackedLifetime};

/// Metadata of an entry that [`judge`](crate::judge()) uses.
///
/// The memory tier holds one per entry, so durations take four bytes each and rare values are in a
/// separate allocation. The fields that a plain hit reads are last: the freshness lifetime, `born` and
/// `position`; see the entry of the engine.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct Meta {
    /// Time at which the load of the entry was sent to the origin; for an entry that was put and
    /// not loaded, the time of the put.
    pub load_started_at: Timestamp,
    /// `None` if all of its values are empty.
    pub(crate) rare: Option<Arc<Rare>>,
    pub(crate) load_cost: Cost,
    /// Kind of the entry: regular or negative.
    pub presence: Presence,
    /// Set if the validator is [in the head](Validator::is_in_head).
    pub(crate) is_validator_in_head: bool,
    pub(crate) lifetime: PackedLifetime,
    /// Time at which the age of the entry was zero: the time of receipt minus the age on arrival.
    /// May be before the start of the process.
    pub born: Timestamp,
    /// Position in the purge log up to which no purge applies to the entry; later purges do. It is
    /// the newest position when the load of the entry began. For an entry of a lower tier, it is
    /// the position up to which its purges were checked.
    pub position: Position,
}

/// Values that many entries do not have.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Rare {
    pub(crate) tags: TagSet,
    pub(crate) validator: Option<Validator>,
    pub(crate) vary: Option<Vary>,
}

static NOTHING_RARE: Rare = Rare { tags: TagSet::NONE, validator: None, vary: None };

impl Meta {
    /// Returns the metadata of a regular entry that was loaded at `at`, with this lifetime and no
    /// other values.
    #[must_use]
    pub fn new(at: Timestamp, lifetime: Lifetime) -> Self {
        Self {
            presence: Presence::Present,
            is_validator_in_head: false,
            load_started_at: at,
            born: at,
            position: Position::default(),
            lifetime: lifetime.into(),
            load_cost: Cost::default(),
            rare: None,
        }
    }

    /// Returns the freshness lifetime and stale windows of the entry, in whole milliseconds, beyond
    /// 24 days in whole seconds, and at most 68 years.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        self.lifetime.into()
    }

    /// Sets the freshness lifetime and stale windows of the entry. Durations are rounded up to whole
    /// milliseconds; from 24 days on, rounded down to whole seconds; at most 68 years.
    pub fn set_lifetime(&mut self, lifetime: Lifetime) {
        self.lifetime = lifetime.into();
    }

    /// Returns the average duration of the entry's loads, to the microsecond and at most about an
    /// hour; zero if unknown. Early refresh starts earlier for expensive loads.
    #[must_use]
    pub const fn load_cost(&self) -> Duration {
        self.load_cost.duration()
    }

    /// Sets the average duration of the entry's loads, rounded to the microsecond and at most about
    /// an hour.
    pub fn set_load_cost(&mut self, cost: Duration) {
        self.load_cost = Cost::of(cost);
    }

    /// Returns the tags by which the entry can be purged.
    #[must_use]
    pub fn tags(&self) -> &TagSet {
        &self.rare().tags
    }

    /// Sets the tags by which the entry can be purged.
    pub fn set_tags(&mut self, tags: TagSet) {
        if self.rare.is_some() || !tags.is_empty() {
            self.change_rare(|rare| rare.tags = tags);
        }
    }

    /// Returns the validator (HTTP: `ETag`, `Last-Modified`) for conditional requests to the
    /// origin; `None` if the entry has none. A validator that is [in the
    /// head](Validator::is_in_head) is returned without parts.
    #[must_use]
    pub fn validator(&self) -> Option<&Validator> {
        let in_head = self.is_validator_in_head.then_some(&IN_HEAD);
        self.rare().validator.as_ref().or(in_head)
    }

    /// Sets the validator for conditional requests to the origin; `None` removes it. A validator
    /// without parts means that it is [in the head](Validator::is_in_head).
    pub fn set_validator(&mut self, validator: Option<Validator>) {
        self.is_validator_in_head = validator.as_ref().is_some_and(Validator::is_in_head);
        let validator = validator.filter(|validator| !validator.is_in_head());
        if self.rare.is_some() || validator.is_some() {
            self.change_rare(|rare| rare.validator = validator);
        }
    }

    /// Returns the request fields that select this entry among the variants of its key; `None` if
    /// the key has no variants.
    #[inline]
    #[must_use]
    pub fn vary(&self) -> Option<&Vary> {
        self.rare().vary.as_ref()
    }

    /// Sets the request fields that select this entry among the variants of its key.
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

    /// Returns the age of the entry at `now`: the time since its origin generated it or confirmed
    /// it as unchanged.
    #[inline]
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Duration {
        now.since(self.born)
    }

    /// Returns true if the entry's freshness lifetime is longer than its age at `now` (RFC 9111
    /// section 4.2).
    #[inline]
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.lifetime.fresh.millis() > now.millis_since(self.born)
    }

    /// Returns the remaining freshness lifetime of the entry at `now`; zero when stale.
    #[inline]
    #[must_use]
    pub fn fresh_left(&self, now: Timestamp) -> Duration {
        Duration::from_millis(self.fresh_left_millis(now))
    }

    #[inline]
    pub(crate) fn fresh_left_millis(&self, now: Timestamp) -> u64 {
        self.lifetime.fresh.millis().saturating_sub(now.millis_since(self.born))
    }

    /// Returns the time since the entry became stale; zero while it is fresh.
    #[inline]
    #[must_use]
    pub fn staleness(&self, now: Timestamp) -> Duration {
        let age = now.millis_since(self.born);
        Duration::from_millis(age.saturating_sub(self.lifetime.fresh.millis()))
    }

    /// Returns the memory in bytes that the metadata takes on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        let Some(rare) = &self.rare else { return 0 };
        heap::shared(size_of::<Rare>())
            + rare.tags.heap_size()
            + rare.validator.as_ref().map_or(0, Validator::heap_size)
            + rare.vary.as_ref().map_or(0, Vary::heap_size)
    }
}

/// Kind of an entry: regular or negative. The memory tier limits negative entries to a share of
/// their own, so that requests for nonexistent keys do not evict regular entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Presence {
    /// Regular entry: the origin has a value for the key.
    #[default]
    Present,
    /// Negative entry: the origin has no value for the key.
    Absent,
}

/// Freshness lifetime and stale windows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Freshness lifetime of the entry, counted from age zero.
    pub fresh: Duration,
    /// Window after the freshness lifetime in which the entry is served while one flight refreshes
    /// it (RFC 5861 section 3).
    pub stale_while_revalidate: Duration,
    /// Window after the freshness lifetime in which the entry is served when a load fails (RFC 5861
    /// section 4).
    pub stale_if_error: Duration,
    /// Permission of the origin to serve the entry stale.
    pub stale: Stale,
}

impl Lifetime {
    /// Returns a lifetime with this freshness lifetime and without stale windows.
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

/// Permission of the origin to serve an entry after its freshness lifetime (RFC 9111 section
/// 4.2.4). The stale windows of the entry or the demand of the caller limit the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stale {
    /// Stale responses are permitted within a window of the entry or of the caller.
    #[default]
    Permitted,
    /// Stale responses are forbidden: must-revalidate, proxy-revalidate, no-cache or s-maxage.
    Forbidden,
}

/// Validator for conditional requests to the origin. Both parts are stored as received; front ends
/// other than HTTP put a version into `tag`. Without parts, it is in the head of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Validator {
    /// Opaque version (HTTP: `ETag`).
    pub tag: Option<Bytes>,
    /// Time of the last change (HTTP: `Last-Modified`).
    pub modified: Option<Bytes>,
}

/// Validator that is in the head.
static IN_HEAD: Validator = Validator { tag: None, modified: None };

impl Validator {
    /// Returns true if the head of the entry contains the validator, so that the metadata does not
    /// repeat it.
    #[must_use]
    pub const fn is_in_head(&self) -> bool {
        self.tag.is_none() && self.modified.is_none()
    }

    fn heap_size(&self) -> usize {
        let parts = [&self.tag, &self.modified].into_iter().flatten();
        parts.map(|part| heap::allocated(part.len())).sum()
    }
}

/// Names of the request fields that select a variant: lower case, sorted, without duplicates, so
/// that `Vary: A, b` and `Vary: B,a` are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vary(Arc<[Box<str>]>);

impl Vary {
    /// Creates a `Vary` from field names in any order and case; `None` if there are none.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut names: Vec<Box<str>> =
            names.into_iter().map(|name| name.to_ascii_lowercase().into()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { None } else { Some(Self(names.into())) }
    }

    /// Returns the names of the selecting fields, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// Returns the memory in bytes that the list of names takes on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        let names: usize = self.0.iter().map(|name| heap::allocated(name.len())).sum();
        heap::shared(size_of_val(&*self.0)) + names
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
    fn metadata_fits_into_a_cache_line() {
        assert!(size_of::<Meta>() <= 56, "{} bytes", size_of::<Meta>());
    }

    #[test]
    fn absent_rare_values_occupy_no_heap() {
        let mut meta = Meta::new(Timestamp::default(), Lifetime::default());
        meta.set_tags(TagSet::default());
        meta.set_validator(None);
        meta.set_vary(None);
        assert_eq!((meta.heap_size(), meta.rare.is_none()), (0, true));
        meta.set_validator(Some(Validator::default()));
        assert_eq!((meta.heap_size(), meta.rare.is_none()), (0, true));
        assert!(meta.validator().is_some_and(Validator::is_in_head));
        meta.set_validator(None);
        assert!(meta.validator().is_none());
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
    fn an_entry_is_stale_when_its_age_reaches_its_lifetime() {
        let born = Timestamp::from_millis(1_000);
        let meta = Meta::new(born, Lifetime::fresh(Duration::from_secs(1)));
        assert!(meta.is_fresh(Timestamp::from_millis(1_999)));
        assert!(!meta.is_fresh(Timestamp::from_millis(2_000)));
        assert_eq!(meta.staleness(Timestamp::from_millis(2_500)), Duration::from_millis(500));
        assert_eq!(meta.fresh_left(Timestamp::from_millis(1_400)), Duration::from_millis(600));
    }
}

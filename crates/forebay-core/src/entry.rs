//! What the cache knows of an entry besides its bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::tags::{Position, TagSet};
use crate::time::Timestamp;

/// All that [`judge`](crate::judge()) needs to know of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// Whether it is something, or the knowledge that there is nothing.
    pub presence: Presence,
    /// When the load that brought it left for the origin.
    pub departed: Timestamp,
    /// When its age was zero: the landing minus the age it already had. May lie before the start
    /// of the process.
    pub born: Timestamp,
    /// Where the log of purges stood when the load departed: an entry is reached by every purge
    /// after it.
    pub position: Position,
    /// How long it may be used, and how.
    pub lifetime: Lifetime,
    /// What the last load took; early refresh starts earlier for what is expensive.
    pub load_cost: Duration,
    /// The tags by which it can be purged.
    pub tags: TagSet,
    /// By what the origin can be asked whether it is still good.
    pub validator: Option<Validator>,
    /// The request fields that selected it among its variants.
    pub vary: Option<Vary>,
}

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
            lifetime,
            load_cost: Duration::ZERO,
            tags: TagSet::default(),
            validator: None,
            vary: None,
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
        self.lifetime.fresh > self.age(now)
    }

    /// What is left of the freshness lifetime; zero once it is stale.
    #[inline]
    #[must_use]
    pub fn fresh_left(&self, now: Timestamp) -> Duration {
        self.lifetime.fresh.saturating_sub(self.age(now))
    }

    /// How long it has been stale; zero while it is fresh.
    #[inline]
    #[must_use]
    pub fn staleness(&self, now: Timestamp) -> Duration {
        self.age(now).saturating_sub(self.lifetime.fresh)
    }

    /// Bytes this occupies beside the value itself: what its parts hold on the heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        self.tags.heap_size()
            + self.validator.as_ref().map_or(0, Validator::len)
            + self.vary.as_ref().map_or(0, Vary::heap_size)
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
    fn an_entry_is_stale_from_the_very_end_of_its_lifetime() {
        let born = Timestamp::from_millis(1_000);
        let meta = Meta::new(born, Lifetime::fresh(Duration::from_secs(1)));
        assert!(meta.is_fresh(Timestamp::from_millis(1_999)));
        assert!(!meta.is_fresh(Timestamp::from_millis(2_000)));
        assert_eq!(meta.staleness(Timestamp::from_millis(2_500)), Duration::from_millis(500));
        assert_eq!(meta.fresh_left(Timestamp::from_millis(1_400)), Duration::from_millis(600));
    }
}

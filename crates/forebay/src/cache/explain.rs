//! Predictions of the result of a call, for logs and debugging.

use std::fmt;
use std::time::Duration;

use forebay_core::judge::ttl_seconds;
use forebay_core::{Demand, Lifetime, Timestamp};
use forebay_engine::{Entry, LoadError, LookupResult, Miss};

use crate::cache::call::Call;
use crate::cache::load::is_absent;
use crate::cache::shared::lookup_request;

/// Predicted result of a [`get_or_load`](crate::Cache::get_or_load) call, from
/// [`Cache::explain`](crate::Cache::explain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prediction {
    /// The call returns the stored entry without waiting.
    Served,
    /// The call returns the stored entry, and one load refreshes the entry in the background.
    ServedAndRefreshed,
    /// The call waits for a load, because memory has no usable entry, and the cache has no lower
    /// tiers.
    Loaded,
    /// The call looks into the lower tiers, and waits for a load if none of them has a usable
    /// entry.
    TierLookupThenLoad,
    /// The call looks into the lower tiers, and loads nothing (`only_if_cached`).
    TierLookupOnly,
    /// The call starts no load, because recent loads of the key failed. It gets a stale value
    /// within [`stale_if_error`](crate::Builder::stale_if_error), or fails with
    /// [`Error::BackingOff`](crate::Error::BackingOff).
    BackingOff,
    /// The call fails with [`Error::NotCached`](crate::Error::NotCached): it has
    /// [`only_if_cached`](crate::Options::only_if_cached), nothing usable is stored, and the cache
    /// has no lower tiers.
    NotCached,
}

/// State of a key in memory, and the predicted result of a call for it; from
/// [`Cache::explain`](crate::Cache::explain). `Display` prints one sentence for logs. Lower tiers
/// are not read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// Predicted result of a call for the key at this moment.
    pub prediction: Prediction,
    /// Reason why the call would not be a fresh hit, in the words of [`Reasons`](crate::Reasons),
    /// such as `stale`; `None` for a fresh hit.
    pub why: Option<&'static str>,
    /// Metadata of the key's entry in memory, usable or not; `None` if there is none or it was
    /// removed.
    pub stored: Option<StoredEntry>,
}

/// Metadata of a key's entry in memory, as part of an [`Explanation`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredEntry {
    /// `true` if the entry says that the key has no value.
    pub is_absent: bool,
    /// Time since the value was loaded, set or found unchanged.
    pub age: Duration,
    /// Freshness lifetime of the entry in total, counted from the moment that it was loaded, set or
    /// found unchanged. After [`Cache::expire`](crate::Cache::expire) it is at most the age.
    pub ttl: Duration,
    /// Time after the end of freshness during which the entry is served while one load refreshes
    /// it.
    pub stale_while_revalidate: Duration,
    /// Time after the end of freshness during which the entry is served if a load fails.
    pub stale_if_error: Duration,
    /// Moving average of the durations of the key's loads, or the cost that the loader set with
    /// [`Answer::cost`](crate::Answer::cost). Zero for a value that was set without a load.
    pub load_cost: Duration,
    /// Tags by which the entry can be invalidated.
    pub tags: Vec<String>,
    /// `true` if the entry has a validator or a version for its next loader.
    pub has_validator: bool,
    /// Size of the entry in memory with overhead and without its key, in bytes; 1 if memory is
    /// bounded by a number of values.
    pub weight: u64,
    /// Seconds until the end of the entry's freshness, rounded up; zero or negative after it,
    /// rounded towards zero. [`Cache::expire_tag`](crate::Cache::expire_tag) does not change it.
    pub ttl_left: i64,
}

impl Explanation {
    pub(crate) fn of<V: Send + Sync + 'static>(call: Call<'_, V>, key: &str) -> Self {
        let engine = &call.shared.engine;
        let now = engine.clock().now();
        // Without random early refresh, so that one state has one explanation, and without
        // `min_fresh`, which only makes lookups report entries whose use must be recorded.
        let demand = Demand { beta: 0.0, min_fresh: None, ..call.demand.clone() };
        let name = call.shared.owned_key(key);
        let request = lookup_request(name.borrowed(), &demand);
        match engine.lookup(&request) {
            LookupResult::Hit(hit) => Self {
                prediction: Prediction::Served,
                why: hit.why.map(forebay_core::Why::code),
                stored: Some(StoredEntry::of(&hit.entry, now)),
            },
            LookupResult::Miss(miss) => Self {
                prediction: Prediction::of(call, engine.recent_failure(&request, &miss), &miss),
                why: Some(miss.why().code()),
                stored: miss.prior().map(|entry| StoredEntry::of(entry, now)),
            },
        }
    }
}

impl Prediction {
    /// Predicts the result of a call that misses in memory.
    fn of<V>(call: Call<'_, V>, failure: Option<LoadError>, miss: &Miss) -> Self {
        let has_tiers = call.shared.codec.is_some();
        match (miss.is_served_first(), call.demand.only_if_cached) {
            (true, true) => Self::Served,
            (true, false) => Self::ServedAndRefreshed,
            (false, true) if has_tiers => Self::TierLookupOnly,
            (false, true) => Self::NotCached,
            (false, false) if failure.is_some() => Self::BackingOff,
            (false, false) if has_tiers => Self::TierLookupThenLoad,
            (false, false) => Self::Loaded,
        }
    }
}

impl StoredEntry {
    fn of(entry: &Entry, now: Timestamp) -> Self {
        let meta = &entry.meta;
        let Lifetime { fresh, stale_while_revalidate, stale_if_error, .. } = meta.lifetime();
        Self {
            is_absent: is_absent(entry),
            age: meta.age(now),
            ttl: fresh,
            stale_while_revalidate,
            stale_if_error,
            load_cost: meta.load_cost(),
            tags: meta.tags().iter().map(str::to_owned).collect(),
            has_validator: meta.validator().is_some(),
            weight: entry.charge(0),
            ttl_left: ttl_seconds(meta, now),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.prediction {
            Prediction::Served => "served from memory",
            Prediction::ServedAndRefreshed => "served from memory and refreshed in the background",
            Prediction::Loaded => "loaded",
            Prediction::TierLookupThenLoad => "read from a lower tier, or loaded if none has it",
            Prediction::TierLookupOnly => {
                "read from a lower tier, or not found: the call loads nothing (only_if_cached)"
            }
            Prediction::BackingOff => {
                "not loaded, because recent loads of the key failed (back-off)"
            }
            Prediction::NotCached => "not found: the call loads nothing (only_if_cached)",
        })?;
        if let Some(why) = self.why {
            write!(f, " ({why})")?;
        }
        match &self.stored {
            None => f.write_str("; memory has no entry"),
            Some(stored) => stored.fmt(f),
        }
    }
}

impl StoredEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = if self.is_absent { "an absent entry" } else { "a value" };
        write!(f, "; memory has {content}, age {:?}, ", self.age)?;
        match self.ttl_left {
            left if left > 0 => write!(f, "fresh for {left} s")?,
            left => write!(f, "stale since {} s", left.unsigned_abs())?,
        }
        if !self.tags.is_empty() {
            write!(f, ", tags {}", self.tags.join(", "))?;
        }
        Ok(())
    }
}

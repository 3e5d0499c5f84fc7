//! What a cache knows of a key.

use std::fmt;
use std::time::Duration;

use forebay_core::judge::ttl_seconds;
use forebay_core::{Demand, Lifetime, Timestamp};
use forebay_engine::{Entry, LoadError, Look, Wanting};

use crate::call::Call;
use crate::load::is_absent;
use crate::shared::ask;

/// What a call would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prediction {
    /// It would be answered with what is at hand.
    Served,
    /// It would be, and one load would refresh it meanwhile.
    ServedAndRefreshed,
    /// It would wait for a load.
    Loaded,
    /// It would wait for the tiers below memory, and if none of them has it for a load.
    TierLookupThenLoad,
    /// The same, for a call that wants nothing loaded.
    TierLookupOnly,
    /// It would be told that nothing is loaded yet, since loads have failed a moment ago.
    BackingOff,
    /// It would be told that nothing usable is at hand: it wants nothing loaded.
    NotCached,
}

/// What memory knows of a key, and what a call for it would do now; for people, in logs and on
/// pages. Its `Display` says it in a sentence. Tiers below memory are not asked for it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// What a call would do.
    pub prediction: Prediction,
    /// Why it is not simply a fresh hit: a word that metrics and `Cache-Status` use, too.
    pub why: Option<&'static str>,
    /// What is stored, if anything is that was not removed.
    pub stored: Option<StoredEntry>,
}

/// What is known of a stored entry.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredEntry {
    /// Whether it says that there is nothing under its key.
    pub is_absent: bool,
    /// How long ago it was loaded, set or found unchanged.
    pub age: Duration,
    /// How long it is fresh in all.
    pub ttl: Duration,
    /// For how long after that it is served while it is refreshed.
    pub stale_while_revalidate: Duration,
    /// For how long after its time it is served when a load fails.
    pub stale_if_error: Duration,
    /// What its load has cost.
    pub load_cost: Duration,
    /// The tags by which it can be invalidated.
    pub tags: Vec<String>,
    /// Whether its loader can be told a version.
    pub has_validator: bool,
    /// What it takes of the bound of memory, its key not included.
    pub weight: u64,
    /// Whole seconds until it is stale; negative once it is.
    pub ttl_left: i64,
}

impl Explanation {
    pub(crate) fn of<V: Send + Sync + 'static>(call: Call<'_, V>, key: &str) -> Self {
        let engine = &call.shared.engine;
        let now = engine.clock().now();
        // The dice of an early refresh would let two explanations of one state differ.
        // Nor does it matter to an explanation whether a use would be noted.
        let demand = Demand { beta: 0.0, min_fresh: None, ..call.demand.clone() };
        let name = call.shared.owned_key(key);
        let ask = ask(name.borrowed(), &demand);
        match engine.look(&ask) {
            Look::Served(obtained) => Self {
                prediction: Prediction::Served,
                why: obtained.why.map(forebay_core::Why::code),
                stored: Some(StoredEntry::of(&obtained.entry, now)),
            },
            Look::Wanting(wanting) => Self {
                prediction: Prediction::of(call, engine.recent_failure(&ask, &wanting), &wanting),
                why: Some(wanting.why().code()),
                stored: wanting.prior().map(|entry| StoredEntry::of(entry, now)),
            },
        }
    }
}

impl Prediction {
    /// Of a call that does not find what it wants in memory.
    fn of<V>(call: Call<'_, V>, failure: Option<LoadError>, wanting: &Wanting) -> Self {
        let has_tiers = call.shared.codec.is_some();
        match (wanting.is_served(), call.demand.only_if_cached) {
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
            Prediction::Served => "it is served",
            Prediction::ServedAndRefreshed => "it is served, and refreshed meanwhile",
            Prediction::Loaded => "it is loaded",
            Prediction::TierLookupThenLoad => {
                "it is looked for in the tiers below memory, and loaded if none has it"
            }
            Prediction::TierLookupOnly => {
                "it is looked for in the tiers below memory, and not loaded: the call wants that"
            }
            Prediction::BackingOff => "it is not loaded yet: loads have failed a moment ago",
            Prediction::NotCached => "it is not loaded: the call wants nothing loaded",
        })?;
        if let Some(why) = self.why {
            write!(f, " ({why})")?;
        }
        match &self.stored {
            None => f.write_str("; nothing is stored in memory"),
            Some(stored) => stored.fmt(f),
        }
    }
}

impl StoredEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_absent { "that there is nothing" } else { "a value" };
        write!(f, "; {what} is stored, {:?} old, and ", self.age)?;
        match self.ttl_left {
            left if left > 0 => write!(f, "fresh for {left} s")?,
            left => write!(f, "stale for {} s", left.unsigned_abs())?,
        }
        if !self.tags.is_empty() {
            write!(f, ", tagged {}", self.tags.join(", "))?;
        }
        Ok(())
    }
}

//! What a cache knows of a key.

use std::fmt;
use std::time::Duration;

use forebay_core::judge::ttl_seconds;
use forebay_core::{Demand, Lifetime, Timestamp};
use forebay_engine::{Entry, Look};

use crate::call::Call;
use crate::load::is_absent;
use crate::shared::ask;

/// What a call would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outlook {
    /// It would be answered with what is at hand.
    Served,
    /// It would be, and one load would refresh it meanwhile.
    ServedAndRefreshed,
    /// It would wait for a load.
    Loaded,
}

/// What a cache knows of a key, and what a call for it would do now; for people, in logs and on
/// pages. Its `Display` says it in a sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// What a call would do.
    pub outlook: Outlook,
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
        match call.shared.name_of(key).joined(|key| engine.look(&ask(key, &demand))) {
            Look::Served(obtained) => Self {
                outlook: Outlook::Served,
                why: obtained.why.map(forebay_core::Why::code),
                stored: Some(StoredEntry::of(&obtained.entry, now)),
            },
            Look::Wanting(wanting) => Self {
                outlook: if wanting.is_served() {
                    Outlook::ServedAndRefreshed
                } else {
                    Outlook::Loaded
                },
                why: Some(wanting.why().code()),
                stored: wanting.prior().map(|entry| StoredEntry::of(entry, now)),
            },
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
        f.write_str(match self.outlook {
            Outlook::Served => "it is served",
            Outlook::ServedAndRefreshed => "it is served, and refreshed meanwhile",
            Outlook::Loaded => "it is loaded",
        })?;
        if let Some(why) = self.why {
            write!(f, " ({why})")?;
        }
        match &self.stored {
            None => f.write_str("; nothing is stored"),
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

//! Reports about one key. They change nothing: no use is counted, and no random number is drawn.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::judge::NoDice;
use forebay_core::{PurgeState, key};

use super::{Lookup, LookupResult, Miss, Outcome};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::flight::load::LoadError;
use crate::flight::pass_markers::Marked;
use crate::flight::source::Source;
use crate::memory::Found;

/// Entry of memory under a key: the only one, or one of its variants.
#[derive(Clone, Debug)]
pub struct StoredVariant {
    /// Selecting fields with the values of this variant; `None` is an absent field.
    pub fields: Vec<(String, Option<Vec<u8>>)>,
    /// Entry.
    pub entry: Arc<Entry>,
    /// Effect of purges on the entry.
    pub purge: PurgeState,
    /// True if the request selects this entry.
    pub is_selected: bool,
}

/// Record that answers of a key are not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassMarker {
    /// Time until the end of the marker.
    pub left: Duration,
    /// True if the answers may not be shared; false if they are never fresh.
    pub is_private: bool,
}

/// Pause of the loads of a key after failures.
#[derive(Clone, Debug)]
pub struct BackOff {
    /// Time until the next load.
    pub left: Duration,
    /// Error of the last load.
    pub error: LoadError,
}

impl Engine {
    /// Returns the result of [`lookup`](Self::lookup) without an early refresh, and without counting
    /// as a use.
    #[must_use]
    pub fn peek(&self, lookup: &Lookup<'_>) -> LookupResult {
        let entry = match self.memory.peek_found(lookup.key, lookup.select) {
            Found::Entry(entry) => entry,
            missing => return LookupResult::missing(lookup, missing),
        };
        let now = self.clock.now();
        if lookup.demand.is_plain() && entry.is_plain(now, self.log.trusted()) {
            return LookupResult::Hit(Outcome { entry, source: Source::Hit, why: None });
        }
        self.judge_entry(lookup, entry, now, &mut NoDice)
    }

    /// Returns all entries that memory has under the key of a request, usable or not.
    #[must_use]
    pub fn stored_variants(&self, lookup: &Lookup<'_>) -> Vec<StoredVariant> {
        let selected = self.memory.peek_for(lookup.key, lookup.select);
        let is_selected =
            |entry: &Arc<Entry>| selected.as_ref().is_some_and(|one| Arc::ptr_eq(one, entry));
        let all = self.memory.peek_all(lookup.key).into_iter();
        let variant = |(key, entry): (forebay_core::Key, Arc<Entry>)| {
            let fields = key::fields_of_variant(lookup.key, key.borrowed()).into_iter();
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            StoredVariant {
                fields: fields
                    .map(|(name, value)| (text(name), value.map(<[u8]>::to_vec)))
                    .collect(),
                purge: self.log.state_of(lookup.key, &entry),
                is_selected: is_selected(&entry),
                entry,
            }
        };
        all.map(variant).collect()
    }

    /// Returns the pass marker that applies to a request.
    #[must_use]
    pub fn pass_marker(&self, lookup: &Lookup<'_>) -> Option<PassMarker> {
        let (markers, now) = (&self.passes[lookup.credentials as usize], self.clock.now());
        let (until, marked) = markers.until(lookup.key, now)?;
        Some(PassMarker { left: until.since(now), is_private: marked == Marked::Private })
    }

    /// Returns the back-off that applies to a request that misses in memory.
    #[must_use]
    pub fn back_off_of(&self, lookup: &Lookup<'_>, miss: &Miss) -> Option<BackOff> {
        let (failures, now) = (&self.failures[lookup.credentials as usize], self.clock.now());
        let (until, error) = failures.until(miss.key_of_flight(lookup.key), now)?;
        Some(BackOff { left: until.since(now), error })
    }
}

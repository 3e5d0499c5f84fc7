//! Reports about the entries of lower tiers. They change nothing: no use is counted, no lease is
//! requested, and no entry is moved to memory.

use bytes::Bytes;
use forebay_core::judge::NoDice;
use forebay_core::{
    Condition, Demand, KeyRef, Meta, Position, PurgeState, Timestamp, Verdict, judge, key,
};

use super::lower_lookup::{Lifespan, RecordPlace, generation_of};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::entry::select::{Select, selected};
use crate::tiers::error::TierError;
use crate::tiers::lower::{Deadline, LowerTier};
use crate::tiers::tier::Stored;

/// Request whose entries are looked up in the lower tiers.
#[derive(Clone, Copy)]
pub(crate) struct Inquiry<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) demand: &'a Demand,
    pub(crate) select: &'a dyn Select,
}

/// State of a lower tier for one request.
#[derive(Clone, Debug)]
pub struct TierReport {
    /// Name of the tier.
    pub name: &'static str,
    /// State of its circuit breaker for reads.
    pub condition: Condition,
    /// Entry that the request selects in the tier.
    pub entry: Option<TierEntry>,
    /// Failure of the read.
    pub failure: Option<TierError>,
}

/// Entry of a lower tier.
#[derive(Clone, Debug)]
pub struct TierEntry {
    /// Metadata.
    pub meta: Meta,
    /// Encoded head.
    pub head: Bytes,
    /// Effect of purges on the entry.
    pub purge: PurgeState,
    /// True if the search of a load would end with this entry, unless a tier above has one.
    pub is_usable: bool,
}

impl Engine {
    /// Reads the entry that a request selects in each lower tier.
    pub(crate) async fn tier_reports(&self, lookup: Inquiry<'_>) -> Vec<TierReport> {
        let mut deadline = Deadline::within(self.lower.walk_budget(lookup.key));
        let prior = self.memory.peek_for(lookup.key, lookup.select);
        let mut reports = Vec::new();
        for (tier_index, lower) in self.lower.all().iter().enumerate() {
            if !lower.takes(lookup.key) {
                continue;
            }
            let place = RecordPlace { primary: lookup.key, tier_index };
            let read = self.inspect_tier(lookup, place, lower, &mut deadline).await;
            let (entry, failure) = match read {
                Ok(entry) => (entry, None),
                Err(failure) => (None, Some(failure)),
            };
            let entry = entry.map(|entry| self.rated(lookup, entry, prior.as_deref()));
            let (name, condition) = (lower.name(), lower.condition());
            reports.push(TierReport { name, condition, entry, failure });
        }
        reports
    }

    /// Returns true if a lower tier has an entry of exactly this key that is valid, and whose load
    /// began before `before`. A tier that is bypassed, or has a removal to make up for, is not read.
    pub(crate) async fn tiers_have_older(&self, key: KeyRef<'_>, before: Timestamp) -> bool {
        let mut deadline = Deadline::within(self.lower.walk_budget(key));
        for (tier_index, lower) in self.lower.all().iter().enumerate() {
            let is_skipped = lower.condition() != Condition::Closed || lower.is_purge_pending(key);
            if is_skipped || !lower.takes(key) {
                continue;
            }
            let carried_out = self.log.progress.carried_out_up_to();
            let Ok(Some(record)) = lower.inspect(key, &mut deadline).await else { continue };
            let place = RecordPlace { primary: key, tier_index };
            let checked = self.check_record(place, &record, carried_out);
            if checked.state == PurgeState::Valid && checked.meta.load_started_at < before {
                return true;
            }
        }
        false
    }

    async fn inspect_tier(
        &self,
        lookup: Inquiry<'_>,
        place: RecordPlace<'_>,
        lower: &LowerTier,
        deadline: &mut Deadline,
    ) -> Result<Option<TierEntry>, TierError> {
        if lower.condition() != Condition::Closed || lower.is_purge_pending(lookup.key) {
            return Err(TierError::Bypassed);
        }
        let carried_out = self.log.progress.carried_out_up_to();
        let Some(record) = lower.inspect(lookup.key, deadline).await? else { return Ok(None) };
        let Some(vary) = record.meta.vary().cloned() else {
            return Ok(Some(self.entry_of(place, record, carried_out)));
        };
        let Some(generation) = generation_of(&record) else { return Ok(None) };
        let key = key::variant(lookup.key, generation, selected(&vary, lookup.select));
        let variant = lower.inspect(key.borrowed(), deadline).await?;
        let variant = variant.filter(|variant| variant.meta.vary() == Some(&vary));
        let variant = variant.map(|variant| variant.in_family(record.family_token));
        Ok(variant.map(|variant| self.entry_of(place, variant, carried_out)))
    }

    fn entry_of(&self, place: RecordPlace<'_>, record: Stored, carried_out: Position) -> TierEntry {
        let checked = self.check_record(place, &record, carried_out);
        TierEntry { meta: checked.meta, head: record.head, purge: checked.state, is_usable: false }
    }

    /// Decides whether the search of a load would end with the entry.
    fn rated(&self, lookup: Inquiry<'_>, entry: TierEntry, prior: Option<&Entry>) -> TierEntry {
        let (meta, now) = (&entry.meta, self.clock.now());
        let state = entry.purge.max(self.log.recorded_state(lookup.key, meta));
        let verdict = judge(meta, lookup.demand, state, now, &mut NoDice);
        let is_newer = prior.is_none_or(|prior| {
            let of_prior = Lifespan::of_prior(prior, self.log.state_of(lookup.key, prior));
            Lifespan::of(meta).is_newer_than(of_prior)
        });
        let is_served = matches!(verdict, Verdict::Serve | Verdict::ServeThenRefresh(_));
        TierEntry { is_usable: is_served && is_newer, ..entry }
    }
}

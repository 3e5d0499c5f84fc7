//! Lookup in the lower tiers, from top to bottom, before an origin is asked.
//!
//! The search ends at the first entry that satisfies the demand; it fills memory as an answer of the
//! origin would. The youngest of the other entries is used for a conditional request. All steps
//! share one deadline, and a failure counts as a miss.
//!
//! If the flight may load, the lookup in the shared tier may also request the lease
//! ([`lease_strategy`](crate::tiers::lease_strategy)): then one exchange returns an entry or the
//! permission to load.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::judge::NoDice;
use forebay_core::{
    Demand, Key, KeyRef, Meta, Position, PurgeState, Timestamp, Vary, Verdict, judge, key,
};
use futures_util::StreamExt;

use super::Leading;
use super::cluster_lease::{LeaseAnswer, LeaseUse};
use crate::engine::Engine;
use crate::entry::body::gather::{Gathered, exact, gather_begun};
use crate::entry::body::{Body, Parts, PieceStream, bounded};
use crate::entry::select::selected;
use crate::entry::{Entry, Head, stale_from};
use crate::flight::batch::BatchPart;
use crate::flight::load::{Extent, Load, LoadError, LoadSource};
use crate::runtime::event::Event;
use crate::tiers::error::TierError;
use crate::tiers::lease::{Claim, Lease, Leases};
use crate::tiers::lease_strategy::Looked;
use crate::tiers::lower::{Deadline, LowerTier};
use crate::tiers::tier::{Stored, TierErrors};

/// Minimum size up to which a stale entry is read for a conditional request, even if memory keeps
/// less. There are as many as loads.
const VALIDATED_MAX: u64 = 1 << 20;

/// Name of the operation that reads a body.
const READ: &str = "read";

/// Minimum age difference of a newer entry. The age of one entry differs by a few milliseconds each
/// time it is read.
pub(super) const YOUNGER_MIN: Duration = Duration::from_secs(1);

/// Purpose of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Answer,
    /// A refresh in the background.
    Refresh,
}

/// Requirements for entries of lower tiers.
#[derive(Clone, Debug)]
pub(crate) struct TierDemand {
    pub(crate) demand: Demand,
    pub(crate) purpose: Purpose,
}

/// Result of a search.
pub(super) enum Search {
    Found(Box<FoundEntry>),
    /// An entry for a conditional request.
    Stale(StaleEntry),
    Nothing,
    /// No entry, and a tier has failed for a caller that demands strict tier errors.
    Failed(LoadError),
}

/// Selecting fields of a key, and the generation of its variants.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) vary: Vary,
    pub(super) generation: u64,
}

/// Stale entry of a lower tier.
pub(super) struct StaleEntry {
    pub(super) entry: Arc<Entry>,
    pub(super) position: TierPosition,
}

/// Record of the shared tier that a flight has found unusable.
#[derive(Default)]
pub(super) struct SeenInShared {
    /// Key of the variant. `None` for the primary key.
    pub(super) variant: Option<Key>,
    pub(super) stamp: Option<u64>,
}

/// Facts that a search has found besides entries.
#[derive(Default)]
pub(super) struct SearchState {
    pub(super) family: Option<Family>,
    pub(super) seen: SeenInShared,
    /// Answer to the lease request of the lookup, if it made one.
    pub(super) lease_answer: Option<LeaseAnswer>,
    /// Time left for operations of lower tiers.
    pub(super) deadline: Option<Deadline>,
}

/// Entry of a lower tier that satisfies the demand.
pub(super) struct FoundEntry {
    pub(super) meta: Meta,
    pub(super) softened: bool,
    pub(super) head: Head,
    pub(super) body: FoundBody,
    pub(super) position: TierPosition,
    /// `true` if another instance filled the tier while this one waited for it.
    pub(super) by_instance: bool,
}

/// Body of such an entry.
pub(super) enum FoundBody {
    Gathered(Gathered),
    /// Body that stays in its tier: it is too large for memory, or only a part is requested.
    InTier(Arc<dyn Parts>),
}

/// Place of an entry in the lower tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TierPosition {
    /// Number of lower tiers above.
    pub(super) tier_index: usize,
    /// Generation of the entry's family in that tier. `None` if the entry has no variants.
    pub(super) generation: Option<u64>,
}

/// Creation and end of freshness of an entry.
#[derive(Clone, Copy)]
pub(super) struct Lifespan {
    born: Timestamp,
    end: Timestamp,
}

impl Lifespan {
    pub(super) fn of(meta: &Meta) -> Self {
        Self { born: meta.born, end: meta.born.plus(meta.lifetime().fresh) }
    }

    /// Lifespan of the entry in memory. An unverified or soft-purged entry is replaced by a valid
    /// one of the same age, but not by one that is only fresh for longer.
    pub(super) fn of_prior(prior: &Entry, state: PurgeState) -> Self {
        if state == PurgeState::Valid {
            return Self::of(&prior.meta);
        }
        let end = Timestamp::from_millis(i64::MAX);
        Self { born: prior.meta.born.minus(YOUNGER_MIN).minus(YOUNGER_MIN), end }
    }

    /// Returns `true` if an entry is younger, or the same and fresh for longer: a tier may keep for
    /// an hour an entry that the tier above revalidates every minute.
    pub(super) fn is_newer_than(self, known: Self) -> bool {
        self.born.since(known.born) >= YOUNGER_MIN || self.end.since(known.end) >= YOUNGER_MIN
    }
}

/// Searches the lower tiers for a flight. `prior` is the entry of memory.
pub(super) async fn search<L: Load>(
    leading: &Leading<L>,
    demand: &TierDemand,
    prior: Option<&Entry>,
) -> (SearchState, Search) {
    let Leading { engine, leader, rules, load, options, .. } = leading;
    if let Some(joined) = &engine.joined {
        // Other instances may have purged entries of this one before its process started.
        joined.first_report(engine.clock.now()).await;
        if leader.is_purged() {
            return (SearchState::default(), Search::Nothing);
        }
    }
    let deadline = Deadline::within(engine.lower.walk_budget(leading.primary()));
    let mut search = TierSearch::new(leading, demand, leading.flight().position, deadline);
    let reads_together = load.batch().is_some_and(BatchPart::reads_together);
    let may_load = options.source != LoadSource::LowerTiers;
    if rules.lease_use != LeaseUse::Never && may_load && !reads_together {
        search.leases = engine.joined.as_ref().map(|joined| &*joined.leases);
    }
    let found = search.run(prior).await;
    (search.into_state(), found)
}

/// One search.
pub(super) struct TierSearch<'a, L> {
    leading: &'a Leading<L>,
    engine: &'a Engine,
    demand: &'a TierDemand,
    deadline: Deadline,
    /// Source of leases, if lookups may request them.
    leases: Option<&'a dyn Leases>,
    /// Uppermost family of variants. Memory learns of it when this flight ends: a request in between
    /// would join another flight, and load once more.
    family: Option<Family>,
    seen: SeenInShared,
    lease_answer: Option<LeaseAnswer>,
    /// Position of the purge log before anything was read.
    position: Position,
    /// Position up to which the tiers of this instance had applied purges by then.
    carried_out: Position,
    /// Failure of the uppermost tier that has failed.
    failure: Option<LoadError>,
}

/// Entry of a tier, its body not read yet.
pub(super) struct Candidate {
    pub(super) meta: Meta,
    /// `true` if a purge has made the entry stale that is not in the log of this instance.
    softened: bool,
    head: Head,
    body: PieceStream,
    parts: Option<Arc<dyn Parts>>,
    position: TierPosition,
}

impl<'a, L: Load> TierSearch<'a, L> {
    /// Creates a search for entries that are read from this position of the purge log on.
    pub(super) fn new(
        leading: &'a Leading<L>,
        demand: &'a TierDemand,
        position: Position,
        deadline: Deadline,
    ) -> Self {
        Self {
            leading,
            engine: &leading.engine,
            demand,
            deadline,
            leases: None,
            family: None,
            seen: SeenInShared::default(),
            lease_answer: None,
            position,
            carried_out: leading.engine.log.progress.carried_out_up_to(),
            failure: None,
        }
    }

    /// Continues after an earlier search of the flight.
    pub(super) fn resume(&mut self, family: Option<Family>, seen: SeenInShared) {
        (self.family, self.seen) = (family, seen);
    }

    pub(super) fn into_state(self) -> SearchState {
        let Self { family, seen, lease_answer, deadline, .. } = self;
        SearchState { family, seen, lease_answer, deadline: Some(deadline) }
    }

    /// Searches all tiers for an entry that is younger than the one in memory, or valid instead of
    /// unverified or soft-purged.
    async fn run(&mut self, prior: Option<&Entry>) -> Search {
        let state_of = |prior| self.engine.log.state_of(self.primary(), prior);
        let state = prior.map_or(PurgeState::Valid, state_of);
        let found = self.search_tiers(prior, state).await;
        if state == PurgeState::Unverified {
            let is_found = matches!(found, Search::Found(_));
            self.engine.observer.observe(Event::UnverifiedChecked(self.primary(), is_found));
        }
        // No caller waits for a refresh.
        let is_strict = self.demand.purpose == Purpose::Answer
            && self.leading.options.tier_errors == TierErrors::Strict;
        let failure = self.failure.take().filter(|_| is_strict);
        match (found, failure) {
            (Search::Nothing | Search::Stale(_), Some(failure)) => Search::Failed(failure),
            (found, _) => found,
        }
    }

    async fn search_tiers(&mut self, prior: Option<&Entry>, state: PurgeState) -> Search {
        let mut best = None;
        let mut known = prior.map(|prior| Lifespan::of_prior(prior, state));
        for tier_index in 0..self.engine.lower.all().len() {
            if self.deadline.is_over() {
                break;
            }
            if !self.lower(tier_index).takes(self.primary()) {
                continue;
            }
            let Some(candidate) = self.lookup_in(tier_index).await else { continue };
            let lifespan = Lifespan::of(&candidate.meta);
            if known.is_some_and(|known| !lifespan.is_newer_than(known)) {
                continue;
            }
            if !self.is_served(&candidate) {
                known = Some(lifespan);
                best = Some(candidate);
            } else if let Some(found) = self.begin(candidate).await {
                return Search::Found(Box::new(found));
            }
        }
        let stale = match best {
            Some(candidate) => self.collect(candidate).await,
            None => None,
        };
        stale.map_or(Search::Nothing, Search::Stale)
    }

    fn lower(&self, tier_index: usize) -> &'a LowerTier {
        &self.engine.lower.all()[tier_index]
    }

    fn primary(&self) -> KeyRef<'a> {
        self.leading.primary()
    }

    /// Returns the entry that the request selects in one tier, unless it was purged.
    pub(super) async fn lookup_in(&mut self, tier_index: usize) -> Option<Candidate> {
        let lower = self.lower(tier_index);
        let primary = self.primary();
        if !lower.is_clear(primary, &mut self.deadline).await {
            self.skip_lease(lower, &TierError::Bypassed);
            let owed = TierError::failed("a purged entry could not be removed yet");
            return self.note(lower, Err(owed));
        }
        let record = self.open(tier_index, primary).await?;
        self.note_seen(lower, None, Some(record.stamp));
        let Some(vary) = record.meta.vary().cloned() else {
            return self.candidate(record, TierPosition { tier_index, generation: None });
        };
        let generation = generation_of(&record)?;
        self.family.get_or_insert_with(|| Family { vary: vary.clone(), generation });
        let variant = self.open_variant(tier_index, &vary, generation).await?;
        let record = variant.in_family(record.family_token);
        self.candidate(record, TierPosition { tier_index, generation: Some(generation) })
    }

    /// Uses a record that another instance has written or read at the place of the last lookup in
    /// the shared tier.
    pub(super) async fn use_record(
        &mut self,
        tier_index: usize,
        record: Stored,
    ) -> Option<Candidate> {
        let is_of = |family: &Family| record.meta.vary() == Some(&family.vary);
        let generation = match (&self.seen.variant, &self.family) {
            (Some(_), Some(family)) if is_of(family) => Some(family.generation),
            (None, _) if record.meta.vary().is_none() => None,
            // The record only leads to the entry, or to another one.
            _ => return self.lookup_in(tier_index).await,
        };
        self.seen.stamp = Some(record.stamp);
        self.candidate(record, TierPosition { tier_index, generation })
    }

    fn note_seen(&mut self, lower: &LowerTier, variant: Option<Key>, stamp: Option<u64>) {
        if lower.is_shared() {
            self.seen = SeenInShared { variant, stamp };
        }
    }

    async fn open_variant(
        &mut self,
        tier_index: usize,
        vary: &Vary,
        generation: u64,
    ) -> Option<Stored> {
        let fields = selected(vary, &self.leading.load);
        let key: Key = key::variant(self.primary(), generation, fields).borrowed().to_key();
        let lower = self.lower(tier_index);
        self.note_seen(lower, Some(key.clone()), None);
        let record = self.open(tier_index, key.borrowed()).await?;
        self.note_seen(lower, Some(key), Some(record.stamp));
        (record.meta.vary() == Some(vary)).then_some(record)
    }

    async fn open(&mut self, tier_index: usize, key: KeyRef<'_>) -> Option<Stored> {
        let lower = self.lower(tier_index);
        if let Some(record) = self.open_or_lease(lower, key).await {
            return record;
        }
        let leading = self.leading;
        let open = || match leading.load.batch() {
            Some(part) => part.open(lower.tier(), tier_index, key),
            None => lower.tier().open(key),
        };
        let opened = self.look(lower, open).await;
        if let Err(failure) = &opened {
            self.skip_lease(lower, failure);
        }
        self.note(lower, opened)?
    }

    /// Runs a lookup, and reports it to the load.
    async fn look<T: Looked, F>(
        &mut self,
        lower: &LowerTier,
        begin: impl FnOnce() -> F,
    ) -> Result<T, TierError>
    where
        F: Future<Output = Result<T, TierError>>,
    {
        let begun = self.engine.clock.exact();
        let looked = lower.look(&mut self.deadline, begin).await;
        let result = looked.as_ref().map(Looked::has_found);
        self.leading.report_tier(lower, T::OP, begun, result);
        looked
    }

    /// Reads a body, and reports it to the load.
    async fn read<T, F>(
        &mut self,
        lower: &LowerTier,
        begin: impl FnOnce() -> F,
    ) -> Result<T, TierError>
    where
        F: Future<Output = Result<T, TierError>>,
    {
        let begun = self.engine.clock.exact();
        let read = lower.attempt(READ, &mut self.deadline, begin).await;
        self.leading.report_tier(lower, READ, begun, read.as_ref().map(|_| true));
        read
    }

    /// Requests the record and the lease in one exchange. `Some(None)`: there is no record, and the
    /// answer about the lease is noted. `None`: this is not the way to ask, or the request failed;
    /// then the record can still be read.
    async fn open_or_lease(
        &mut self,
        lower: &LowerTier,
        key: KeyRef<'_>,
    ) -> Option<Option<Stored>> {
        let is_way =
            lower.is_shared() && self.lease_answer.is_none() && lower.is_asked_for_leases();
        let leases = self.leases.filter(|_| is_way)?;
        let flight = self.leading.flight();
        let (primary, flight_key) = (flight.primary().borrowed(), flight.key().borrowed());
        let mark = self.leading.load_mark();
        let mark = mark.as_deref();
        let claim = Claim { primary, flight_key, entry: key, seen: None, is_look: true, mark };
        let position = self.engine.log.position();
        let asking = || leases.acquire(claim);
        match self.look(lower, asking).await {
            Ok(Lease::Filled(stored)) => Some(Some(*stored)),
            Err(error @ (TierError::TimedOut | TierError::Bypassed)) => {
                self.skip_lease(lower, &error);
                Some(self.note(lower, Err(error)))
            }
            Err(error) => {
                self.skip_lease(lower, &error);
                None
            }
            lease => {
                self.lease_answer = Some(LeaseAnswer { lease, position });
                Some(None)
            }
        }
    }

    /// Notes a failed lookup in the shared tier as the answer about the lease: a request for the
    /// lease would wait once more.
    fn skip_lease(&mut self, lower: &LowerTier, failure: &TierError) {
        let counts = lower.is_shared() && !matches!(failure, TierError::TooLarge);
        if counts && self.lease_answer.is_none() {
            let lease = Err(failure.clone());
            self.lease_answer = Some(LeaseAnswer { lease, position: self.position });
        }
    }

    /// Returns the result of an operation, and notes a failure.
    fn note<T>(&mut self, lower: &LowerTier, result: Result<T, TierError>) -> Option<T> {
        let failed = |error| LoadError::Tier(lower.name(), error);
        match result {
            Ok(result) => return Some(result),
            // The tier has the entry; it is too large for this caller. That is no failure.
            Err(TierError::TooLarge) => {}
            Err(error) => {
                self.failure.get_or_insert_with(|| failed(error));
            }
        }
        None
    }

    /// Checks a record for purges. A shared tier knows all purges, and a tier that applies purges
    /// knows those that reached it. An entry of another tier counts as older than every purge. Only
    /// an entry that no purge has affected counts as loaded now.
    fn candidate(&self, record: Stored, position: TierPosition) -> Option<Candidate> {
        let log = &self.engine.log;
        let place = RecordPlace { primary: self.primary(), tier_index: position.tier_index };
        let CheckedRecord { mut meta, state, is_vetted } =
            self.engine.check_record(place, &record, self.carried_out);
        let Stored { head, body, parts, .. } = record;
        match state {
            // An entry that is going to be unverified must not count as new in memory.
            PurgeState::Valid if !is_vetted && log.doubts_time(meta.load_started_at) => {}
            PurgeState::Valid => meta.position = self.position,
            PurgeState::SoftPurged if is_vetted => meta.position = self.position,
            PurgeState::SoftPurged => {}
            PurgeState::Unverified | PurgeState::Removed => return None,
        }
        let softened = state == PurgeState::SoftPurged;
        let head = self.leading.load.decode_head(head)?;
        Some(Candidate { meta, softened, head, body, parts, position })
    }

    /// Returns `true` if an entry satisfies the demand.
    pub(super) fn is_served(&self, candidate: &Candidate) -> bool {
        let Candidate { meta, softened, .. } = candidate;
        let unpurged = if *softened { PurgeState::SoftPurged } else { PurgeState::Valid };
        let state = self.engine.log.recorded_state(self.primary(), meta).max(unpurged);
        let now = self.engine.clock.now();
        match judge(meta, &self.demand.demand, state, now, &mut NoDice) {
            Verdict::Serve => true,
            // The next request finds it in memory and refreshes it.
            Verdict::ServeThenRefresh(_) => self.demand.purpose == Purpose::Answer,
            Verdict::Load { .. } => false,
        }
    }

    /// Reads the beginning of an entry's body: until then the entry can be had from elsewhere.
    pub(super) async fn begin(&mut self, candidate: Candidate) -> Option<FoundEntry> {
        let parts = self.parts_in_tier(&candidate);
        let Candidate { meta, softened, head, body, position, .. } = candidate;
        let found =
            |body| Some(FoundEntry { meta, softened, head, body, position, by_instance: false });
        if let Some(parts) = parts.clone().filter(|_| self.wants_part()) {
            return found(FoundBody::InTier(parts));
        }
        let lower = self.lower(position.tier_index);
        let reading = || async {
            match gather_begun(body).await {
                Gathered::Broken(_, broken) => Err(TierError::failed(broken)),
                gathered => Ok(gathered),
            }
        };
        let begun = self.read(lower, reading).await;
        let body = match self.note(lower, begun)? {
            Gathered::Flowing(first, rest) => Gathered::Flowing(first, bounded(rest)),
            gathered => gathered,
        };
        found(parts.map_or(FoundBody::Gathered(body), FoundBody::InTier))
    }

    /// Returns the body in its tier if neither memory nor a tier above is going to store it.
    fn parts_in_tier(&self, candidate: &Candidate) -> Option<Arc<dyn Parts>> {
        let kept_max = self.engine.memory.object_max(candidate.meta.presence);
        let stays = |parts: &Arc<dyn Parts>| {
            candidate.position.tier_index == 0 && (self.wants_part() || parts.length() > kept_max)
        };
        candidate.parts.clone().filter(stays)
    }

    /// Returns `true` if the caller wants a part of the body. A refresh is for all callers.
    fn wants_part(&self) -> bool {
        self.demand.purpose == Purpose::Answer && self.leading.options.extent == Extent::Part
    }

    /// Reads a stale entry completely, for a conditional request and as a fallback.
    pub(super) async fn collect(&mut self, candidate: Candidate) -> Option<StaleEntry> {
        let Candidate { meta, softened, head, body, position, .. } = candidate;
        let bytes_max = self.engine.memory.object_max(meta.presence).max(VALIDATED_MAX);
        let lower = self.lower(position.tier_index);
        let collecting = || collect_up_to(body, bytes_max);
        let collected = self.read(lower, collecting).await;
        let bytes = self.note(lower, collected)?;
        let entry = Entry::new(meta, head, Body::whole(bytes));
        let entry = Arc::new(if softened { entry.softened() } else { entry });
        Some(StaleEntry { entry, position })
    }
}

/// Key and tier of a record.
#[derive(Clone, Copy)]
pub(super) struct RecordPlace<'a> {
    pub(super) primary: KeyRef<'a>,
    pub(super) tier_index: usize,
}

/// Metadata of a record, with the effect of purges on it.
pub(super) struct CheckedRecord {
    pub(super) meta: Meta,
    pub(super) state: PurgeState,
    /// `true` if the tier itself has compared the record with all purges.
    pub(super) is_vetted: bool,
}

impl Engine {
    /// Returns the effect of purges on a record of a lower tier. `carried_out` is the position up to
    /// which the tiers of this instance had applied purges before the record was read.
    pub(super) fn check_record(
        &self,
        place: RecordPlace<'_>,
        record: &Stored,
        carried_out: Position,
    ) -> CheckedRecord {
        let mut meta = record.meta.clone();
        let carries_out = self.lower.carries_out_purges(place.tier_index);
        meta.position = if carries_out { carried_out } else { Position::default() };
        let joined = self.joined.as_ref();
        let is_behind = joined.is_some_and(|joined| joined.unpublished.any_of_many());
        let known = record.vetted.filter(|_| !is_behind);
        let state = known.unwrap_or_else(|| self.state_in_tier(place.primary, &meta, record));
        let softened = if record.softened { PurgeState::SoftPurged } else { PurgeState::Valid };
        let state = state.max(softened);
        if state == PurgeState::SoftPurged {
            // Tiers above do not know of the purge, if this instance started after it.
            meta = stale_from(meta, self.clock.now());
        }
        CheckedRecord { meta, state, is_vetted: known.is_some() }
    }

    /// Returns the effect of purges on an entry of a tier that does not know them.
    fn state_in_tier(&self, primary: KeyRef<'_>, meta: &Meta, record: &Stored) -> PurgeState {
        let recorded = self.log.recorded_state(primary, meta);
        let is_unverified = (record.suspect && self.joined.is_some())
            || self.log.is_unverified_at(meta.load_started_at, self.clock.now());
        if is_unverified { recorded.max(PurgeState::Unverified) } else { recorded }
    }
}

/// Returns the generation in the head of a family's record: 8 bytes, little-endian.
pub(super) fn generation_of(record: &Stored) -> Option<u64> {
    Some(u64::from_le_bytes(record.head.as_ref().try_into().ok()?))
}

async fn collect_up_to(mut body: PieceStream, bytes_max: u64) -> Result<Bytes, TierError> {
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(TierError::failed)?;
        if (all.len() + piece.len()) as u64 > bytes_max {
            return Err(TierError::TooLarge);
        }
        all.extend_from_slice(&piece);
    }
    Ok(exact(all))
}

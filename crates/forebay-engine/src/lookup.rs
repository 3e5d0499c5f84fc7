//! Hit path: lookup in memory, and the verdict on the entry.
//!
//! ```text
//! lookup ──► entry ──► verdict ─┬─ serve ──────────────► LookupResult::Hit
//!                               └─ refresh, or load ───► LookupResult::Miss, see `miss`
//! ```
//!
//! A lookup is synchronous and allocates nothing. This folder uses `engine`, `memory`, `flight`
//! (sources, pass markers), `entry` and `runtime`; it never sees a lower tier, a load or the bus.

mod inspect;
mod request;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::judge::Dice;
use forebay_core::key::Name;
use forebay_core::{
    Demand, Key, KeyRef, OriginFailure, Position, PurgeState, Stale, Timestamp, Verdict, Why,
    judge, key, may_fall_back,
};

use crate::engine::Engine;
use crate::entry::select::{Credentials, flight_key, selection};
use crate::entry::{Entry, suits};
use crate::flight::FlightResult;
use crate::flight::pass_markers::Marked;
use crate::flight::source::Source;
use crate::memory::Found;
use crate::runtime::clock::ThreadDice;
use crate::runtime::event::Event;
pub use inspect::{BackOff, PassMarker, StoredVariant};
pub use request::{Coalesce, Lookup};

/// Result of a lookup in memory.
pub enum LookupResult {
    /// Memory has an entry that satisfies the caller's demand.
    Hit(Outcome),
    /// A load is needed: before the answer, or in the background after it. Continue with
    /// [`Miss::load`].
    Miss(Miss),
}

/// Answer of the engine to a lookup: the entry, and how it was obtained.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Entry that answers the request; its body may still be streaming.
    pub entry: Arc<Entry>,
    /// Place that the entry came from.
    pub source: Source,
    /// Reason why the answer is not a fresh hit; `None` for a fresh hit.
    pub why: Option<Why>,
}

/// Request that memory cannot answer without a load, before the answer or in the background after
/// it. [`load`](Self::load) answers it.
#[derive(Debug)]
pub struct Miss {
    pub(crate) verdict: Verdict,
    pub(crate) prior: Option<Arc<Entry>>,
    /// Key of the flight to join, if it differs from the primary key: of a variant, or of a
    /// question.
    pub(crate) flight_key: Option<Key>,
}

/// Moment at which a request arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Number of the latest load that had started.
    pub(crate) newest: u64,
    /// Newest position of the purge log.
    pub(crate) position: Position,
    pub(crate) at: Timestamp,
}

impl Miss {
    /// Returns the reason why memory does not answer the request without a load.
    #[must_use]
    pub const fn why(&self) -> Why {
        match self.verdict {
            // A verdict to serve is no miss; its reason is never read.
            Verdict::Serve => Why::UriMiss,
            Verdict::ServeThenRefresh(why) | Verdict::Load { why, .. } => why,
        }
    }

    /// Returns `true` if the stored entry answers the request at once, and the load only refreshes
    /// it for later requests.
    #[must_use]
    pub const fn is_served_first(&self) -> bool {
        matches!(self.verdict, Verdict::ServeThenRefresh(_))
    }

    /// Returns `true` if an entry is stored that the origin may confirm as unchanged, or that may
    /// be served if the load fails.
    #[must_use]
    pub const fn has_prior(&self) -> bool {
        self.prior.is_some()
    }

    /// Returns the entry that memory has for the request, unless a hard purge removed it. It
    /// answers the request only if [`is_served_first`](Self::is_served_first) is true.
    #[must_use]
    pub const fn prior(&self) -> Option<&Arc<Entry>> {
        self.prior.as_ref()
    }

    /// Returns `true` if an entry is stored whose origin forbids serving it stale.
    #[must_use]
    pub fn must_not_be_stale(&self) -> bool {
        let forbids = |prior: &Arc<Entry>| prior.meta.lifetime().stale == Stale::Forbidden;
        self.prior.as_ref().is_some_and(forbids)
    }

    /// Marks the stored entry as unusable for this request, because it does not contain the
    /// requested byte range.
    #[must_use]
    pub fn for_part(mut self) -> Self {
        self.verdict = Verdict::Load { why: Why::Partial, may_fall_back: false };
        self
    }

    /// Limits coalescing to requests with an equal `question`, such as one byte range of the entry:
    /// the question becomes a part of the key of the load.
    #[must_use]
    pub fn about(mut self, key: KeyRef<'_>, question: &[u8]) -> Self {
        let key = key::question(self.key_of_flight(key), question).borrowed().to_key();
        self.flight_key = Some(key);
        self
    }

    /// Returns the key of the flight to join.
    pub(crate) fn key_of_flight<'a>(&'a self, primary: KeyRef<'a>) -> KeyRef<'a> {
        self.flight_key.as_ref().map_or(primary, Key::borrowed)
    }

    /// Returns `true` if this entry was marked as [unusable](Self::for_part).
    pub(crate) fn is_unusable(&self, entry: &Arc<Entry>) -> bool {
        self.why() == Why::Partial && self.is_about(entry)
    }

    /// Returns `true` if this is the stored entry of the miss.
    pub(crate) fn is_about(&self, entry: &Arc<Entry>) -> bool {
        self.prior.as_ref().is_some_and(|prior| Arc::ptr_eq(prior, entry))
    }

    /// Returns the stored entry if it may be served after this failure. Its period of staleness may
    /// have ended during the load.
    pub(crate) fn fallback(&self, failure: OriginFailure, now: Timestamp) -> Option<Arc<Entry>> {
        let prior = self.prior.clone();
        match self.verdict {
            Verdict::Load { may_fall_back: allowed, .. } => {
                prior.filter(|entry| allowed && may_fall_back(&entry.meta, failure, now))
            }
            Verdict::Serve | Verdict::ServeThenRefresh(_) => prior,
        }
    }
}

impl Engine {
    /// Looks an entry up in memory, and decides whether it satisfies the caller's demand. Answer a
    /// [`Miss`] with [`Miss::load`].
    #[inline]
    #[must_use]
    pub fn lookup(&self, lookup: &Lookup<'_>) -> LookupResult {
        let entry = match self.memory.find(lookup.key, lookup.select) {
            Found::Entry(entry) => entry,
            missing => return LookupResult::missing(lookup, missing),
        };
        let now = self.clock.now();
        if lookup.demand.is_plain() && entry.is_plain(now, self.log.trusted()) {
            return LookupResult::Hit(Outcome { entry, source: Source::Hit, why: None });
        }
        self.judge_entry(lookup, entry, now, &mut ThreadDice)
    }

    /// Returns the entry of a plain hit: fresh, not in the last tenth of its lifetime, not affected
    /// by purges, and for a demand that [is plain](Demand::is_plain). Returns `None` for every
    /// other request, which [`lookup`](Self::lookup) decides. It never starts an early refresh, and
    /// makes no random choice.
    #[must_use]
    pub fn hit(&self, lookup: &Lookup<'_>) -> Option<Outcome> {
        let Found::Entry(entry) = self.memory.find(lookup.key, lookup.select) else { return None };
        let is_plain =
            lookup.demand.is_plain() && entry.is_plain(self.clock.now(), self.log.trusted());
        is_plain.then_some(Outcome { entry, source: Source::Hit, why: None })
    }

    /// Reads a fresh entry of memory that satisfies every plain demand, as nearly every hit finds.
    /// `read` runs while the store is locked, so that not even the entry's reference count changes.
    /// It must be quick, and must not call a cache. `None` if there is no such entry, if it is
    /// negative, if the key has variants, or if `demand` is not plain; then call
    /// [`lookup`](Self::lookup).
    #[inline]
    #[must_use]
    pub fn get_fresh<T>(
        &self,
        name: Name<'_>,
        demand: &Demand,
        read: impl Fn(&Entry) -> T,
    ) -> Option<T> {
        if !demand.is_plain() {
            return None;
        }
        let (now, seen) = (self.clock.now(), Cell::new(None));
        self.memory.see(name, |entry| {
            if entry.is_plain(now, self.log.trusted()) {
                seen.set(Some(read(entry)));
            }
        });
        seen.into_inner()
    }

    /// Returns a hit if the verdict on the found entry is to serve it, and a miss otherwise.
    #[inline(never)]
    fn judge_entry(
        &self,
        lookup: &Lookup<'_>,
        entry: Arc<Entry>,
        now: Timestamp,
        dice: &mut impl Dice,
    ) -> LookupResult {
        let state = self.log.state_of(lookup.key, &entry);
        if matches!(state, PurgeState::SoftPurged | PurgeState::Removed) {
            self.log.self_check.add_found(lookup.key, &entry, now);
        }
        let verdict = judge(&entry.meta, lookup.demand, state, now, dice);
        if verdict != Verdict::Serve {
            return LookupResult::miss_with_entry(lookup, entry, state, verdict);
        }
        // Only callers that accept stale entries get one without a refresh.
        let may_be_stale = lookup.demand.max_stale.is_some();
        let why = if may_be_stale && !entry.meta.is_fresh(now) {
            Some(Why::Stale)
        } else if entry.meta.position < self.log.trusted() {
            self.log.doubts(entry.meta.position).then_some(Why::Suspect)
        } else {
            None
        };
        LookupResult::Hit(Outcome { entry, source: Source::Hit, why })
    }

    /// Turns the outcome of a lookup into a miss, for a request whose byte range the found entry
    /// does not contain.
    #[must_use]
    pub fn miss_for_part(&self, lookup: &Lookup<'_>, outcome: Outcome) -> Miss {
        let flight_key = lookup.selection_of(&outcome.entry);
        let verdict = Verdict::Load { why: Why::Partial, may_fall_back: false };
        Miss { verdict, prior: Some(outcome.entry), flight_key }
    }

    /// Returns `true` while requests for this key, with or without credentials as given, are not
    /// coalesced, because an earlier answer could not be shared (pass marker).
    #[must_use]
    pub fn is_known_private(&self, key: KeyRef<'_>, credentials: Credentials) -> bool {
        let markers = &self.passes[credentials as usize];
        markers.get(key, self.clock.now()) == Some(Marked::Private)
    }

    /// Records an unshared answer that was fetched without a flight; `cost` is the duration of the
    /// fetch. Sets the pass marker of the key and `credentials` for `remember`, and returns `true`,
    /// unless the marker is younger than a tenth of that. Call it only while the key
    /// [is known as private](Self::is_known_private) and memory has no entry for the request.
    pub fn note_passed(
        &self,
        key: KeyRef<'_>,
        credentials: Credentials,
        cost: Duration,
        remember: Duration,
    ) -> bool {
        let (markers, now) = (&self.passes[credentials as usize], self.clock.now());
        let is_renewed = markers.mark(key, Marked::Private, now, remember);
        self.failures[credentials as usize].forget(key);
        self.observer.observe(Event::Loaded { key, result: "pass", cost });
        is_renewed
    }

    /// Returns the entry that memory holds for a request, usable or not.
    pub(crate) fn current(&self, lookup: &Lookup<'_>) -> Option<Arc<Entry>> {
        match self.memory.find(lookup.key, lookup.select) {
            Found::Entry(entry) => Some(entry),
            Found::NoVariant(_) | Found::Nothing => None,
        }
    }

    /// Returns the moment at which a request arrives.
    pub(crate) fn arrival(&self) -> Arrival {
        let (newest, position) = (self.flights.newest(), self.log.position());
        Arrival { newest, position, at: self.clock.now() }
    }

    /// Returns `true` if an entry that arrived while the request waited answers it. An entry whose
    /// load started after the request arrived is as good as a load of its own, whatever age or
    /// validation is demanded. An entry whose load started before a purge is not for requests that
    /// arrived after the purge.
    pub(crate) fn answers(&self, lookup: &Lookup<'_>, entry: &Entry, arrival: Arrival) -> bool {
        let relaxed = Demand::default();
        let demand = if entry.flight() > arrival.newest { &relaxed } else { lookup.demand };
        let state = if entry.meta.position >= arrival.position {
            entry.unpurged()
        } else {
            self.log.state_at(lookup.key, entry, arrival.at)
        };
        suits(&entry.meta, state, demand, self.clock.now())
    }
}

impl Lookup<'_> {
    /// Returns the key of the variant that this request selects among those of `entry`.
    pub(crate) fn selection_of(&self, entry: &Entry) -> Option<Key> {
        selection(self.key, self.select, entry)
    }

    /// Returns the result of a flight that ends with this stored entry.
    pub(crate) fn shared(&self, entry: &Arc<Entry>) -> FlightResult {
        FlightResult::Shared(entry.clone(), self.selection_of(entry))
    }
}

// Misses are kept out of the function of hits, which stays small.
impl LookupResult {
    #[inline(never)]
    fn missing(lookup: &Lookup<'_>, found: Found) -> Self {
        match found {
            Found::NoVariant(vary) => {
                let key = flight_key(lookup.key, lookup.select, &vary);
                Self::without_entry(Why::VaryMiss, Some(key))
            }
            Found::Nothing | Found::Entry(_) => Self::without_entry(Why::UriMiss, None),
        }
    }

    /// Returns a miss for a request whose found entry needs a load or a refresh.
    #[inline(never)]
    fn miss_with_entry(
        lookup: &Lookup<'_>,
        entry: Arc<Entry>,
        state: PurgeState,
        verdict: Verdict,
    ) -> Self {
        let flight_key = lookup.selection_of(&entry);
        // An entry that a purge removed is not confirmed by the origin.
        let prior = (state != PurgeState::Removed).then_some(entry);
        Self::Miss(Miss { verdict, prior, flight_key })
    }

    const fn without_entry(why: Why, flight_key: Option<Key>) -> Self {
        let verdict = Verdict::Load { why, may_fall_back: false };
        Self::Miss(Miss { verdict, prior: None, flight_key })
    }
}

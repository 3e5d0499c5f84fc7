//! One miss: from the lower tiers and the lease to the load, and from its answer to the stored entry.
//!
//! ```text
//! Leading ─ seek ─┬─► found in a tier ─────────────────────────────────┐
//!    │            └─► Missed ─ lease ─┬─► filled by an instance ───────┤
//!    └─ no lower tiers ───────────────┴─► Permitted ─ load ─► LoadEnded ─ fill ─► Fill
//! ```
//!
//! A body that has arrived is stored, then announced; a body that still arrives is announced, and
//! stored when it has ended.
//!
//! Each phase is a struct with the fields of that phase, and each step consumes the phase before it.
//! The task that runs them belongs to no caller: callers may go away, and a panic in the load frees
//! the flight. This folder uses `flight`, `tiers`, `engine`, `entry` and `runtime`; it never sees a
//! request, only the [`FillRules`] derived from it.

pub(crate) mod cluster_lease;
pub(crate) mod inspect;
pub(crate) mod lower_lookup;
mod pump;
mod store;
mod write_through;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{KeyRef, Lifetime, Meta, Presence, Timestamp, Why, pace};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::entry::body::gather::{Gathered, gather_ready};
use crate::entry::body::{Body, Content};
use crate::entry::in_flight::Charged;
use crate::entry::select::{Credentials, selection};
use crate::entry::{Entry, Head};
use crate::flight::load::{Audience, Load, LoadError, LoadOptions, LoadSource, Loaded, Passed};
use crate::flight::pass_markers::Marked;
use crate::flight::recent_failures::RecentFailures;
use crate::flight::source::Source;
use crate::flight::waiting::Waiting;
use crate::flight::{Flight, FlightResult, LeaderGuard};
use crate::runtime::clock::ThreadDice;
use crate::runtime::event::{Event, LeaseEvent, TierCall};
use crate::tiers::error::TierError;
use crate::tiers::lease::{LoadMark, Release};
use crate::tiers::lower::{Deadline, LowerTier};
pub use inspect::{TierEntry, TierReport};

use cluster_lease::{LeaseAnswer, LeaseUse, Leased, WritePermission};
use lower_lookup::{
    Family, FoundBody, FoundEntry, Search, SearchState, SeenInShared, StaleEntry, TierDemand,
    TierPosition,
};
use pump::StreamingBody;
use store::StoreResult;

/// Time for which requests of a key are not coalesced after an answer that is storable but never
/// fresh: each request has to be validated anyway, so none should wait for another's validation.
const UNFRESH_REMEMBER: Duration = Duration::from_secs(10);

/// Result of a flight for the caller that leads it.
pub(crate) enum LeaderResult<L> {
    Shared {
        entry: Arc<Entry>,
        source: Source,
    },
    /// Answer for this caller alone.
    Private(Arc<Entry>),
    /// Error response of the origin.
    OriginError(Arc<Entry>),
    Failed(LoadError),
    /// The flight ended without a load, because of a message of another instance. The caller starts
    /// again with its load, or loads alone for this reason.
    Retry(L, Option<Why>),
}

/// Rules of one load, derived from the request that started it.
#[derive(Clone, Debug)]
pub(crate) struct FillRules {
    /// Allows storing the answer.
    pub(crate) store: bool,
    pub(crate) credentials: Credentials,
    /// Requirements for entries of lower tiers. `None`: they are not searched.
    pub(crate) tiers: Option<TierDemand>,
    pub(crate) lease_use: LeaseUse,
    /// Allows the entry of a load that started later as the answer. Denied to a caller that wants
    /// a load of its own, and to one that wants a range that is not stored.
    pub(crate) yields: bool,
}

/// Leader of a flight with its load, before and in every phase.
pub(crate) struct Leading<L> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) leader: LeaderGuard,
    pub(crate) rules: FillRules,
    pub(crate) load: L,
    pub(crate) options: LoadOptions,
    /// Sends the result to the caller that leads, if one waits.
    pub(crate) reply: Option<oneshot::Sender<LeaderResult<L>>>,
}

/// Phase after the search in lower tiers, which found no usable entry.
struct Missed<L> {
    leading: Leading<L>,
    prior: Option<Arc<Entry>>,
    stale: Option<StaleEntry>,
    family: Option<Family>,
    seen: SeenInShared,
    lease_answer: Option<LeaseAnswer>,
    /// Time left for operations of lower tiers.
    deadline: Option<Deadline>,
}

/// Phase with the permission to load.
struct Permitted<L> {
    leading: Leading<L>,
    permission: WritePermission,
    prior: Option<Arc<Entry>>,
    stale: Option<StaleEntry>,
    family: Option<Family>,
}

/// Phase after the load.
struct LoadEnded<L> {
    fill: Fill<L>,
    prior: Option<Arc<Entry>>,
    stale: Option<StaleEntry>,
    answer: Result<Loaded, LoadError>,
    started: Timestamp,
    cost: Duration,
}

/// Phase with an answer, of the origin or of a lower tier, that is announced and stored.
struct Fill<L> {
    leading: Leading<L>,
    permission: WritePermission,
    /// Family of variants that lower tiers know.
    family: Option<Family>,
    /// Number of the load in the order of starts.
    number: u64,
    /// Memory that the load was admitted with, until its body begins.
    admitted: Option<Charged>,
    /// `None` if the answer is the origin's.
    found: Option<FoundIn>,
}

/// Lower tier that an answer was found in.
struct FoundIn {
    position: TierPosition,
    /// `true` if another instance filled the tier while this one waited for it.
    by_instance: bool,
    /// `true` if a purge has made the entry stale.
    softened: bool,
}

/// Result of the search in lower tiers.
enum Sought<L> {
    Found(Fill<L>, FoundEntry),
    Missed(Missed<L>),
    /// A tier failed, and the caller demands that such a failure fails the request.
    Failed(Leading<L>, LoadError),
}

impl<L: Load> Leading<L> {
    /// Runs all phases. `prior` is the entry of memory that does not answer the request.
    pub(crate) async fn run(self, prior: Option<Arc<Entry>>) {
        let permitted = if self.engine.lower.is_empty() {
            let (permission, stale, family) = (WritePermission::All, None, None);
            Some(Permitted { leading: self, permission, prior, stale, family })
        } else {
            // Boxed, because otherwise each load would reserve space for it, without tiers too.
            Box::pin(self.permitted_by_tiers(prior)).await
        };
        if let Some(permitted) = permitted
            && let Some(loaded) = permitted.load().await
        {
            loaded.fill().await;
        }
    }

    /// Searches the lower tiers, and acquires the lease. `None` if no load is needed or allowed:
    /// the flight has ended.
    async fn permitted_by_tiers(self, prior: Option<Arc<Entry>>) -> Option<Permitted<L>> {
        let missed = match self.seek(prior).await {
            Sought::Missed(missed) => missed,
            Sought::Found(fill, found) => {
                fill.fill_found(found).await;
                return None;
            }
            Sought::Failed(mut leading, error) => {
                leading.fail(error, Duration::ZERO);
                return None;
            }
        };
        match missed.lease().await {
            Leased::Load(permitted) => return Some(permitted),
            Leased::Found(fill, found) => fill.fill_found(found).await,
            Leased::Retry(leading, why) => leading.retry(why),
            Leased::Needless => {}
        }
        None
    }

    /// Stores an entry that was put and not loaded. Returns `true` if a tier stores it.
    pub(crate) async fn put(self, mut meta: Meta, head: Head, bytes: Bytes) -> bool {
        let mut fill = Fill::new(self, WritePermission::Put, None);
        fill.complete(&mut meta, fill.leading.engine.clock.now(), Duration::ZERO, None);
        fill.leading.failures().forget(fill.leading.flight().key().borrowed());
        fill.update_marker(&meta);
        let entry = Arc::new(fill.entry(meta, head, Body::whole(bytes)));
        let stored = fill.store(&entry);
        let is_stored = fill.is_stored(stored);
        fill.announce(&entry, Source::Led { stored: is_stored, unchanged: false });
        fill.write_whole(&entry, stored).await;
        is_stored
    }

    /// Searches the lower tiers.
    async fn seek(self, prior: Option<Arc<Entry>>) -> Sought<L> {
        let (search, found) = match &self.rules.tiers {
            Some(demand) if self.flight().may_search_tiers => {
                lower_lookup::search(&self, demand, prior.as_deref()).await
            }
            _ => (SearchState::default(), Search::Nothing),
        };
        let SearchState { family, seen, lease_answer, deadline } = search;
        let stale = match found {
            Search::Found(found) => {
                // A lease that was granted with the search is given back: nothing is loaded.
                drop(lease_answer);
                return Sought::Found(Fill::new(self, WritePermission::All, family), *found);
            }
            Search::Failed(error) => return Sought::Failed(self, error),
            Search::Stale(stale) => Some(stale),
            Search::Nothing => None,
        };
        Sought::Missed(Missed { leading: self, prior, stale, family, seen, lease_answer, deadline })
    }

    /// Ends the flight with an error. `cost` is the duration of the load.
    fn fail(&mut self, error: LoadError, cost: Duration) {
        // Without permission to load, there was no load.
        if !matches!(error, LoadError::NotCached) {
            self.observe_load(error.code(), cost);
        }
        self.note_failure(&error);
        self.leader.announce(FlightResult::Failed(error.clone()));
        self.reply(LeaderResult::Failed(error));
    }

    /// Gives the load back to the caller that leads. The flight ends without a result.
    fn retry(self, why: Option<Why>) {
        let Self { leader, reply, load, .. } = self;
        drop(leader);
        if let Some(reply) = reply {
            // A caller that has gone away needs no result.
            let _ = reply.send(LeaderResult::Retry(load, why));
        }
    }

    /// Returns true if no caller waits for the load.
    const fn is_refresh(&self) -> bool {
        self.reply.is_none()
    }

    /// Returns the mark of the load for instances that wait for its lease.
    fn load_mark(&self) -> Option<LoadMark> {
        self.load.mark(self.is_refresh())
    }

    fn reply(&mut self, result: LeaderResult<L>) {
        if let Some(reply) = self.reply.take() {
            // A caller that has gone away needs no result.
            let _ = reply.send(result);
        }
    }

    fn flight(&self) -> &Arc<Flight> {
        self.leader.flight()
    }

    fn primary(&self) -> KeyRef<'_> {
        self.flight().primary().borrowed()
    }

    fn observe_load(&self, result: &'static str, cost: Duration) {
        let key = self.flight().key().borrowed();
        self.engine.observer.observe(Event::Loaded { key, result, cost });
    }

    fn observe_lease(&self, event: LeaseEvent) {
        let key = self.flight().key().borrowed();
        self.engine.observer.observe(Event::Lease { key, event });
    }

    /// Tells the load of an operation on a lower tier that began at `begun`. `found` is true if it
    /// found an entry.
    fn report_tier(
        &self,
        lower: &LowerTier,
        op: &'static str,
        begun: Duration,
        found: Result<bool, &TierError>,
    ) {
        let result = match found {
            Ok(true) => "hit",
            Ok(false) => "miss",
            Err(error) => error.code(),
        };
        let took = self.engine.clock.exact().saturating_sub(begun);
        self.load.tier_called(TierCall { tier: lower.name(), op, result, took });
    }

    fn failures(&self) -> &RecentFailures {
        &self.engine.failures[self.rules.credentials as usize]
    }

    /// Starts the back-off of the key. Called before followers wake, so that it applies to them.
    fn note_failure(&self, error: &LoadError) {
        let flight = self.flight();
        if flight.audience == Audience::Shared && error.lasts() {
            let now = self.engine.clock.now();
            self.failures().note(flight.key().borrowed(), error.clone(), now, &mut ThreadDice);
        }
    }

    /// Marks the key as one whose answers are not shared.
    fn mark(&self, marked: Marked, remember: Duration) {
        let markers = &self.engine.passes[self.rules.credentials as usize];
        markers.mark(self.primary(), marked, self.engine.clock.now(), remember);
    }
}

impl<L: Load> Permitted<L> {
    /// Asks the origin. `None` if there is no memory for the load.
    async fn load(self) -> Option<LoadEnded<L>> {
        let Self { leading, permission, prior, stale, family } = self;
        let engine = leading.engine.clone();
        let prior = stale.as_ref().map(|stale| stale.entry.clone()).or(prior);
        let sent_ago = leading.options.sent_ago;
        let has_arrived = leading.options.source == LoadSource::Received || sent_ago.is_some();
        let admitted = if has_arrived {
            None
        } else {
            let key = leading.flight().key().borrowed();
            engine.memory.in_flight().admit_load(key, &*engine.observer).await
        };
        let mut fill = Fill::new(leading, permission, family);
        if admitted.is_none() && !has_arrived {
            fill.leading.keep_stale(stale.as_ref());
            let error = LoadError::Overloaded("no memory for another body in transfer");
            fill.leading.fail(error, Duration::ZERO);
            fill.release(Release::Abandoned).await;
            return None;
        }
        fill.admitted = admitted;
        let audience = fill.leading.flight().audience;
        let sent_ago = sent_ago.unwrap_or_default();
        let started = engine.clock.now().minus(sent_ago);
        let exact = engine.clock.exact().saturating_sub(sent_ago);
        fill.number = engine.flights.next_number();
        let leading = &fill.leading;
        leading.load.begins(Waiting::new(leading.flight().clone(), leading.is_refresh()));
        // A loader may panic before it has returned its future, too. The future is large, and each
        // wrapper would move it.
        let answer = {
            let loading = pin!(async { fill.leading.load.load(prior.clone(), audience).await });
            AssertUnwindSafe(loading).catch_unwind().await
        };
        let answer = answer.unwrap_or_else(|panic| Err(LoadError::panicked(&*panic)));
        let cost = engine.clock.exact().saturating_sub(exact);
        Some(LoadEnded { fill, prior, stale, answer, started, cost })
    }
}

impl<L: Load> LoadEnded<L> {
    /// Stores and announces the answer, in the order that the module describes. Afterwards the lease is
    /// released: by the tier that was filled, here, or, if this panics or is cancelled, by being
    /// dropped.
    async fn fill(self) {
        let Self { mut fill, prior, stale, answer, started, cost } = self;
        let release = fill.release_for(&answer);
        if matches!(&answer, Ok(answer) if !matches!(answer, Loaded::Failed { .. })) {
            fill.leading.failures().forget(fill.leading.flight().key().borrowed());
        }
        match answer {
            Ok(Loaded::Entry { mut meta, head, content }) => {
                fill.leading.observe_load("stored", cost);
                fill.complete(&mut meta, started, cost, prior.as_deref());
                fill.fill_entry(meta, head, content).await;
            }
            Ok(Loaded::Unchanged { mut meta, head }) => match prior {
                Some(prior) => {
                    fill.leading.observe_load("unchanged", cost);
                    fill.complete(&mut meta, started, cost, Some(&prior));
                    fill.fill_unchanged(meta, head, &prior).await;
                }
                None => {
                    fill.leading.keep_stale(stale.as_ref());
                    let error =
                        LoadError::origin("it answered \"unchanged\", but no entry is stored");
                    fill.leading.fail(error, cost);
                }
            },
            Ok(Loaded::Absent { lifetime }) => {
                fill.leading.observe_load("absent", cost);
                let mut meta = Meta::new(fill.leading.engine.clock.now(), lifetime);
                meta.presence = Presence::Absent;
                fill.complete(&mut meta, started, cost, None);
                fill.fill_entry(meta, Head::default(), Content::Whole(Bytes::new())).await;
            }
            Ok(Loaded::Pass(passed)) => {
                fill.leading.observe_load("pass", cost);
                let entry = fill.pass(passed, FlightResult::Private).await;
                fill.leading.reply(LeaderResult::Private(entry));
            }
            Ok(Loaded::Failed { passed, error }) => {
                fill.leading.observe_load("failed", cost);
                fill.leading.keep_stale(stale.as_ref());
                fill.leading.note_failure(&error);
                // An error for a request with credentials need not occur without them.
                let is_anonymous = fill.leading.rules.credentials == Credentials::Anonymous;
                let result = FlightResult::OriginError(is_anonymous.then_some(error));
                let entry = fill.pass(passed, result).await;
                fill.leading.reply(LeaderResult::OriginError(entry));
            }
            Err(error) => {
                fill.leading.keep_stale(stale.as_ref());
                fill.leading.fail(error, cost);
            }
        }
        fill.release(release).await;
    }
}

impl<L: Load> Fill<L> {
    fn new(leading: Leading<L>, permission: WritePermission, family: Option<Family>) -> Self {
        let number = leading.flight().number;
        Self { leading, permission, family, number, admitted: None, found: None }
    }

    /// Reason of the release of the lease for other instances, unless the shared tier is filled.
    fn release_for(&self, answer: &Result<Loaded, LoadError>) -> Release {
        match answer {
            Ok(Loaded::Pass(Passed { remember, .. })) => {
                let credentials = self.leading.rules.credentials;
                Release::Pass { remember: *remember, credentials }
            }
            Ok(Loaded::Failed { .. }) => Release::Failed,
            Err(error) if error.lasts() => Release::Failed,
            Ok(Loaded::Entry { .. } | Loaded::Unchanged { .. } | Loaded::Absent { .. })
            | Err(_) => Release::Abandoned,
        }
    }

    /// Completes the metadata with facts that the front end does not know: start and purge position
    /// of the load, and its cost, unless the front end has stated one.
    fn complete(&self, meta: &mut Meta, started: Timestamp, cost: Duration, prior: Option<&Entry>) {
        let known = prior.map_or(Duration::ZERO, |prior| prior.meta.load_cost());
        let stated = Some(meta.load_cost()).filter(|stated| !stated.is_zero());
        meta.load_started_at = started;
        meta.position = self.leading.flight().position;
        meta.set_load_cost(stated.unwrap_or_else(|| pace::smoothed(known, cost)));
    }

    fn entry(&self, meta: Meta, head: Head, body: Body) -> Entry {
        // An entry of a tier is as old as it is, however late its flight started.
        let flight = if self.found.is_none() { self.number } else { 0 };
        let mut entry = Entry::new(meta, head, body);
        entry.brought_by(flight);
        let is_softened = self.found.as_ref().is_some_and(|found| found.softened);
        if is_softened { entry.softened() } else { entry }
    }

    /// Fills memory, and the tiers above, with an entry of a lower tier.
    async fn fill_found(mut self, found: FoundEntry) {
        if let Some(part) = self.leading.load.batch() {
            part.is_spared();
        }
        let FoundEntry { meta, softened, head, body, position, by_instance } = found;
        self.found = Some(FoundIn { position, by_instance, softened });
        match body {
            FoundBody::Gathered(gathered) => self.fill_gathered(meta, head, gathered, None).await,
            // The body stays in its tier, where all callers read it.
            FoundBody::InTier(parts) => {
                let entry = Arc::new(self.entry(meta, head, Body::below(parts)));
                self.announce(&entry, self.source(true));
            }
        }
    }

    async fn fill_entry(&mut self, meta: Meta, head: Head, content: Content) {
        if !self.leading.rules.store {
            self.leading.leader.announce(FlightResult::Private);
            let entry = private_entry(meta, head, content).await;
            return self.leading.reply(LeaderResult::Private(Arc::new(entry)));
        }
        self.update_marker(&meta);
        let announced = content.announced();
        let gathered = gather_ready(content).await;
        self.fill_gathered(meta, head, gathered, announced).await;
    }

    async fn fill_unchanged(&mut self, meta: Meta, head: Option<Head>, prior: &Entry) {
        let head = head.unwrap_or_else(|| prior.head.clone());
        let entry = Arc::new(self.entry(meta, head, prior.body.clone()));
        let mut stored = StoreResult::Refused;
        if self.leading.rules.store {
            self.update_marker(&entry.meta);
            stored = self.store(&entry);
        }
        let source = Source::Led { stored: self.is_stored(stored), unchanged: true };
        let (answer, source) = self.answer(&entry, stored, source);
        self.announce(&answer, source);
        drop(answer);
        self.write_whole(&entry, stored).await;
    }

    async fn fill_gathered(
        &mut self,
        meta: Meta,
        head: Head,
        gathered: Gathered,
        announced: Option<u64>,
    ) {
        match gathered {
            Gathered::Whole(bytes) => {
                let entry = Arc::new(self.entry(meta, head, Body::whole(bytes)));
                let stored = self.store(&entry);
                let source = self.source(self.is_stored(stored));
                let (answer, source) = self.answer(&entry, stored, source);
                self.announce(&answer, source);
                drop(answer);
                self.write_whole(&entry, stored).await;
            }
            Gathered::Broken(first, broken) => self.fill_broken(meta, head, first, broken),
            Gathered::Flowing(first, rest) => {
                let stream = StreamingBody { first, rest, announced };
                self.fill_stream(meta, head, stream).await;
            }
        }
    }

    /// Answers one caller, and marks the key, before followers wake: they load alone, at once.
    async fn pass(&self, passed: Passed, result: FlightResult) -> Arc<Entry> {
        self.leading.mark(Marked::Private, passed.remember);
        self.leading.leader.announce(result);
        let meta = Meta::new(self.leading.engine.clock.now(), Lifetime::default());
        Arc::new(private_entry(meta, passed.head, passed.content).await)
    }

    /// Returns the source of the answer for the caller that leads.
    fn source(&self, stored: bool) -> Source {
        match &self.found {
            None => Source::Led { stored, unchanged: false },
            Some(found) if found.by_instance => Source::Instance,
            Some(found) => {
                let tier = &self.leading.engine.lower.all()[found.position.tier_index];
                Source::Tier(tier.name())
            }
        }
    }

    /// Answers all callers.
    fn announce(&mut self, entry: &Arc<Entry>, source: Source) {
        let selection = selection(self.leading.primary(), &self.leading.load, entry);
        // From here on the body is charged for its own size.
        self.admitted = None;
        // The leader's reader comes first: the body must not stream past it.
        let own = entry.for_reader(false).unwrap_or_else(|| entry.clone());
        self.leading.leader.announce(FlightResult::Shared(entry.clone(), selection));
        self.leading.reply(LeaderResult::Shared { entry: own, source });
    }

    /// Releases the lease, unless a tier has released it.
    async fn release(&self, release: Release) {
        if let WritePermission::Leased(permit) = &self.permission
            && self.leading.flight().take_release()
        {
            permit.release(release).await;
        }
    }
}

/// Creates the entry of an answer for one caller. The available part of the body is taken at once:
/// an origin connection that has sent everything is free again, however slow the client is.
async fn private_entry(meta: Meta, head: Head, content: Content) -> Entry {
    let body = match gather_ready(content).await {
        Gathered::Whole(bytes) => Body::whole(bytes),
        Gathered::Broken(first, broken) => {
            Body::once(stream::iter([Ok(first), Err(broken)]).boxed())
        }
        Gathered::Flowing(first, rest) => {
            let first = (!first.is_empty()).then_some(Ok(first));
            Body::once(stream::iter(first).chain(rest).boxed())
        }
    };
    Entry::new(meta, head, body)
}

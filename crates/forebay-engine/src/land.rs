//! What comes back from a load: announced to those who wait, passed to the one it is for, pumped
//! to its end, and stored.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Demand, Lifetime, Meta, Presence, PurgeState, Timestamp, Why, pace};
use futures_util::future::join;
use futures_util::{FutureExt, StreamExt, stream};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::Engine;
use crate::body::{Body, BrokenBody, Flow, PieceStream};
use crate::claim::{Asking, Claimed, Right, Seen};
use crate::clock::ThreadDice;
use crate::entry::{Entry, Head};
use crate::event::Event;
use crate::failures::RecentFailures;
use crate::flight::{Landed, Seat};
use crate::gather::{Gathered, gather_ready};
use crate::in_flight::Charged;
use crate::lease::Outcome;
use crate::load::{Company, Load, LoadError, Loaded, Passed, Source};
use crate::obtain::{Ask, Coalesce, Credentials, Via, Wanting, selection, suits};
use crate::pass::Marked;
use crate::store::Storing;
use crate::tier::lower::{Deadline, LowerTier};
use crate::walk::{Brought, BroughtBody, Depth, Ended, Family, Purpose, Sought, Walk, Walked};

/// For how long requests go alone for a key whose answers are storable but never fresh: each of
/// them has to be validated anyway, so nobody should wait for another's validation.
pub(crate) const UNFRESH_REMEMBER: Duration = Duration::from_secs(10);

/// What the leader's caller is told.
pub(crate) enum Told<L> {
    Shared {
        entry: Arc<Entry>,
        via: Via,
    },
    Alone(Arc<Entry>),
    /// An error in the origin's own words.
    Broken(Arc<Entry>),
    Failed(LoadError),
    /// Another instance has told something by which this flight is not for it: it boards again
    /// with its load, or goes alone for this reason.
    Back(L, Option<Why>),
}

/// What may be kept of what a load brings, and what may come before it.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    store: bool,
    pub(crate) credentials: Credentials,
    /// What to look for in lower tiers, if at all.
    pub(crate) sought: Option<Sought>,
    pub(crate) asking: Asking,
    /// Allows the entry of a load that departed later as the answer. Denied to a caller that wants
    /// a load of its own, and to one that wants more than the stored entry holds.
    pub(crate) yields: bool,
}

impl Keep {
    pub(crate) fn of(ask: &Ask<'_>, wanting: &Wanting) -> Self {
        let store = !ask.demand.no_store;
        let yields = ask.coalesce != Coalesce::Nowhere && wanting.why() != Why::Partial;
        let sought = Sought { demand: ask.demand.clone(), purpose: Purpose::Answer };
        let (credentials, asking) = (ask.credentials, Asking::of(ask));
        Self { store, credentials, sought: store.then_some(sought), asking, yields }
    }

    /// A refresh is for everybody, whatever its caller demands.
    pub(crate) fn refreshing(ask: &Ask<'_>, wanting: &Wanting) -> Self {
        let sought = Sought { demand: Demand::default(), purpose: Purpose::Refresh };
        Self { sought: Some(sought), ..Self::of(ask, wanting) }
    }

    /// Of who goes alone.
    pub(crate) fn alone(self) -> Self {
        Self { asking: self.asking.alone(), ..self }
    }

    /// The answers of a key that is marked as one to pass stand in no tier.
    pub(crate) fn passing(self) -> Self {
        Self { sought: None, ..self }
    }
}

/// The way of one answer from its load to all who wait for it.
pub(crate) struct Landing<L> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) seat: Seat,
    pub(crate) keep: Keep,
    tell: Option<oneshot::Sender<Told<L>>>,
    pub(crate) load: L,
    cost: Duration,
    /// Its place in the order of departures: from when its load departs on, that of the load.
    pub(crate) number: u64,
    /// The room that the load departed with, until its body begins.
    room: Option<Charged>,
    /// How large its body is going to be, if that was announced.
    announced: Option<u64>,
    /// The lower tier that brought it, if it was none of the origin's.
    pub(crate) depth: Option<Depth>,
    /// The family of variants that lower tiers know.
    pub(crate) family: Option<Family>,
    /// What lower tiers had that was not good enough.
    pub(crate) stale: Option<(Arc<Entry>, Depth)>,
    /// What the tier that is shared had.
    pub(crate) seen: Seen,
    /// What is left of the time that all looks into tiers have together.
    pub(crate) deadline: Option<Deadline>,
    /// Where what it brings may be stored.
    pub(crate) right: Right,
    /// Whether another instance has loaded what a lower tier brought, instead of this flight.
    elsewhere: bool,
    /// Whether a lower tier has brought it as one that a purge has made stale.
    softened: bool,
}

impl Engine {
    /// One flight, from departure to the end of its body. It runs in a task of its own: whoever
    /// waits for it may go away, and a panic in the load frees the seat.
    pub(crate) async fn fly<L: Load>(
        self: Arc<Self>,
        (seat, keep, tell): (Seat, Keep, Option<oneshot::Sender<Told<L>>>),
        prior: Option<Arc<Entry>>,
        load: L,
    ) {
        let (walked, ended) = self.walk((&seat, &keep), prior.as_deref(), &load).await;
        let Ended { family, seen, answered, deadline } = ended;
        let landing = Landing::new((self, seat), keep, load);
        let mut landing = Landing { tell, family, seen, deadline, ..landing };
        match walked {
            Walked::Found(brought) => {
                // What a tier further down has is not loaded: a lease goes back.
                drop(answered);
                return landing.land_brought(*brought).await;
            }
            Walked::Stale(entry, depth) => landing.stale = Some((entry, depth)),
            Walked::Failed(error) => return landing.land_error(error),
            Walked::Nothing => {}
        }
        match landing.claim(answered).await {
            Claimed::Load => {
                // No tier is looked into any more.
                landing.deadline = None;
                let stale = landing.stale.as_ref().map(|(entry, _)| entry.clone());
                landing.load(stale.or(prior)).await;
            }
            Claimed::Brought(brought) => {
                landing.elsewhere = true;
                landing.land_brought(*brought).await;
            }
            Claimed::Back(why) => landing.send_back(why),
            Claimed::Needless => {}
        }
    }

    async fn walk<L: Load>(
        &self,
        (seat, keep): (&Seat, &Keep),
        prior: Option<&Entry>,
        load: &L,
    ) -> (Walked, Ended) {
        match &keep.sought {
            Some(sought) if !self.lower.is_empty() && seat.flight().walks => {
                // What was purged by now, others may have purged before anybody asked for it.
                self.first_word().await;
                if self.joined.is_some() && seat.is_cut() {
                    return (Walked::Nothing, Ended::default());
                }
                let primary = seat.flight().primary().borrowed();
                let deadline = Deadline::within(self.lower.walk_budget(primary));
                let asks =
                    keep.asking != Asking::Alone && !load.only_looks() && !load.reads_together();
                let joined = self.joined.as_ref().filter(|_| asks);
                Walk::new((self, seat), load, sought, deadline).asking(joined).down(prior).await
            }
            _ => (Walked::Nothing, Ended::default()),
        }
    }
}

impl<L: Load> Landing<L> {
    /// A landing without a load: what it stores is in the caller's hands already.
    pub(crate) fn of_put(engine: Arc<Engine>, seat: Seat, select: L) -> Self {
        let (credentials, asking) = (Credentials::Anonymous, Asking::Once);
        let keep = Keep { store: true, credentials, sought: None, asking, yields: false };
        Self { right: Right::Put, ..Self::new((engine, seat), keep, select) }
    }

    fn new((engine, seat): (Arc<Engine>, Seat), keep: Keep, load: L) -> Self {
        Self {
            number: seat.flight().number,
            engine,
            seat,
            keep,
            tell: None,
            load,
            cost: Duration::ZERO,
            room: None,
            announced: None,
            depth: None,
            family: None,
            stale: None,
            seen: Seen { variant: None, stamp: None },
            deadline: None,
            right: Right::Anywhere,
            elsewhere: false,
            softened: false,
        }
    }

    /// Nobody is aboard any more.
    fn send_back(self, why: Option<Why>) {
        let Self { seat, tell, load, .. } = self;
        drop(seat);
        if let Some(tell) = tell {
            // A caller that has gone away wants nothing any more.
            let _ = tell.send(Told::Back(load, why));
        }
    }

    /// Stores what was put as if it had been loaded just now.
    pub(crate) async fn put(mut self, meta: Meta, head: Head, bytes: Bytes) -> bool {
        let meta = self.complete(meta, (self.engine.clock.now(), None));
        self.failures().forget(self.seat.flight().key().borrowed());
        self.settle_marker(&meta);
        let entry = Arc::new(self.entry(meta, head, Body::whole(bytes)));
        let storing = self.store(&entry);
        let stored = self.is_stored(storing);
        self.announce(&entry, Via::Led { stored, unchanged: false });
        self.write_on(&entry, storing).await;
        stored
    }

    async fn load(mut self, prior: Option<Arc<Entry>>) {
        let engine = self.engine.clone();
        if !self.load.has_arrived() {
            match engine.room_for_load(self.seat.flight().key().borrowed()).await {
                Ok(room) => self.room = Some(room),
                Err(error) => {
                    self.land_error(error);
                    return self.give_back(Outcome::Abandoned).await;
                }
            }
        }
        let clock = self.engine.clock.clone();
        let company = self.seat.flight().company;
        let departed = clock.now();
        let started = clock.exact();
        self.number = engine.flights.next_departure();
        // A loader may panic before it has made its future, too.
        let loading = async { self.load.load(prior.clone(), company).await };
        let loaded = AssertUnwindSafe(loading).catch_unwind().await;
        let loaded = loaded.unwrap_or_else(|panic| Err(LoadError::panicked(&*panic)));
        self.cost = clock.exact().saturating_sub(started);
        self.land(prior, loaded, departed).await;
    }

    /// What a lower tier brought lands as an answer of the origin does.
    async fn land_brought(&mut self, brought: Brought) {
        self.load.is_spared();
        let Brought { meta, softened, head, body, depth } = brought;
        self.depth = Some(depth);
        self.softened = softened;
        match body {
            BroughtBody::Gathered(gathered) => self.land_gathered(meta, head, gathered).await,
            // It stays where it is, for everybody to read there.
            BroughtBody::Below(parts) => {
                let entry = Arc::new(self.entry(meta, head, Body::below(parts)));
                self.announce(&entry, self.via(true));
            }
        }
    }

    /// However it ends, the lease is given back: by the tier that it was filled in, here, or, if
    /// this panics or is ended, by being let go of.
    async fn land(
        mut self,
        prior: Option<Arc<Entry>>,
        loaded: Result<Loaded, LoadError>,
        departed: Timestamp,
    ) {
        let outcome = self.outcome_of(&loaded);
        self.land_loaded(prior, loaded, departed).await;
        self.give_back(outcome).await;
    }

    /// What those who wait in other instances are told, unless it is filled.
    fn outcome_of(&self, loaded: &Result<Loaded, LoadError>) -> Outcome {
        match loaded {
            Ok(Loaded::Pass(Passed { remember, .. })) => {
                Outcome::Pass { remember: *remember, credentials: self.keep.credentials }
            }
            Ok(Loaded::Failed { .. }) => Outcome::Failed,
            Err(error) if error.lasts() => Outcome::Failed,
            Ok(Loaded::Entry { .. } | Loaded::Unchanged { .. } | Loaded::Absent { .. })
            | Err(_) => Outcome::Abandoned,
        }
    }

    async fn land_loaded(
        &mut self,
        prior: Option<Arc<Entry>>,
        loaded: Result<Loaded, LoadError>,
        departed: Timestamp,
    ) {
        if matches!(&loaded, Ok(loaded) if !matches!(loaded, Loaded::Failed { .. })) {
            self.failures().forget(self.seat.flight().key().borrowed());
        }
        match loaded {
            Ok(Loaded::Entry { meta, head, source }) => {
                self.observe("stored");
                let meta = self.complete(meta, (departed, prior.as_deref()));
                self.land_entry(meta, head, source).await;
            }
            Ok(Loaded::Unchanged { meta, head }) => match prior {
                Some(prior) => {
                    self.observe("unchanged");
                    let meta = self.complete(meta, (departed, Some(&prior)));
                    self.land_unchanged(meta, head, &prior).await;
                }
                None => self.land_error(LoadError::origin("unchanged, but nothing is stored")),
            },
            Ok(Loaded::Absent { lifetime }) => {
                self.observe("absent");
                self.land_absent(lifetime, departed).await;
            }
            Ok(Loaded::Pass(passed)) => {
                self.observe("pass");
                self.land_passed(passed, Landed::Private, Told::Alone).await;
            }
            Ok(Loaded::Failed { passed, error }) => {
                self.observe("failed");
                self.keep_stale();
                self.note_failure(&error);
                // What went wrong for somebody need not go wrong for everybody.
                let anonymous = self.keep.credentials == Credentials::Anonymous;
                let landed = Landed::Broken(anonymous.then_some(error));
                self.land_passed(passed, landed, Told::Broken).await;
            }
            Err(error) => self.land_error(error),
        }
    }

    fn observe(&self, result: &'static str) {
        let key = self.seat.flight().key().borrowed();
        self.engine.observer.observe(Event::Loaded { key, result, cost: self.cost });
    }

    /// What the door cannot know: where the log of purges stood, and what the load cost, unless
    /// the door has stated that.
    fn complete(&self, mut meta: Meta, (departed, prior): (Timestamp, Option<&Entry>)) -> Meta {
        let known = prior.map_or(Duration::ZERO, |prior| prior.meta.load_cost());
        let stated = Some(meta.load_cost()).filter(|stated| !stated.is_zero());
        meta.departed = departed;
        meta.position = self.seat.flight().position;
        meta.set_load_cost(stated.unwrap_or_else(|| pace::smoothed(known, self.cost)));
        meta
    }

    /// Before anybody is woken: who comes next is held back.
    fn note_failure(&self, error: &LoadError) {
        let flight = self.seat.flight();
        if flight.company == Company::Shared && error.lasts() {
            let now = self.engine.clock.now();
            self.failures().note(flight.key().borrowed(), error.clone(), (now, &mut ThreadDice));
        }
    }

    fn failures(&self) -> &RecentFailures {
        &self.engine.failures[self.keep.credentials as usize]
    }

    pub(crate) fn entry(&self, meta: Meta, head: Head, body: Body) -> Entry {
        // What a tier brings is as old as it is: that its flight departed late proves nothing.
        let flight = if self.depth.is_none() { self.number } else { 0 };
        let entry = Entry { flight, ..Entry::new(meta, head, body) };
        if self.softened { entry.softened() } else { entry }
    }

    fn tell(&mut self, told: Told<L>) {
        if let Some(tell) = self.tell.take() {
            // A caller that has gone away needs no answer.
            let _ = tell.send(told);
        }
    }

    fn land_error(&mut self, error: LoadError) {
        // Where nothing was to be loaded, there was no load.
        if !matches!(error, LoadError::NotCached) {
            self.observe(error.code());
        }
        self.keep_stale();
        self.note_failure(&error);
        self.seat.land(Landed::Failed(error.clone()));
        self.tell(Told::Failed(error));
    }

    /// The marker stands before anybody is woken: those who followed go alone, and at once.
    async fn land_passed(
        &mut self,
        passed: Passed,
        landed: Landed,
        told: impl FnOnce(Arc<Entry>) -> Told<L>,
    ) {
        let now = self.engine.clock.now();
        self.mark((Marked::Private, now), passed.remember);
        self.seat.land(landed);
        let meta = Meta::new(now, Lifetime::default());
        let entry = alone(meta, passed.head, passed.source).await;
        self.tell(told(Arc::new(entry)));
    }

    pub(crate) fn mark(&self, marked: (Marked, Timestamp), remember: Duration) {
        let markers = &self.engine.passes[self.keep.credentials as usize];
        markers.mark(self.seat.flight().primary().borrowed(), marked, remember);
    }

    async fn land_absent(&mut self, lifetime: Lifetime, departed: Timestamp) {
        let mut meta = Meta::new(self.engine.clock.now(), lifetime);
        meta.presence = Presence::Absent;
        let meta = self.complete(meta, (departed, None));
        self.land_entry(meta, Head::default(), Source::Whole(Bytes::new())).await;
    }

    async fn land_unchanged(&mut self, meta: Meta, head: Option<Head>, prior: &Entry) {
        let head = head.unwrap_or_else(|| prior.head.clone());
        let entry = Arc::new(self.entry(meta, head, prior.body.clone()));
        if self.keep.store {
            self.settle_marker(&entry.meta);
        }
        let storing = if self.keep.store { self.store(&entry) } else { Storing::Refused };
        let via = Via::Led { stored: self.is_stored(storing), unchanged: true };
        self.announce_stored(&entry, storing, via);
        self.write_on(&entry, storing).await;
    }

    async fn land_entry(&mut self, meta: Meta, head: Head, source: Source) {
        if !self.keep.store {
            self.seat.land(Landed::Private);
            let entry = alone(meta, head, source).await;
            self.tell(Told::Alone(Arc::new(entry)));
            return;
        }
        self.settle_marker(&meta);
        self.announced = source.announced();
        let gathered = gather_ready(source).await;
        self.land_gathered(meta, head, gathered).await;
    }

    async fn land_gathered(&mut self, meta: Meta, head: Head, gathered: Gathered) {
        match gathered {
            Gathered::Whole(bytes) => self.land_whole(meta, head, bytes).await,
            Gathered::Broken(first, broken) => self.land_broken(meta, head, (first, broken)),
            Gathered::Flowing(first, rest) => self.land_flowing(meta, head, (first, rest)).await,
        }
    }

    async fn land_whole(&mut self, meta: Meta, head: Head, bytes: Bytes) {
        let entry = Arc::new(self.entry(meta, head, Body::whole(bytes)));
        let storing = self.store(&entry);
        self.announce_stored(&entry, storing, self.via(self.is_stored(storing)));
        self.write_on(&entry, storing).await;
    }

    /// Hands a whole entry on to the lower tiers. If it is in memory by now, nobody has to board
    /// this flight any more; if not, who comes before it stands in a tier would find nothing, and
    /// load once more.
    async fn write_on(&self, entry: &Entry, storing: Storing) {
        if storing != Storing::Refused && self.has_targets() {
            if storing == Storing::Kept {
                self.seat.close_boarding();
            }
            self.write_whole(entry).await;
        }
    }

    fn via(&self, stored: bool) -> Via {
        let led = Via::Led { stored, unchanged: false };
        if self.elsewhere {
            return Via::Elsewhere;
        }
        self.depth.map_or(led, |depth| Via::Tier(self.engine.lower.all()[depth.above].name()))
    }

    /// The lower tiers that are to have it: those above where it was found, all if it was loaded.
    pub(crate) fn targets(&self) -> SmallVec<[&LowerTier; 2]> {
        let all = self.engine.lower.all();
        let above = self.depth.map_or(all, |depth| &all[..depth.above]);
        let primary = self.seat.flight().primary().borrowed();
        let may = |lower: &&LowerTier| lower.tier.takes(primary) && self.right.is_for(lower);
        above.iter().filter(may).collect()
    }

    pub(crate) fn has_targets(&self) -> bool {
        !self.targets().is_empty()
    }

    fn land_broken(&mut self, meta: Meta, head: Head, (first, broken): (Bytes, BrokenBody)) {
        let (writer, flow) = Flow::new(&self.engine.in_flight, u64::MAX);
        let entry = Arc::new(self.entry(meta, head, Body::flowing(flow)));
        writer.push(first);
        writer.fail(broken);
        self.engine.observer.observe(Event::BodyBroken(self.seat.flight().key().borrowed()));
        self.announce(&entry, self.via(false));
    }

    async fn land_flowing(&mut self, meta: Meta, head: Head, (first, rest): (Bytes, PieceStream)) {
        if let Some(newer) = self.outrun_by(&meta) {
            return self.announce(&newer, Via::Followed);
        }
        let engine = self.engine.clone();
        let kept_max = engine.memory.object_max(meta.presence);
        let too_large = self.announced.is_some_and(|announced| announced > kept_max);
        let (mut writer, flow) = Flow::new(&engine.in_flight, kept_max);
        writer.expect(self.announced);
        let entry = Arc::new(self.entry(meta, head, Body::flowing(flow.clone())));
        self.name_variants(&entry);
        let place = if self.has_targets() { self.place(&entry.meta) } else { None };
        let is_placed = place.is_some();
        // Tiers read from the first byte, too, so they take their places before it can go.
        let intakes = match &place {
            Some(_) => self.intakes((&entry, &flow)),
            None => Vec::new(),
        };
        drop(flow);
        writer.push(first);
        self.announce(&entry, self.via(!too_large || self.has_targets()));
        let writing = async {
            if let Some(place) = place {
                self.write_all((place, &entry), intakes).await;
            }
        };
        let (whole, ()) = join(self.fill(&entry, (writer, rest)), writing).await;
        if let (false, Some((whole, storing))) = (is_placed, whole) {
            self.write_on(&whole, storing).await;
        }
    }

    /// Whoever learns of the variants from here on finds the one that is on its way.
    fn name_variants(&self, entry: &Entry) {
        let primary = self.seat.flight().primary().borrowed();
        let Some(vary) = entry.meta.vary() else { return };
        if let Some(selection) = selection(primary, &self.load, entry) {
            self.seat.select(selection);
        }
        self.seat.unless_cut(|| {
            self.adopt_family(&entry.meta);
            self.engine.memory.announce(primary, (vary, entry.meta.presence));
        });
    }

    /// Answers that are storable but never fresh cannot be shared; an answer that can be lifts
    /// the marker.
    fn settle_marker(&self, meta: &Meta) {
        let now = self.engine.clock.now();
        let primary = self.seat.flight().primary().borrowed();
        if suits((meta, PurgeState::Valid), &Demand::default(), now) {
            self.engine.passes[self.keep.credentials as usize].clear(primary);
        } else {
            self.mark((Marked::Unfresh, now), UNFRESH_REMEMBER);
        }
    }

    pub(crate) fn announce(&mut self, entry: &Arc<Entry>, via: Via) {
        let primary = self.seat.flight().primary().borrowed();
        let selection = selection(primary, &self.load, entry);
        // From here on the body is charged for what it is.
        self.room = None;
        // The leader's place first: nothing may flow past it.
        let leaders = entry.boarded(false).unwrap_or_else(|| entry.clone());
        self.seat.land(Landed::Shared(entry.clone(), selection));
        self.tell(Told::Shared { entry: leaders, via });
    }
}

/// What is there of it already is taken at once: a source that has given all it has is free for
/// others, however slow the one is whom its answer is for.
async fn alone(meta: Meta, head: Head, source: Source) -> Entry {
    let body = match gather_ready(source).await {
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

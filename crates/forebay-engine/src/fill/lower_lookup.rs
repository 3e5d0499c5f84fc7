//! The walk down the lower tiers, from the uppermost on, before an origin is asked.
//!
//! It ends at the first entry that may be served for the demand; that one lands as an answer of
//! the origin would. Of entries that may not be, the youngest serves as what the origin is asked
//! about. All steps share one deadline, and whatever fails is a miss.
//!
//! Where a flight may load, the look into the tier that is shared asks for the lease as well, if
//! that is the better way ([`outlook`](crate::tiers::lease_strategy)): then it is answered or loads after
//! one exchange.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::judge::NoDice;
use forebay_core::{
    Demand, Key, KeyRef, Meta, Position, PurgeState, Timestamp, Vary, Verdict, judge, key,
};
use futures_util::StreamExt;

use crate::engine::Engine;
use crate::entry::body::gather::{Gathered, exact, gather_begun};
use crate::entry::body::{Body, Parts, PieceStream, bounded};
use crate::entry::select::selected;
use crate::entry::{Entry, Head};
use crate::fill::cluster_lease::{Answered, Seen};
use crate::flight::Seat;
use crate::flight::load::{Load, LoadError};
use crate::runtime::event::Event;
use crate::tiers::error::TierError;
use crate::tiers::lease::{Claim, Lease, Leases};
use crate::tiers::lower::{Deadline, LowerTier};
use crate::tiers::tier::{Stored, TierErrors};

/// How large a stale entry may be at least that is held while its origin is asked about it,
/// however little memory keeps. As many are held as there are loads.
const ASKED_ABOUT_MAX: u64 = 1 << 20;

/// How much younger than what is at hand an entry has to be. The age of one and the same entry
/// differs by a few milliseconds each time it is read back.
pub(crate) const YOUNGER_MIN: Duration = Duration::from_secs(1);

/// Whether somebody waits for the answer, or it is refreshed behind one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Answer,
    Refresh,
}

/// What a walk is for.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    pub(crate) demand: Demand,
    pub(crate) purpose: Purpose,
}

/// What a walk came back with.
pub(crate) enum Walked {
    Found(Box<Brought>),
    /// An entry to ask the origin about.
    Stale(Arc<Entry>, Depth),
    Nothing,
    /// Nothing, and a tier has failed for a door that is strict about it.
    Failed(LoadError),
}

/// What the selecting fields of a key are, and the generation of its variants.
pub(crate) type Family = (Vary, u64);

/// What a walk has learned beside entries.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) family: Option<Family>,
    pub(crate) seen: Seen,
    /// What was said to its asking for a lease.
    pub(crate) answered: Option<Answered>,
    /// What is left of the time that all looks into tiers have.
    pub(crate) deadline: Option<Deadline>,
}

/// An entry that may be served.
pub(crate) struct Brought {
    pub(crate) meta: Meta,
    pub(crate) softened: bool,
    pub(crate) head: Head,
    pub(crate) body: BroughtBody,
    pub(crate) depth: Depth,
}

/// Its body.
pub(crate) enum BroughtBody {
    Gathered(Gathered),
    /// Too large for memory, or wanted in part only: it stays in its tier.
    Below(Arc<dyn Parts>),
}

/// Where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    /// How many lower tiers stand above the one where it was found.
    pub(crate) above: usize,
    /// The generation of its family there, if it is a variant.
    pub(crate) generation: Option<u64>,
}

/// The time that an entry was made for.
#[derive(Clone, Copy)]
struct Span {
    born: Timestamp,
    end: Timestamp,
}

impl Span {
    fn of(meta: &Meta) -> Self {
        Self { born: meta.born, end: meta.born.plus(meta.lifetime().fresh) }
    }

    /// What is suspect or was made stale gives way to what is as old, and neither; but not to what
    /// is only believed for longer.
    fn of_prior(prior: &Entry, standing: PurgeState) -> Self {
        if standing == PurgeState::Valid {
            return Self::of(&prior.meta);
        }
        let end = Timestamp::from_millis(i64::MAX);
        Self { born: prior.meta.born.minus(YOUNGER_MIN).minus(YOUNGER_MIN), end }
    }

    /// Whether it is younger, or the same and believed for longer: a tier may keep for an hour
    /// what the one above it asks about every minute.
    fn is_news_to(self, known: Self) -> bool {
        self.born.since(known.born) >= YOUNGER_MIN || self.end.since(known.end) >= YOUNGER_MIN
    }
}

/// One walk.
pub(crate) struct Walk<'a, L> {
    engine: &'a Engine,
    seat: &'a Seat,
    load: &'a L,
    sought: &'a Sought,
    deadline: Deadline,
    /// Whom its looks ask for leases.
    leases: Option<&'a dyn Leases>,
    /// The uppermost family of variants there is. Memory learns of it when this flight lands and
    /// not before: who came in between would board under another key, and load once more.
    family: Option<Family>,
    /// What the tier that is shared had, if it was asked.
    seen: Seen,
    /// What was said to it when it asked for a lease, which it does once.
    answered: Option<Answered>,
    /// Where the log of purges stood before anything was read.
    position: Position,
    /// Up to where the tiers of this instance alone had carried it out by then.
    carried_out: Position,
    /// What the uppermost tier has failed by that has failed.
    failure: Option<LoadError>,
}

/// An entry as a tier has it, its body not read yet.
pub(crate) struct Candidate {
    pub(crate) meta: Meta,
    /// Whether a purge has made it stale that this instance's own record does not tell of.
    softened: bool,
    head: Head,
    body: PieceStream,
    parts: Option<Arc<dyn Parts>>,
    depth: Depth,
}

impl<'a, L: Load> Walk<'a, L> {
    pub(crate) fn new(
        (engine, seat): (&'a Engine, &'a Seat),
        load: &'a L,
        sought: &'a Sought,
        deadline: Deadline,
    ) -> Self {
        Self {
            engine,
            seat,
            load,
            sought,
            deadline,
            leases: None,
            family: None,
            seen: Seen::default(),
            answered: None,
            position: seat.flight().position,
            carried_out: engine.log.progress.carried_out_up_to(),
            failure: None,
        }
    }

    /// The same for a flight that may load: it asks for the lease, too.
    pub(crate) fn asking(self, leases: Option<&'a dyn Leases>) -> Self {
        Self { leases, ..self }
    }

    /// Goes on where another walk of the flight has ended, with what is read from this position
    /// on.
    pub(crate) fn resume(&mut self, (family, seen): (Option<Family>, Seen), position: Position) {
        (self.family, self.seen, self.position) = (family, seen, position);
    }

    pub(crate) fn ended(self) -> Ended {
        let Self { family, seen, answered, deadline, .. } = self;
        Ended { family, seen, answered, deadline: Some(deadline) }
    }

    /// Walks down. `prior` is what memory has: only what is younger is of interest. If it is
    /// suspect or was made stale, it is enough that what is found is as young, and neither.
    pub(crate) async fn down(mut self, prior: Option<&Entry>) -> (Walked, Ended) {
        let standing = |prior| self.engine.log.state_of(self.primary(), prior);
        let standing = prior.map_or(PurgeState::Valid, standing);
        let walked = self.walk(prior, standing).await;
        if standing == PurgeState::Unverified {
            let found = matches!(walked, Walked::Found(_));
            self.engine.observer.observe(Event::SuspectChecked(self.primary(), found));
        }
        // A refresh is behind somebody's answer: nobody is there to be told.
        let is_strict =
            self.sought.purpose == Purpose::Answer && self.load.tier_errors() == TierErrors::Strict;
        let failure = self.failure.take().filter(|_| is_strict);
        match (walked, failure) {
            (Walked::Nothing | Walked::Stale(..), Some(failure)) => {
                (Walked::Failed(failure), self.ended())
            }
            (walked, _) => (walked, self.ended()),
        }
    }

    async fn walk(&mut self, prior: Option<&Entry>, standing: PurgeState) -> Walked {
        let mut best = None;
        let mut known = prior.map(|prior| Span::of_prior(prior, standing));
        for above in 0..self.engine.lower.all().len() {
            if self.deadline.is_over() {
                break;
            }
            if !self.lower(above).tier.takes(self.primary()) {
                continue;
            }
            let Some(candidate) = self.look_in(above).await else { continue };
            let span = Span::of(&candidate.meta);
            if known.is_some_and(|known| !span.is_news_to(known)) {
                continue;
            }
            if !self.is_served(&candidate) {
                known = Some(span);
                best = Some(candidate);
            } else if let Some(brought) = self.begin(candidate).await {
                return Walked::Found(Box::new(brought));
            }
        }
        match best {
            Some(candidate) => self.collect(candidate).await.unwrap_or(Walked::Nothing),
            None => Walked::Nothing,
        }
    }

    fn lower(&self, above: usize) -> &'a LowerTier {
        &self.engine.lower.all()[above]
    }

    fn primary(&self) -> KeyRef<'a> {
        self.seat.flight().primary().borrowed()
    }

    /// The entry that this request selects in one tier, unless it was purged.
    pub(crate) async fn look_in(&mut self, above: usize) -> Option<Candidate> {
        let lower = self.lower(above);
        let primary = self.primary();
        if !lower.is_clear(primary, &mut self.deadline).await {
            self.goes_without(lower, &TierError::Bypassed);
            let owed = TierError::failed("what was purged could not be removed yet");
            return self.note(lower, Err(owed));
        }
        let record = self.open((lower, above), primary).await?;
        self.seen_in(lower, None, Some(record.stamp));
        let Some(vary) = record.meta.vary().cloned() else {
            return self.candidate(record, Depth { above, generation: None });
        };
        let generation = generation_of(&record)?;
        self.family.get_or_insert_with(|| (vary.clone(), generation));
        let record = self.open_variant((lower, above), (&vary, generation)).await?;
        self.candidate(record, Depth { above, generation: Some(generation) })
    }

    /// What somebody else has read where this flight has looked last, in the tier that is shared.
    pub(crate) async fn taken(&mut self, above: usize, record: Stored) -> Option<Candidate> {
        let is_of = |(vary, _): &Family| record.meta.vary() == Some(vary);
        let generation = match (&self.seen.variant, &self.family) {
            (Some(_), Some(family)) if is_of(family) => Some(family.1),
            (None, _) if record.meta.vary().is_none() => None,
            // It only leads to the entry, or to another one.
            _ => return self.look_in(above).await,
        };
        self.seen.stamp = Some(record.stamp);
        self.candidate(record, Depth { above, generation })
    }

    fn seen_in(&mut self, lower: &LowerTier, variant: Option<Key>, stamp: Option<u64>) {
        if lower.is_shared() {
            self.seen = Seen { variant, stamp };
        }
    }

    async fn open_variant(
        &mut self,
        lower: (&LowerTier, usize),
        (vary, generation): (&Vary, u64),
    ) -> Option<Stored> {
        let key: Key =
            key::variant(self.primary(), generation, selected(vary, self.load)).borrowed().to_key();
        self.seen_in(lower.0, Some(key.clone()), None);
        let record = self.open(lower, key.borrowed()).await?;
        self.seen_in(lower.0, Some(key), Some(record.stamp));
        (record.meta.vary() == Some(vary)).then_some(record)
    }

    async fn open(
        &mut self,
        (lower, above): (&LowerTier, usize),
        key: KeyRef<'_>,
    ) -> Option<Stored> {
        if let Some(looked) = self.look(lower, key).await {
            return looked;
        }
        let open = || self.load.open(&lower.tier, above, key);
        let opened = lower.look(&mut self.deadline, open).await;
        if let Err(failure) = &opened {
            self.goes_without(lower, failure);
        }
        self.note(lower, opened)?
    }

    /// What stands there, or nothing and an answer about the lease. Nothing at all where this is
    /// not the way to ask, or nobody answers: then it can still be read.
    async fn look(&mut self, lower: &LowerTier, key: KeyRef<'_>) -> Option<Option<Stored>> {
        let is_way = lower.is_shared() && self.answered.is_none() && lower.is_asked_for_leases();
        let leases = self.leases.filter(|_| is_way)?;
        let flight = self.seat.flight();
        let (primary, boarded) = (flight.primary().borrowed(), flight.key().borrowed());
        let claim = Claim { primary, boarded, entry: key, seen: None, is_look: true };
        let position = self.engine.log.position();
        let looking = || leases.acquire(claim);
        match lower.look(&mut self.deadline, looking).await {
            Ok(Lease::Filled(stored)) => Some(Some(*stored)),
            Err(error @ (TierError::TimedOut | TierError::Bypassed)) => {
                self.goes_without(lower, &error);
                Some(self.note(lower, Err(error)))
            }
            Err(error) => {
                self.goes_without(lower, &error);
                None
            }
            lease => {
                self.answered = Some((lease, position));
                Some(None)
            }
        }
    }

    /// Who could not look into what is shared asks for no lease there: it would wait once more.
    fn goes_without(&mut self, lower: &LowerTier, failure: &TierError) {
        let counts = lower.is_shared() && !matches!(failure, TierError::TooLarge);
        if counts && self.answered.is_none() {
            self.answered = Some((Err(failure.clone()), self.position));
        }
    }

    /// What an operation brought; what it failed by is remembered.
    fn note<T>(&mut self, lower: &LowerTier, result: Result<T, TierError>) -> Option<T> {
        let failed = |error| LoadError::Tier(lower.name(), error);
        match result {
            Ok(brought) => return Some(brought),
            // It has the entry, and it is no failure that nobody here has room for it.
            Err(TierError::TooLarge) => {}
            Err(error) => {
                self.failure.get_or_insert_with(|| failed(error));
            }
        }
        None
    }

    /// A tier that is shared knows what was purged, and one that carries purges out knows of those
    /// that have come there. Others do not, nor when: so their entries count as older than every
    /// purge. Only what none has reached is as good as loaded just now.
    fn candidate(&self, record: Stored, depth: Depth) -> Option<Candidate> {
        let Stored { mut meta, head, body, vetted, stamp: _, parts, suspect } = record;
        let carries_out = self.engine.lower.carries_out_purges(depth.above);
        meta.position = if carries_out { self.carried_out } else { Position::default() };
        let joined = self.engine.joined.as_ref();
        let is_behind = joined.is_some_and(|joined| joined.unpublished.any_of_many());
        let knows = vetted.filter(|_| !is_behind);
        let standing = knows.unwrap_or_else(|| self.unvetted(&meta, suspect));
        match standing {
            // What will be suspect in a while must not become new by being brought up before.
            PurgeState::Valid if knows.is_none() && self.engine.log.doubts_time(meta.departed) => {}
            PurgeState::Valid => meta.position = self.position,
            PurgeState::SoftPurged if knows.is_some() => meta.position = self.position,
            PurgeState::SoftPurged => {}
            PurgeState::Unverified | PurgeState::Removed => return None,
        }
        let softened = standing == PurgeState::SoftPurged;
        Some(Candidate { meta, softened, head: self.load.revive(head)?, body, parts, depth })
    }

    fn unvetted(&self, meta: &Meta, was_suspect: bool) -> PurgeState {
        let standing = self.engine.log.recorded_state(self.primary(), meta);
        let suspect = (was_suspect && self.engine.joined.is_some())
            || self.engine.log.is_unverified_at(meta.departed, self.engine.clock.now());
        if suspect { standing.max(PurgeState::Unverified) } else { standing }
    }

    pub(crate) fn is_served(&self, candidate: &Candidate) -> bool {
        let Candidate { meta, softened, .. } = candidate;
        let unpurged = if *softened { PurgeState::SoftPurged } else { PurgeState::Valid };
        let standing = self.engine.log.recorded_state(self.primary(), meta).max(unpurged);
        let now = self.engine.clock.now();
        match judge(meta, &self.sought.demand, standing, now, &mut NoDice) {
            Verdict::Serve => true,
            // It lands, and whoever looks next finds it in memory and refreshes it.
            Verdict::ServeThenRefresh(_) => self.sought.purpose == Purpose::Answer,
            Verdict::Load { .. } => false,
        }
    }

    /// Waits for the beginning of its body: until then there are other places to have it from.
    pub(crate) async fn begin(&mut self, candidate: Candidate) -> Option<Brought> {
        let parts = self.left_below(&candidate);
        let Candidate { meta, softened, head, body, depth, .. } = candidate;
        if let Some(parts) = parts.clone().filter(|_| self.wants_part()) {
            let body = BroughtBody::Below(parts);
            return Some(Brought { meta, softened, head, body, depth });
        }
        let lower = self.lower(depth.above);
        let beginning = || async {
            match gather_begun(body).await {
                Gathered::Broken(_, broken) => Err(TierError::failed(broken)),
                gathered => Ok(gathered),
            }
        };
        let begun = lower.attempt("read", &mut self.deadline, beginning).await;
        let body = match self.note(lower, begun)? {
            Gathered::Flowing(first, rest) => Gathered::Flowing(first, bounded(rest)),
            gathered => gathered,
        };
        let body = parts.map_or(BroughtBody::Gathered(body), BroughtBody::Below);
        Some(Brought { meta, softened, head, body, depth })
    }

    /// The body where it stands, if it is not taken into memory nor into a tier above.
    fn left_below(&self, candidate: &Candidate) -> Option<Arc<dyn Parts>> {
        let kept_max = self.engine.memory.object_max(candidate.meta.presence);
        let is_left = |parts: &Arc<dyn Parts>| {
            candidate.depth.above == 0 && (self.wants_part() || parts.length() > kept_max)
        };
        candidate.parts.clone().filter(is_left)
    }

    /// A refresh is for everybody, whoever brought it about.
    fn wants_part(&self) -> bool {
        self.sought.purpose == Purpose::Answer && self.load.wants_part()
    }

    /// Takes a stale entry whole, so that the origin can be asked about it, and so that it is at
    /// hand if the origin fails.
    pub(crate) async fn collect(&mut self, candidate: Candidate) -> Option<Walked> {
        let Candidate { meta, softened, head, body, depth, .. } = candidate;
        let bytes_max = self.engine.memory.object_max(meta.presence).max(ASKED_ABOUT_MAX);
        let lower = self.lower(depth.above);
        let collecting = || collect_up_to(body, bytes_max);
        let collected = lower.attempt("read", &mut self.deadline, collecting).await;
        let bytes = self.note(lower, collected)?;
        let entry = Entry::new(meta, head, Body::whole(bytes));
        let entry = Arc::new(if softened { entry.softened() } else { entry });
        Some(Walked::Stale(entry, depth))
    }
}

/// What the record of a family says: its head is the generation, in 8 bytes, little-endian.
fn generation_of(record: &Stored) -> Option<u64> {
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

//! The story of one demand: look, judge, board, wait or lead, and go.
//!
//! ```text
//! ask ──► look ──► verdict ─┬─ serve ─────────────────────────────► obtained
//!                           ├─ serve, and let one flight refresh ──► obtained
//!                           └─ load ──► board ─┬─ follow ──► landed ──► obtained, or look again
//!                                              └─ lead ──► a task of its own ──► obtained
//! ```
//!
//! The way back from `landed` to `look` is the only loop. It is bounded by `ROUNDS_MAX`; then
//! the caller goes alone.

use std::sync::Arc;

use forebay_core::judge::NoDice;
use forebay_core::{
    Demand, Key, KeyRef, Meta, Position, Standing, Timestamp, Vary, Verdict, Why, judge, key,
};
use tokio::sync::oneshot;

use crate::Engine;
use crate::clock::ThreadDice;
use crate::entry::Entry;
use crate::event::Event;
use crate::flight::{Boarder, Boarding, Flight, Landed, Seat};
use crate::land::{Keep, Refreshing, Told};
use crate::load::{Load, LoadError, Select, selected};
use crate::tier::memory::Found;

/// How often a caller may find that what it waited for is not for it, before it goes alone: a
/// cold key costs one round, a foreign variant another, an abandoned flight a third.
const ROUNDS_MAX: usize = 3;

/// How many background refreshes may be under way at once. Beyond it, stale entries are served
/// without a refresh; a later caller starts it.
const REFRESHES_MAX: usize = 1_024;

/// What one caller wants. Nothing in it is owned: most callers need only a look.
pub struct Ask<'a> {
    /// The primary key.
    pub key: KeyRef<'a>,
    /// What will do.
    pub demand: &'a Demand,
    /// The fields that choose among variants.
    pub select: &'a dyn Select,
    /// Whether the caller is somebody.
    pub credentials: Credentials,
    /// Whether it may share a load with others.
    pub coalesce: bool,
}

/// Whether a request carried something that may make its answer personal. One private answer to
/// somebody must not keep anonymous callers from sharing theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody in particular asks.
    Anonymous,
    /// The request carries credentials.
    Presented,
}

/// What a look found.
pub enum Look {
    /// Good enough as it is.
    Served(Obtained),
    /// Something has to be loaded, now or behind the answer.
    Wanting(Wanting),
}

/// What a look found wanting.
#[derive(Debug)]
pub struct Wanting {
    verdict: Verdict,
    prior: Option<Arc<Entry>>,
    /// What to board by, where it is known that the key has variants.
    key: Option<Key>,
}

impl Wanting {
    /// Why what is stored does not do.
    #[must_use]
    pub const fn why(&self) -> Why {
        match self.verdict {
            // A verdict to serve is not wanting; the reason is never asked for.
            Verdict::Serve => Why::UriMiss,
            Verdict::ServeThenRefresh(why) | Verdict::Load { why, .. } => why,
        }
    }

    /// Whether something is stored that a load may confirm, or may be answered with if it fails.
    #[must_use]
    pub const fn has_prior(&self) -> bool {
        self.prior.is_some()
    }

    /// The window may have closed while the load was failing.
    fn fallback(&self, now: Timestamp) -> Option<Arc<Entry>> {
        let prior = self.prior.clone();
        match self.verdict {
            Verdict::Load { may_fall_back, .. } => {
                prior.filter(|entry| may_fall_back && forebay_core::may_fall_back(&entry.meta, now))
            }
            Verdict::Serve | Verdict::ServeThenRefresh(_) => prior,
        }
    }

    fn is_about(&self, entry: &Arc<Entry>) -> bool {
        self.prior.as_ref().is_some_and(|prior| Arc::ptr_eq(prior, entry))
    }
}

/// The moment when a caller came.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The flight that had departed last.
    newest: u64,
    /// Where the log of purges stood.
    position: Position,
}

/// What one more look found.
enum Again {
    /// What will do; somebody else brought it.
    Found(Obtained),
    /// Still wanting.
    Wanting,
    /// Still wanting, and to be boarded under another key.
    Elsewhere,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Obtained {
    /// The entry; its body may still flow.
    pub entry: Arc<Entry>,
    /// How it came.
    pub via: Via,
    /// Why it was not a fresh hit.
    pub why: Option<Why>,
}

/// How an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// It was at hand, and fresh or stale within what the caller accepts.
    Hit,
    /// It was at hand, and is being refreshed behind this answer.
    Refreshing,
    /// It was not in memory, but in this lower tier.
    Tier(&'static str),
    /// This caller's load brought it.
    Led {
        /// Whether it is kept.
        stored: bool,
        /// Whether the origin said that what was stored is still good.
        unchanged: bool,
    },
    /// Somebody else's load brought it.
    Followed,
    /// It was loaded for this caller alone.
    Passed,
    /// The load failed, and this was at hand.
    Fallback,
}

impl Engine {
    /// Obtains an answer: looks, and loads what is wanting.
    ///
    /// # Errors
    /// If nothing usable is at hand and the load fails.
    pub async fn obtain<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        load: L,
    ) -> Result<Obtained, LoadError> {
        match self.look(ask) {
            Look::Served(obtained) => Ok(obtained),
            Look::Wanting(wanting) => self.fetch(ask, wanting, load).await,
        }
    }

    /// What is at hand. Synchronous: the hit path.
    #[must_use]
    pub fn look(&self, ask: &Ask<'_>) -> Look {
        let entry = match self.memory.find(ask.key, ask.select) {
            Found::Entry(entry) => entry,
            Found::NoVariant(vary) => {
                let key = boarded_by(ask.key, ask.select, &vary);
                return Look::wanting(Why::VaryMiss, Some(key));
            }
            Found::Nothing => return Look::wanting(Why::UriMiss, None),
        };
        let now = self.clock.now();
        let standing = self.standing(ask.key, &entry);
        match judge(&entry.meta, ask.demand, standing, (now, &mut ThreadDice)) {
            Verdict::Serve => {
                let why = (!entry.meta.is_fresh(now)).then_some(Why::Stale);
                Look::Served(Obtained { entry, via: Via::Hit, why })
            }
            verdict => {
                // What a purge has removed is gone: it is not asked about, and not revived.
                let key = selection_of(ask, &entry);
                let prior = (standing != Standing::Gone).then_some(entry);
                Look::Wanting(Wanting { verdict, prior, key })
            }
        }
    }

    fn standing(&self, key: KeyRef<'_>, entry: &Entry) -> Standing {
        let unharmed = if entry.softened { Standing::Softened } else { Standing::Good };
        if entry.meta.position >= self.position() {
            return unharmed;
        }
        match self.purges.read().standing(key, &entry.meta) {
            Standing::Good => unharmed,
            reached => reached,
        }
    }

    /// Loads what a look found wanting; at once, or behind an answer that may be served meanwhile.
    ///
    /// # Errors
    /// If nothing usable is at hand and the load fails.
    pub async fn fetch<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        wanting: Wanting,
        load: L,
    ) -> Result<Obtained, LoadError> {
        match (wanting.verdict, wanting.prior.clone()) {
            (Verdict::ServeThenRefresh(why), Some(entry)) => {
                // A refresh is of use to others only; where nothing may be kept, it is of none.
                if !ask.demand.only_if_cached && !ask.demand.no_store {
                    self.refresh(ask, wanting, load);
                }
                Ok(Obtained { entry, via: Via::Refreshing, why: Some(why) })
            }
            // RFC 9111 section 5.2.1.7.
            _ if ask.demand.only_if_cached => Err(LoadError::NotCached),
            _ => self.board_or_go_alone(ask, wanting, load).await,
        }
    }

    async fn board_or_go_alone<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        mut wanting: Wanting,
        load: L,
    ) -> Result<Obtained, LoadError> {
        let arrival = Arrival { newest: self.flights.newest(), position: self.position() };
        let mut passed_over = None;
        for _ in 0..ROUNDS_MAX {
            if let Some(why) = self.must_go_alone(ask) {
                return self.go_alone(ask, (wanting, why), load).await;
            }
            let boarded = match self.board(ask, &wanting, passed_over.as_ref()) {
                Boarding::Lead(seat) => Some(seat),
                Boarding::Follow(mut follower) => {
                    let landed = (&mut follower).await;
                    let flight = follower.flight();
                    let shared = self.share(ask, &mut wanting, (landed, arrival));
                    if let Some(answer) = shared {
                        return answer;
                    }
                    passed_over = Some(flight.clone());
                    None
                }
            };
            match (self.look_again(ask, &mut wanting, arrival), boarded) {
                (Again::Found(obtained), seat) => {
                    if let Some(seat) = seat {
                        let entry = obtained.entry.clone();
                        let selection = selection_of(ask, &entry);
                        seat.land(Landed::Shared(entry, selection));
                    }
                    return Ok(obtained);
                }
                (Again::Wanting, Some(seat)) => {
                    return self.depart(ask, (seat, Keep::of(ask), wanting), load).await;
                }
                // The next round boards again; a seat for what turned out to be another key is
                // given up.
                (Again::Wanting, None) | (Again::Elsewhere, _) => {}
            }
        }
        self.go_alone(ask, (wanting, Why::NotShareable), load).await
    }

    /// Looks once more.
    ///
    /// A follower does, since what it waited for was not for it. A leader does, in L1 only, since
    /// a flight may have landed between its look and its boarding:
    ///
    /// 1. A: looks (miss)   B: looks (miss)   A: boards, loads, stores, leaves
    /// 2. B: boards — and would load again.
    fn look_again(&self, ask: &Ask<'_>, wanting: &mut Wanting, arrival: Arrival) -> Again {
        let why = Some(wanting.why());
        match self.look(ask) {
            Look::Served(obtained) => {
                Again::Found(Obtained { via: Via::Followed, why, ..obtained })
            }
            Look::Wanting(Wanting {
                verdict: Verdict::ServeThenRefresh(_),
                prior: Some(entry),
                ..
            }) => Again::Found(Obtained { entry, via: Via::Followed, why }),
            // A caller with a demand of its own may find that a flight has come and gone which
            // departed after its arrival.
            Look::Wanting(Wanting { prior: Some(entry), .. })
                if entry.flight > arrival.newest && self.is_for(ask, &entry, arrival) =>
            {
                Again::Found(Obtained { entry, via: Via::Followed, why })
            }
            Look::Wanting(again) => {
                let elsewhere = again.key.is_some() && again.key != wanting.key;
                let key = again.key.or_else(|| wanting.key.take());
                *wanting = Wanting { key, ..again };
                if elsewhere { Again::Elsewhere } else { Again::Wanting }
            }
        }
    }

    fn must_go_alone(&self, ask: &Ask<'_>) -> Option<Why> {
        if ask.demand.no_store {
            return Some(Why::RequestNoStore);
        }
        if !ask.coalesce {
            return Some(Why::Bypass);
        }
        let markers = &self.passes[ask.credentials as usize];
        markers.stands(ask.key, self.clock.now()).then_some(Why::PassMarked)
    }

    fn board(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        passed_over: Option<&Arc<Flight>>,
    ) -> Boarding {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        let boarder = Boarder { primary: ask.key, key, passed_over };
        self.flights.board(boarder, || self.position())
    }

    /// What a landing means for one follower: an answer, an error, or nothing that it may use.
    fn share(
        &self,
        ask: &Ask<'_>,
        wanting: &mut Wanting,
        (landed, arrival): (Landed, Arrival),
    ) -> Option<Result<Obtained, LoadError>> {
        match landed {
            Landed::Shared(entry, selection) => {
                let mine = selection_of(ask, &entry);
                if mine != selection {
                    // All who select alike have learned the same key, and meet under it.
                    wanting.key = mine;
                    return None;
                }
                let why = Some(wanting.why());
                self.is_for(ask, &entry, arrival).then_some(Ok(Obtained {
                    entry,
                    via: Via::Followed,
                    why,
                }))
            }
            Landed::Failed(error) => Some(self.fall_back(ask, wanting, error)),
            Landed::Broken(Some(error)) => Some(self.fall_back(ask, wanting, error)),
            Landed::Broken(None) => self.fallback(ask, wanting).map(Ok),
            Landed::Private | Landed::Abandoned => None,
        }
    }

    /// Whether an entry will do that was brought while the caller waited. If its flight departed
    /// after the caller had come, it is as good as a load of its own, whatever age or validation
    /// is demanded. If it departed before a purge, it is not for those who came after the purge.
    fn is_for(&self, ask: &Ask<'_>, entry: &Entry, arrival: Arrival) -> bool {
        let relaxed = Demand::default();
        let demand = if entry.flight > arrival.newest { &relaxed } else { ask.demand };
        let standing = if entry.meta.position >= arrival.position {
            Standing::Good
        } else {
            self.standing(ask.key, entry)
        };
        suits((&entry.meta, standing), demand, self.clock.now())
    }

    /// Loads for this caller alone; what comes is still stored where it may be.
    async fn go_alone<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (mut wanting, why): (Wanting, Why),
        load: L,
    ) -> Result<Obtained, LoadError> {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        let seat = self.flights.alone(ask.key, key, || self.position());
        // A purge may have come since the look, when nothing was on the board for it to cut: what
        // it removed must not be asked about, or a 304 would revive it.
        if let Look::Wanting(again) = self.look(ask) {
            wanting.prior = again.prior;
        }
        let keep = Keep::of(ask);
        let keep = if why == Why::PassMarked { keep.passing() } else { keep };
        let obtained = self.depart(ask, (seat, keep, wanting), load).await?;
        let why = if obtained.via == Via::Fallback { obtained.why } else { Some(why) };
        Ok(Obtained { why, ..obtained })
    }

    async fn depart<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (seat, keep, wanting): (Seat, Keep, Wanting),
        load: L,
    ) -> Result<Obtained, LoadError> {
        let (tell, told) = oneshot::channel();
        let prior = wanting.prior.clone();
        tokio::spawn(self.clone().fly((seat, keep, Some(tell)), prior, load));
        let why = Some(wanting.why());
        match told.await {
            Ok(Told::Shared { entry, via }) => Ok(Obtained { entry, via, why }),
            Ok(Told::Alone(entry)) => Ok(Obtained { entry, via: Via::Passed, why }),
            Ok(Told::Broken(entry)) => {
                let passed = Obtained { entry, via: Via::Passed, why };
                Ok(self.fallback(ask, &wanting).unwrap_or(passed))
            }
            Ok(Told::Failed(error)) => self.fall_back(ask, &wanting, error),
            Err(_) => {
                let ended = LoadError::Panicked("its task was ended".into());
                self.fall_back(ask, &wanting, ended)
            }
        }
    }

    /// What is stored, if it may be served now that the load has failed; else the error.
    fn fall_back(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        error: LoadError,
    ) -> Result<Obtained, LoadError> {
        self.fallback(ask, wanting).ok_or(error)
    }

    /// What was at hand before the load; or what is now, since the walk down the lower tiers may
    /// have brought it.
    fn fallback(&self, ask: &Ask<'_>, wanting: &Wanting) -> Option<Obtained> {
        let now = self.clock.now();
        let before = wanting.fallback(now);
        let entry = before.or_else(|| match self.look(ask) {
            Look::Served(obtained) => Some(obtained.entry),
            Look::Wanting(again) => again.fallback(now),
        })?;
        Some(Obtained { entry, via: Via::Fallback, why: Some(Why::LoadFailed) })
    }

    /// Refreshes behind an answer; one flight per key, and a bound on all of them.
    fn refresh<L: Load>(self: &Arc<Self>, ask: &Ask<'_>, wanting: Wanting, load: L) {
        let Some(refreshing) = Refreshing::begin(self, REFRESHES_MAX) else {
            self.observer.observe(Event::RefreshSkipped(ask.key));
            return;
        };
        let Boarding::Lead(seat) = self.board(ask, &wanting, None) else { return };
        // As for every leader: somebody may have refreshed it since our look, or purged it.
        match self.memory.find(ask.key, ask.select) {
            Found::Entry(current) if wanting.is_about(&current) => {}
            Found::Entry(current) => {
                let selection = selection_of(ask, &current);
                seat.land(Landed::Shared(current, selection));
                return;
            }
            Found::NoVariant(_) | Found::Nothing => return,
        }
        let flight = self.clone().fly((seat, Keep::refreshing(ask), None), wanting.prior, load);
        tokio::spawn(async move {
            flight.await;
            drop(refreshing);
        });
    }
}

impl Look {
    const fn wanting(why: Why, key: Option<Key>) -> Self {
        let verdict = Verdict::Load { why, may_fall_back: false };
        Self::Wanting(Wanting { verdict, prior: None, key })
    }
}

/// The values of an entry's selecting fields in this request, as a key; nothing if it has no
/// variants.
fn selection_of(ask: &Ask<'_>, entry: &Entry) -> Option<Key> {
    selection(ask.key, ask.select, entry)
}

/// See [`selection_of`].
pub(crate) fn selection(key: KeyRef<'_>, select: &dyn Select, entry: &Entry) -> Option<Key> {
    entry.meta.vary.as_ref().map(|vary| boarded_by(key, select, vary))
}

/// What the flights of one variant are boarded by. It does not depend on the generation that is
/// stored: those who learn of the variants from an answer that is still on its way, and those who
/// find them stored, must meet.
fn boarded_by(primary: KeyRef<'_>, select: &dyn Select, vary: &Vary) -> Key {
    key::variant(primary, 0, selected(vary, select)).borrowed().to_key()
}

/// Whether an entry may be given to somebody with this demand who has waited for it.
pub(crate) fn suits((meta, standing): (&Meta, Standing), demand: &Demand, now: Timestamp) -> bool {
    let verdict = judge(meta, demand, standing, (now, &mut NoDice));
    matches!(verdict, Verdict::Serve | Verdict::ServeThenRefresh(_))
}

//! The story of one demand: look, judge, board, wait or lead, and go.
//!
//! ```text
//! ask ──► look ──► verdict ─┬─ serve ─────────────────────────────► obtained
//!                           ├─ serve, and let one flight refresh ──► obtained
//!                           └─ load ──► board ─┬─ follow ──► landed ──► obtained, or look again
//!                                              └─ lead ──► a task of its own ──► obtained
//! ```
//!
//! The way back from `landed` to `look` is the only loop. It is bounded by [`ROUNDS_MAX`]; then
//! the caller goes alone.

use std::sync::Arc;

use forebay_core::judge::NoDice;
use forebay_core::{Demand, Key, KeyRef, Standing, Verdict, Why, judge, key, may_fall_back};
use tokio::sync::oneshot;

use crate::Engine;
use crate::clock::ThreadDice;
use crate::entry::Entry;
use crate::event::Event;
use crate::flight::{Boarding, Landed, Seat};
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
    /// The variant's key, where it is known.
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

    pub(crate) fn prior(&self) -> Option<&Arc<Entry>> {
        self.prior.as_ref()
    }
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
        let (entry, key) = match self.memory.find(ask.key, ask.select) {
            Found::Entry(entry, key) => (entry, key),
            Found::NoVariant(key) => return Look::wanting(Why::VaryMiss, Some(key)),
            Found::Nothing => return Look::wanting(Why::UriMiss, None),
        };
        let now = self.clock.now();
        let standing = self.standing(ask.key, &entry);
        match judge(&entry.meta, ask.demand, standing, (now, &mut ThreadDice)) {
            Verdict::Serve => {
                let why = (!entry.meta.is_fresh(now)).then_some(Why::Stale);
                Look::Served(Obtained { entry, via: Via::Hit, why })
            }
            verdict => Look::Wanting(Wanting { verdict, prior: Some(entry), key }),
        }
    }

    fn standing(&self, key: KeyRef<'_>, entry: &Entry) -> Standing {
        if entry.meta.position >= self.position() {
            return Standing::Good;
        }
        self.purges.read().standing(key, &entry.meta)
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
                if !ask.demand.only_if_cached {
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
        let arrived = self.flights.newest();
        let first_why = wanting.why();
        for _ in 0..ROUNDS_MAX {
            if let Some(why) = self.must_go_alone(ask) {
                return self.go_alone(ask, (wanting, why), load).await;
            }
            match self.board(ask, &wanting) {
                Boarding::Lead(seat) => return self.lead(ask, (seat, wanting), load).await,
                Boarding::Follow(mut follower) => {
                    let landed = (&mut follower).await;
                    let shares_departure = follower.flight().departed_after(arrived);
                    let served = self.share(ask, &wanting, (landed, shares_departure));
                    if let Some(answer) = served {
                        return answer;
                    }
                }
            }
            match self.look(ask) {
                Look::Served(obtained) => {
                    return Ok(Obtained { via: Via::Followed, why: Some(first_why), ..obtained });
                }
                Look::Wanting(again) => wanting = again,
            }
        }
        self.go_alone(ask, (wanting, Why::NotShareable), load).await
    }

    fn must_go_alone(&self, ask: &Ask<'_>) -> Option<Why> {
        if ask.demand.no_store {
            return Some(Why::RequestNoStore);
        }
        let markers = &self.passes[ask.credentials as usize];
        markers.stands(ask.key, self.clock.now()).then_some(Why::PassMarked)
    }

    fn board(&self, ask: &Ask<'_>, wanting: &Wanting) -> Boarding {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        self.flights.board(ask.key, key, || self.position())
    }

    /// What a landing means for one follower: an answer, an error, or nothing that it may use.
    fn share(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        (landed, shares_departure): (Landed, bool),
    ) -> Option<Result<Obtained, LoadError>> {
        let why = Some(wanting.why());
        match landed {
            Landed::Shared(entry, selection) => {
                let mine = selection_of(ask, &entry);
                let fits = mine == selection && self.suits(ask.demand, &entry, shares_departure);
                fits.then_some(Ok(Obtained { entry, via: Via::Followed, why }))
            }
            Landed::Failed(error) => Some(self.fall_back(wanting, error)),
            Landed::Broken => self.fallback(wanting).map(Ok),
            Landed::Private | Landed::Abandoned => None,
        }
    }

    /// Whether a landed entry will do. A flight that departed after the caller had come is as
    /// good as a load of its own, whatever age or validation it demands.
    fn suits(&self, demand: &Demand, entry: &Entry, shares_departure: bool) -> bool {
        let relaxed = Demand { beta: 0.0, ..Demand::default() };
        let demand = if shares_departure { &relaxed } else { demand };
        let time = (self.clock.now(), &mut NoDice);
        let verdict = judge(&entry.meta, demand, Standing::Good, time);
        matches!(verdict, Verdict::Serve | Verdict::ServeThenRefresh(_))
    }

    async fn lead<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (seat, mut wanting): (Seat, Wanting),
        load: L,
    ) -> Result<Obtained, LoadError> {
        // A flight may have landed between our look and our boarding:
        //   A: looks (miss)   B: looks (miss)   A: boards, loads, stores, leaves
        //   B: boards — and would load again.
        // So the leader looks once more, in L1 only, before it departs.
        match self.look(ask) {
            Look::Served(obtained) => {
                seat.land(Landed::Shared(
                    obtained.entry.clone(),
                    selection_of(ask, &obtained.entry),
                ));
                return Ok(Obtained { via: Via::Followed, why: Some(wanting.why()), ..obtained });
            }
            Look::Wanting(again) if again.prior.is_some() => wanting.prior = again.prior,
            Look::Wanting(_) => {}
        }
        let why = wanting.why();
        self.depart(ask, (seat, wanting, why), load).await
    }

    /// Loads for this caller alone; what comes is still stored where it may be.
    async fn go_alone<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (wanting, why): (Wanting, Why),
        load: L,
    ) -> Result<Obtained, LoadError> {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        let seat = self.flights.alone(ask.key, key, || self.position());
        self.depart(ask, (seat, wanting, why), load).await
    }

    async fn depart<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (seat, wanting, why): (Seat, Wanting, Why),
        load: L,
    ) -> Result<Obtained, LoadError> {
        let (tell, told) = oneshot::channel();
        let keep = Keep::of(ask);
        let prior = wanting.prior.clone();
        tokio::spawn(self.clone().fly((seat, keep, Some(tell)), prior, load));
        let why = Some(why);
        match told.await {
            Ok(Told::Shared { entry, via }) => Ok(Obtained { entry, via, why }),
            Ok(Told::Alone(entry)) => Ok(Obtained { entry, via: Via::Passed, why }),
            Ok(Told::Broken(entry)) => {
                let passed = Obtained { entry, via: Via::Passed, why };
                Ok(self.fallback(&wanting).unwrap_or(passed))
            }
            Ok(Told::Failed(error)) => self.fall_back(&wanting, error),
            Err(_) => self.fall_back(&wanting, LoadError::Panicked("its task was ended".into())),
        }
    }

    /// What is stored, if it may be served now that the load has failed; else the error.
    fn fall_back(&self, wanting: &Wanting, error: LoadError) -> Result<Obtained, LoadError> {
        self.fallback(wanting).ok_or(error)
    }

    fn fallback(&self, wanting: &Wanting) -> Option<Obtained> {
        let Verdict::Load { may_fall_back: true, .. } = wanting.verdict else { return None };
        let entry = wanting.prior.clone()?;
        // The window may have closed while the load was failing.
        let open = may_fall_back(&entry.meta, self.clock.now());
        open.then_some(Obtained { entry, via: Via::Fallback, why: Some(Why::LoadFailed) })
    }

    /// Refreshes behind an answer; one flight per key, and a bound on all of them.
    fn refresh<L: Load>(self: &Arc<Self>, ask: &Ask<'_>, wanting: Wanting, load: L) {
        let Some(refreshing) = Refreshing::begin(self, REFRESHES_MAX) else {
            self.observer.observe(Event::RefreshSkipped(ask.key));
            return;
        };
        let Boarding::Lead(seat) = self.board(ask, &wanting) else { return };
        // As in `lead`: somebody may have refreshed it since our look.
        if let Found::Entry(current, _) = self.memory.find(ask.key, ask.select)
            && !wanting.prior().is_some_and(|prior| Arc::ptr_eq(prior, &current))
        {
            let selection = selection_of(ask, &current);
            seat.land(Landed::Shared(current, selection));
            return;
        }
        let flight = self.clone().fly((seat, Keep::of(ask), None), wanting.prior, load);
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
    let vary = entry.meta.vary.as_ref()?;
    Some(key::variant(key, 0, selected(vary, select)).borrowed().to_key())
}

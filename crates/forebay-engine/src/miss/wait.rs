//! Waiting for what is not at hand: boarding, following, leading, going alone, and what a caller
//! is told when that takes long or comes to nothing.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use forebay_core::{Key, OriginFailure, Verdict, Why};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::fill::cluster_lease::Asking;
use crate::fill::lower_lookup::{Purpose, Sought};
use crate::fill::{Keep, Told};
use crate::flight::load::{Load, LoadError};
use crate::flight::pass_markers::Marked;
use crate::flight::via::Via;
use crate::flight::{Boarder, Boarding, Flight, Landed, Seat};
use crate::lookup::{Arrival, Ask, Coalesce, Look, Obtained, Wanting, selection_of};
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::runtime::sync::timeout;

/// How often a caller may find that what it waited for is not for it, before it goes alone: a
/// cold key costs one round, a foreign variant another, an abandoned flight a third.
const ROUNDS_MAX: usize = 3;

/// What somebody is told for whom there is no room behind a flight.
const FULL: &str = "as many wait for this answer already as may";

/// What one more look found.
enum Again {
    /// What will do; somebody else brought it.
    Found(Obtained),
    /// Still wanting.
    Wanting,
    /// Still wanting, and to be boarded under another key.
    Elsewhere,
}

/// How a wait ended.
enum Waited<T> {
    Landed(T),
    /// It took long, and this was at hand.
    Stale(Obtained),
}

/// What came of a flight for its leader's caller.
enum Departed<L> {
    Answered(Result<Obtained, LoadError>),
    /// See [`Told::Back`].
    Back(L, Option<Why>),
}

/// Rules of a load for this request.
pub(super) fn keep_of(ask: &Ask<'_>, wanting: &Wanting) -> Keep {
    let store = !ask.demand.no_store;
    let yields = ask.coalesce != Coalesce::Nowhere && wanting.why() != Why::Partial;
    let sought = Sought { demand: ask.demand.clone(), purpose: Purpose::Answer };
    let asking = match ask.coalesce {
        Coalesce::Everywhere => Asking::Waits,
        Coalesce::Here | Coalesce::Nowhere => Asking::Once,
    };
    let credentials = ask.credentials;
    Keep { store, credentials, sought: store.then_some(sought), asking, yields }
}

/// What is told of a flight whose task was ended.
fn gone() -> LoadError {
    LoadError::Panicked("its task was ended".into())
}

impl Engine {
    /// Boards until something comes of it, or goes alone.
    pub(crate) async fn board_or_go_alone<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        mut wanting: Wanting,
        mut load: L,
    ) -> Result<Obtained, LoadError> {
        let arrival = self.arrival();
        let mut passed_over = None;
        for _ in 0..ROUNDS_MAX {
            if let Some(why) = self.must_go_alone(ask) {
                return self.go_alone(ask, (wanting, why), load).await;
            }
            if let Some(answer) = self.held_back(ask, &wanting) {
                return answer;
            }
            let boarded = match self.board(ask, &wanting, passed_over.as_ref()) {
                Boarding::Lead(seat) => Some(seat),
                Boarding::Follow(mut follower) => {
                    let flight = follower.flight().clone();
                    match self.patiently((ask, &wanting), &flight, &mut follower).await {
                        Waited::Stale(obtained) => return Ok(obtained),
                        // A lookup that found nothing does not answer a caller that may load.
                        Waited::Landed(Landed::Failed(LoadError::NotCached))
                            if !load.only_looks() => {}
                        Waited::Landed(landed) => {
                            let shared = self.share(ask, &mut wanting, (landed, arrival));
                            if let Some(answer) = shared {
                                return answer;
                            }
                        }
                    }
                    passed_over = Some(flight);
                    None
                }
                Boarding::Full => {
                    return self.fall_back(ask, &wanting, LoadError::Overloaded(FULL));
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
                    match self.depart(ask, (seat, keep_of(ask, &wanting), &wanting), load).await {
                        Departed::Answered(answer) => return answer,
                        Departed::Back(back, Some(why)) => {
                            return self.go_alone(ask, (wanting, why), back).await;
                        }
                        Departed::Back(back, None) => load = back,
                    }
                    if let Again::Found(found) = self.look_again(ask, &mut wanting, arrival) {
                        return Ok(found);
                    }
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
            Look::Served(Obtained { entry, .. })
            | Look::Wanting(Wanting { prior: Some(entry), .. })
                if wanting.is_lacking(&entry) =>
            {
                Again::Wanting
            }
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
        if ask.coalesce == Coalesce::Nowhere {
            return Some(Why::Bypass);
        }
        let markers = &self.passes[ask.credentials as usize];
        markers.standing(ask.key, self.clock.now()).map(|_| Why::PassMarked)
    }

    /// What a load that failed a moment ago means for a caller: what is stale is served, and
    /// where nothing is, nobody knocks at a door that does not open. An error in the origin's own
    /// words is never repeated from memory: only its origin may say for how long it holds.
    fn held_back(&self, ask: &Ask<'_>, wanting: &Wanting) -> Option<Result<Obtained, LoadError>> {
        let failed = self.recent_failure(ask, wanting)?;
        let stale = self.fallback(ask, wanting, (failed.trouble(ask.demand), Why::BackOff));
        let answer = match (stale, failed) {
            (Some(obtained), _) => Ok(obtained),
            (None, LoadError::Answered(_)) => return None,
            (None, failed) => Err(LoadError::RecentlyFailed(Arc::new(failed))),
        };
        self.observer.observe(Event::HeldBack(ask.key));
        Some(answer)
    }

    /// What the last load for this key failed by, while nothing is to be loaded for it.
    #[must_use]
    pub fn recent_failure(&self, ask: &Ask<'_>, wanting: &Wanting) -> Option<LoadError> {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        self.failures[ask.credentials as usize].recent(key, self.clock.now())
    }

    /// Waits for a landing; no longer than the soft timeout of the flight, or than it may wait for
    /// another instance, if something stale may be served instead. The flight goes on.
    async fn patiently<T>(
        &self,
        (ask, wanting): (&Ask<'_>, &Wanting),
        flight: &Flight,
        landing: impl Future<Output = T>,
    ) -> Waited<T> {
        let trouble = OriginFailure::Unreachable(ask.demand.stale_if_unreachable);
        let at_hand = || wanting.fallback(trouble, self.clock.now()).is_some();
        let soft = ask.demand.soft_timeout.map(|soft| (soft, false));
        let elsewhere = self.joined.as_ref().map(|joined| (joined.wait_max, true));
        if (soft.is_none() && elsewhere.is_none()) || !at_hand() {
            return Waited::Landed(landing.await);
        }
        let mut patiences: SmallVec<[_; 2]> = soft.into_iter().chain(elsewhere).collect();
        patiences.sort_unstable();
        let mut landing = pin!(landing);
        for (patience, is_for_others) in patiences {
            let passed = self.clock.exact().saturating_sub(flight.boarded);
            if let Ok(landed) = timeout(patience.saturating_sub(passed), landing.as_mut()).await {
                return Waited::Landed(landed);
            }
            if is_for_others && !flight.waits_elsewhere() {
                continue;
            }
            if let Some(obtained) = self.fallback(ask, wanting, (trouble, Why::SoftTimeout)) {
                self.observer.observe(Event::SoftTimeout(ask.key));
                return Waited::Stale(obtained);
            }
        }
        Waited::Landed(landing.await)
    }

    pub(crate) fn board(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        passed_over: Option<&Arc<Flight>>,
    ) -> Boarding {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        let now = self.clock.exact();
        let boarder = Boarder { primary: ask.key, key, passed_over, now };
        self.flights.board(boarder, || self.log.position())
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
            Landed::Broken(None) => {
                self.fallback(ask, wanting, (OriginFailure::Failed, Why::LoadFailed)).map(Ok)
            }
            Landed::Private | Landed::Abandoned => None,
        }
    }

    /// Loads for this caller alone; what comes is still stored where it may be.
    async fn go_alone<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (mut wanting, why): (Wanting, Why),
        load: L,
    ) -> Result<Obtained, LoadError> {
        let key = wanting.key.as_ref().map_or(ask.key, Key::borrowed);
        let now = self.clock.exact();
        let boarder = Boarder { primary: ask.key, key, passed_over: None, now };
        let seat = self.flights.alone(boarder, || self.log.position());
        // A purge may have come since the look, when nothing was on the board for it to cut: what
        // it removed must not be asked about, or a 304 would revive it. What stands there now may
        // be, also if it would do: this caller goes anyway.
        wanting.prior = match self.look(ask) {
            Look::Wanting(again) => again.prior,
            Look::Served(obtained) => Some(obtained.entry),
        };
        let keep = keep_of(ask, &wanting).alone();
        // What is never fresh stands in a tier all the same, and its origin can be asked about it.
        let markers = &self.passes[ask.credentials as usize];
        let is_unfresh = markers.standing(ask.key, self.clock.now()) == Some(Marked::Unfresh);
        let is_sought = is_unfresh && wanting.prior.is_none();
        let keep = if why == Why::PassMarked && !is_sought { keep.passing() } else { keep };
        let obtained = match self.depart(ask, (seat, keep, &wanting), load).await {
            Departed::Answered(answer) => answer?,
            // It asks no other instance.
            Departed::Back(..) => return self.fall_back(ask, &wanting, gone()),
        };
        let why = if obtained.via == Via::Fallback { obtained.why } else { Some(why) };
        Ok(Obtained { why, ..obtained })
    }

    async fn depart<L: Load>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        (seat, keep, wanting): (Seat, Keep, &Wanting),
        load: L,
    ) -> Departed<L> {
        let (tell, told) = oneshot::channel();
        let prior = wanting.prior.clone();
        let flight = seat.flight().clone();
        load.departs();
        spawn(self.clone().fly((seat, keep, Some(tell)), prior, load));
        let told = match self.patiently((ask, wanting), &flight, told).await {
            Waited::Landed(told) => told,
            Waited::Stale(obtained) => return Departed::Answered(Ok(obtained)),
        };
        match told.unwrap_or_else(|_| Told::Failed(gone())) {
            Told::Back(load, why) => Departed::Back(load, why),
            told => Departed::Answered(self.answer(ask, wanting, told)),
        }
    }

    /// What a flight has told its leader's caller.
    fn answer<L>(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        told: Told<L>,
    ) -> Result<Obtained, LoadError> {
        let why = Some(wanting.why());
        match told {
            Told::Shared { entry, via } => Ok(Obtained { entry, via, why }),
            Told::Alone(entry) => Ok(Obtained { entry, via: Via::Passed, why }),
            Told::Broken(entry) => {
                let passed = Obtained { entry, via: Via::Passed, why };
                let stale = self.fallback(ask, wanting, (OriginFailure::Failed, Why::LoadFailed));
                Ok(stale.unwrap_or(passed))
            }
            Told::Failed(error) => self.fall_back(ask, wanting, error),
            Told::Back(..) => self.fall_back(ask, wanting, gone()),
        }
    }

    /// What is stored, if it may be served now that the load has failed; else the error.
    fn fall_back(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        error: LoadError,
    ) -> Result<Obtained, LoadError> {
        let trouble = error.trouble(ask.demand);
        self.fallback(ask, wanting, (trouble, Why::LoadFailed)).ok_or(error)
    }

    /// What was at hand before the load; or what is now, since the walk down the lower tiers may
    /// have brought it.
    fn fallback(
        &self,
        ask: &Ask<'_>,
        wanting: &Wanting,
        (trouble, why): (OriginFailure, Why),
    ) -> Option<Obtained> {
        let now = self.clock.now();
        let entry = wanting.fallback(trouble, now).or_else(|| match self.look(ask) {
            Look::Served(obtained) => Some(obtained.entry),
            Look::Wanting(again) => again.fallback(trouble, now),
        })?;
        Some(Obtained { entry, via: Via::Fallback, why: Some(why) })
    }
}

//! Requests that memory did not answer: each follows a flight, leads one, or loads alone.
//!
//! ```text
//! Miss::load ─┬─ refresh in the background ─────────► stored entry
//!             └─ join ─┬─ follow ──► result ─┬──────► answer
//!                      │                     └──────► look again, then join again
//!                      └─ lead ──► a task of its own, see `fill` ──► answer
//! ```
//!
//! A load whose answer no other caller may get runs in the task of its caller, if its front end permits
//! it (`driven`).
//!
//! The way from a result back to `join` is the only loop. It is bounded; then the caller loads
//! alone. This folder uses `lookup`, `fill`, `flight`, `engine` and `runtime`; it never sees a tier,
//! a lease or the body of an entry.

mod driven;
mod forecast;
mod refresh;
mod wait;

use std::sync::Arc;

use forebay_core::{Verdict, Why};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::fill::cluster_lease::LeaseUse;
use crate::fill::lower_lookup::{Purpose, TierDemand};
use crate::fill::{FillRules, LeaderResult, Leading};
use crate::flight::load::{Load, LoadError, LoadSource, UnsharedLoad};
use crate::flight::pass_markers::Marked;
use crate::flight::source::Source;
use crate::flight::{Flight, FlightResult, JoinRequest, LeaderGuard, Role};
use crate::lookup::{Arrival, Coalesce, Lookup, LookupResult, Miss, Outcome};
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use driven::DrivenLoad;
pub use forecast::{Forecast, RunningLoad};
use wait::Waited;

/// Maximum number of flights that a caller joins before it loads alone: a cold key costs one, a
/// foreign variant another, an abandoned flight a third.
const ROUNDS_MAX: usize = 3;

/// Cause of the error of a caller that no flight accepts.
const FULL: &str = "too many requests wait for this key";

/// Reason for which a caller loads alone.
#[derive(Clone, Copy)]
struct Alone {
    why: Why,
    /// Pass marker of the key, if that is the reason.
    marked: Option<Marked>,
}

impl Alone {
    const fn because(why: Why) -> Self {
        Self { why, marked: None }
    }

    /// A front end sends a request before its load only if the key has a pass marker.
    fn if_sent(load: &impl Load) -> Option<Self> {
        let alone = Self { why: Why::PassMarked, marked: Some(Marked::Private) };
        load.options().sent_ago.map(|_| alone)
    }
}

/// Result of a second lookup, after joining or following a flight.
enum Again {
    /// An entry that answers the request; another load brought it.
    Found(Outcome),
    /// No such entry.
    Missing,
    /// No such entry, and another flight has to be joined, because the variants are known now.
    OtherKey,
}

/// Result of leading a flight.
enum Led<L> {
    Answer(Result<Outcome, LoadError>),
    /// See [`LeaderResult::Retry`].
    Retry(L, Option<Why>),
}

impl Miss {
    /// Answers a request that [`Engine::lookup`] did not answer: by a load, by the load of another
    /// caller, or with a stale entry if the load is slow or fails. If the stored entry answers the
    /// request, it is returned at once, and the load runs in the background.
    ///
    /// # Errors
    /// [`LoadError`] if the load fails or does not start, and no stored entry may be served.
    pub async fn load<L: Load>(
        self,
        engine: &Arc<Engine>,
        lookup: &Lookup<'_>,
        load: L,
    ) -> Result<Outcome, LoadError> {
        match (self.verdict, self.prior.clone()) {
            (Verdict::ServeThenRefresh(why), Some(entry)) => {
                // A refresh serves later requests only; without storing it is useless.
                if !lookup.demand.only_if_cached && !lookup.demand.no_store {
                    engine.refresh(lookup, self, load);
                }
                Ok(Outcome { entry, source: Source::Refreshing, why: Some(why) })
            }
            // RFC 9111 section 5.2.1.7.
            _ if lookup.demand.only_if_cached => Err(LoadError::NotCached),
            _ => engine.join_or_load_alone(lookup, self, load).await,
        }
    }

    /// Returns the rules of a load for this request.
    fn rules(&self, lookup: &Lookup<'_>) -> FillRules {
        let store = !lookup.demand.no_store;
        let demand = TierDemand { demand: lookup.demand.clone(), purpose: Purpose::Answer };
        let lease_use = match lookup.coalesce {
            Coalesce::Cluster => LeaseUse::Wait,
            Coalesce::Instance | Coalesce::Never => LeaseUse::Once,
        };
        FillRules {
            store,
            credentials: lookup.credentials,
            tiers: store.then_some(demand),
            lease_use,
            yields: lookup.coalesce != Coalesce::Never && self.why() != Why::Partial,
        }
    }
}

impl Engine {
    /// Joins flights until one answers the request, or loads alone.
    async fn join_or_load_alone<L: Load>(
        self: &Arc<Self>,
        lookup: &Lookup<'_>,
        mut miss: Miss,
        mut load: L,
    ) -> Result<Outcome, LoadError> {
        let arrival = self.arrival();
        let mut passed_over = None;
        for _ in 0..ROUNDS_MAX {
            if let Some(alone) = Alone::if_sent(&load).or_else(|| self.must_load_alone(lookup)) {
                return self.load_alone(lookup, miss, alone, load).await;
            }
            if let Some(answer) = self.back_off(lookup, &miss) {
                return answer;
            }
            let request = self.join_request(lookup, &miss, passed_over.as_ref());
            let leader = match self.flights.join(request, || self.log.position()) {
                Role::Lead(leader) => Some(leader),
                Role::Follow(mut follower) => {
                    let flight = follower.flight().clone();
                    match self.wait(lookup, &miss, &flight, &mut follower).await {
                        Waited::Stale(outcome) => return Ok(outcome),
                        // A lookup that found nothing does not answer a caller that may load.
                        Waited::Ended(FlightResult::Failed(LoadError::NotCached))
                            if load.options().source != LoadSource::LowerTiers => {}
                        Waited::Ended(result) => {
                            if let Some(answer) = self.share(lookup, &mut miss, result, arrival) {
                                return answer;
                            }
                        }
                    }
                    passed_over = Some(flight);
                    None
                }
                Role::Full => {
                    return self.fall_back(lookup, &miss, LoadError::Overloaded(FULL));
                }
            };
            match (self.lookup_again(lookup, &mut miss, arrival), leader) {
                (Again::Found(outcome), leader) => {
                    if let Some(leader) = leader {
                        leader.announce(lookup.shared(&outcome.entry));
                    }
                    return Ok(outcome);
                }
                (Again::Missing, Some(leader)) => {
                    let rules = miss.rules(lookup);
                    let (leading, result) = self.leading(leader, rules, load);
                    match self.lead(lookup, &miss, leading, result).await {
                        Led::Answer(answer) => return answer,
                        Led::Retry(back, Some(why)) => {
                            let alone = self.alone(lookup, why);
                            return self.load_alone(lookup, miss, alone, back).await;
                        }
                        Led::Retry(back, None) => load = back,
                    }
                    if let Again::Found(found) = self.lookup_again(lookup, &mut miss, arrival) {
                        return Ok(found);
                    }
                }
                // The next round joins again; the lead of a flight with another key is given up.
                (Again::Missing, None) | (Again::OtherKey, _) => {}
            }
        }
        self.load_alone(lookup, miss, Alone::because(Why::NotShareable), load).await
    }

    /// Looks in memory once more.
    ///
    /// A follower does, because the result was not for it. A leader does, because a flight may have
    /// ended between its lookup and its join:
    ///
    /// 1. A: looks (miss)   B: looks (miss)   A: joins, loads, stores, leaves
    /// 2. B: joins — and would load again.
    fn lookup_again(&self, lookup: &Lookup<'_>, miss: &mut Miss, arrival: Arrival) -> Again {
        let why = Some(miss.why());
        let found = |entry| Again::Found(Outcome { entry, source: Source::Followed, why });
        match self.lookup(lookup) {
            LookupResult::Hit(Outcome { entry, .. })
            | LookupResult::Miss(Miss { prior: Some(entry), .. })
                if miss.is_unusable(&entry) =>
            {
                Again::Missing
            }
            LookupResult::Hit(outcome) => found(outcome.entry),
            LookupResult::Miss(Miss {
                verdict: Verdict::ServeThenRefresh(_),
                prior: Some(entry),
                ..
            }) => found(entry),
            // For a caller with a demand of its own, a load may have started and ended after its
            // arrival.
            LookupResult::Miss(Miss { prior: Some(entry), .. })
                if entry.flight() > arrival.newest && self.answers(lookup, &entry, arrival) =>
            {
                found(entry)
            }
            LookupResult::Miss(again) => {
                let is_other = again.flight_key.is_some() && again.flight_key != miss.flight_key;
                let flight_key = again.flight_key.or_else(|| miss.flight_key.take());
                *miss = Miss { verdict: again.verdict, prior: again.prior, flight_key };
                if is_other { Again::OtherKey } else { Again::Missing }
            }
        }
    }

    fn must_load_alone(&self, lookup: &Lookup<'_>) -> Option<Alone> {
        if lookup.demand.no_store {
            return Some(Alone::because(Why::RequestNoStore));
        }
        if lookup.coalesce == Coalesce::Never {
            return Some(Alone::because(Why::Bypass));
        }
        let marked = self.marked(lookup)?;
        Some(Alone { why: Why::PassMarked, marked: Some(marked) })
    }

    /// Returns a reason for which the caller loads alone, after a message of another instance.
    fn alone(&self, lookup: &Lookup<'_>, why: Why) -> Alone {
        let marked = || self.marked(lookup).unwrap_or(Marked::Private);
        Alone { why, marked: (why == Why::PassMarked).then(marked) }
    }

    fn marked(&self, lookup: &Lookup<'_>) -> Option<Marked> {
        let markers = &self.passes[lookup.credentials as usize];
        markers.get(lookup.key, self.clock.now())
    }

    /// Returns the request to join a flight, or to start one.
    fn join_request<'a>(
        &self,
        lookup: &Lookup<'a>,
        miss: &'a Miss,
        passed_over: Option<&'a Arc<Flight>>,
    ) -> JoinRequest<'a> {
        let (primary, key) = (lookup.key, miss.key_of_flight(lookup.key));
        JoinRequest { primary, key, passed_over, now: self.clock.exact() }
    }

    /// Loads for this caller alone. The answer is stored where that is allowed.
    async fn load_alone<L: Load>(
        self: &Arc<Self>,
        lookup: &Lookup<'_>,
        mut miss: Miss,
        alone: Alone,
        load: L,
    ) -> Result<Outcome, LoadError> {
        let Alone { why, marked } = alone;
        let request = self.join_request(lookup, &miss, None);
        let leader = self.flights.lead_alone(request, || self.log.position());
        // A purge may have come since the lookup, when the table had no flight that it could affect:
        // a removed entry must not be validated, or a 304 would restore it. The current entry may
        // be, even if it answers the request: this caller wants a load.
        miss.prior = match self.lookup(lookup) {
            LookupResult::Miss(again) => again.prior,
            LookupResult::Hit(outcome) => Some(outcome.entry),
        };
        let rules = miss.rules(lookup);
        // An answer that is never fresh is stored in lower tiers all the same, and can be validated.
        // Private answers are in no tier.
        let searches = match marked {
            None => true,
            Some(Marked::Unfresh) => miss.prior.is_none(),
            Some(Marked::Private) => false,
        };
        let tiers = rules.tiers.filter(|_| searches);
        let is_unshared = !rules.store || marked == Some(Marked::Private);
        let lease_use = match load.options().sent_ago {
            Some(_) => LeaseUse::Never,
            None => rules.lease_use.of_single(),
        };
        let rules = FillRules { tiers, lease_use, ..rules };
        let (leading, result) = self.leading(leader, rules, load);
        let led = match leading.options.unshared {
            UnsharedLoad::EndsWithCaller if is_unshared => {
                self.lead_here(lookup, &miss, leading, result).await
            }
            _ => self.lead(lookup, &miss, leading, result).await,
        };
        let outcome = match led {
            Led::Answer(answer) => answer?,
            // It waits for no other instance.
            Led::Retry(..) => return self.fall_back(lookup, &miss, task_ended()),
        };
        let why = if outcome.source == Source::Fallback { outcome.why } else { Some(why) };
        Ok(Outcome { why, ..outcome })
    }

    /// Loads in a task of its own, and waits for the answer.
    async fn lead<L: Load>(
        self: &Arc<Self>,
        lookup: &Lookup<'_>,
        miss: &Miss,
        leading: Leading<L>,
        result: oneshot::Receiver<LeaderResult<L>>,
    ) -> Led<L> {
        let flight = leading.leader.flight().clone();
        // The future is large, and the runtime would move it several times.
        spawn(Box::pin(leading.run(miss.prior.clone())));
        let waited = self.wait(lookup, miss, &flight, result).await;
        self.led(lookup, miss, waited)
    }

    /// Loads in the task of the caller. When the caller has its answer, the rest of the load gets a
    /// task of its own.
    async fn lead_here<L: Load>(
        self: &Arc<Self>,
        lookup: &Lookup<'_>,
        miss: &Miss,
        leading: Leading<L>,
        result: oneshot::Receiver<LeaderResult<L>>,
    ) -> Led<L> {
        let flight = leading.leader.flight().clone();
        let mut driven = DrivenLoad::new(leading.run(miss.prior.clone()), result);
        let waited = self.wait(lookup, miss, &flight, &mut driven).await;
        driven.continue_alone();
        self.led(lookup, miss, waited)
    }

    /// Returns the leader with its load, and the receiver of the result for the caller.
    fn leading<L: Load>(
        self: &Arc<Self>,
        leader: LeaderGuard,
        rules: FillRules,
        load: L,
    ) -> (Leading<L>, oneshot::Receiver<LeaderResult<L>>) {
        let (reply, result) = oneshot::channel();
        if let Some(part) = load.batch() {
            part.starts();
        }
        let (engine, options) = (self.clone(), load.options());
        (Leading { engine, leader, rules, load, options, reply: Some(reply) }, result)
    }

    /// Returns what the end of the wait for the own flight means for the caller.
    fn led<L>(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
        waited: Waited<Result<LeaderResult<L>, oneshot::error::RecvError>>,
    ) -> Led<L> {
        let result = match waited {
            Waited::Ended(result) => result.unwrap_or_else(|_| LeaderResult::Failed(task_ended())),
            Waited::Stale(outcome) => return Led::Answer(Ok(outcome)),
        };
        let why = Some(miss.why());
        Led::Answer(match result {
            LeaderResult::Shared { entry, source } => Ok(Outcome { entry, source, why }),
            LeaderResult::Private(entry) => Ok(Outcome { entry, source: Source::Passed, why }),
            LeaderResult::OriginError(entry) => {
                let passed = Outcome { entry, source: Source::Passed, why };
                Ok(self.fallback_after_error(lookup, miss).unwrap_or(passed))
            }
            LeaderResult::Failed(error) => self.fall_back(lookup, miss, error),
            LeaderResult::Retry(load, why) => return Led::Retry(load, why),
        })
    }

    /// Answers from the failure of a recent load during the back-off: with a stale entry, or with
    /// the error. An error response of the origin is not repeated: only its origin may say for how
    /// long it holds.
    fn back_off(&self, lookup: &Lookup<'_>, miss: &Miss) -> Option<Result<Outcome, LoadError>> {
        let answer = self.answer_in_back_off(lookup, miss)?;
        self.observer.observe(Event::BackingOff(lookup.key));
        Some(answer)
    }

    /// Returns the answer of [`back_off`](Self::back_off).
    fn answer_in_back_off(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
    ) -> Option<Result<Outcome, LoadError>> {
        let failed = self.recent_failure(lookup, miss)?;
        let stale = self.fallback(lookup, miss, failed.trouble(lookup.demand), Why::BackOff);
        match (stale, failed) {
            (Some(outcome), _) => Some(Ok(outcome)),
            (None, LoadError::Answered(_)) => None,
            (None, failed) => Some(Err(LoadError::RecentlyFailed(Arc::new(failed)))),
        }
    }

    /// Returns the error of the last load of this key while the engine starts no new load for it
    /// (back-off); otherwise `None`.
    #[must_use]
    pub fn recent_failure(&self, lookup: &Lookup<'_>, miss: &Miss) -> Option<LoadError> {
        let failures = &self.failures[lookup.credentials as usize];
        failures.recent(miss.key_of_flight(lookup.key), self.clock.now())
    }
}

/// Error of a flight whose task has ended early.
fn task_ended() -> LoadError {
    LoadError::Panicked("its task was ended before it had a result".into())
}

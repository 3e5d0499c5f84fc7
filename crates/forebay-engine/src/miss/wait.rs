//! Wait for a flight, and the answer that its result means: the entry, an error, or a stale entry if
//! the load is slow or has failed.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use forebay_core::{OriginFailure, Why};
use smallvec::SmallVec;

use crate::engine::Engine;
use crate::flight::load::LoadError;
use crate::flight::source::Source;
use crate::flight::{Flight, FlightResult};
use crate::lookup::{Arrival, Lookup, LookupResult, Miss, Outcome};
use crate::runtime::event::Event;
use crate::runtime::sync::timeout;

/// End of a wait.
pub(super) enum Waited<T> {
    Ended(T),
    /// The load is slow, and this stale entry may be served.
    Stale(Outcome),
}

/// Time after the start of a flight at which a stale entry is served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Patience {
    limit: Duration,
    /// Applies only while the flight waits for another instance.
    is_for_instances: bool,
}

impl Engine {
    /// Waits for the end of a flight. If a stale entry may be served, it waits no longer than the
    /// soft timeout, and no longer than it may wait for another instance. The flight continues.
    pub(super) async fn wait<T>(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
        flight: &Flight,
        end: impl Future<Output = T>,
    ) -> Waited<T> {
        let failure = OriginFailure::Unreachable(lookup.demand.stale_if_unreachable);
        let soft = lookup.demand.soft_timeout;
        let soft = soft.map(|limit| Patience { limit, is_for_instances: false });
        let joined = self.joined.as_ref();
        let instances =
            joined.map(|joined| Patience { limit: joined.wait_max, is_for_instances: true });
        let may_be_stale = || miss.fallback(failure, self.clock.now()).is_some();
        if (soft.is_none() && instances.is_none()) || !may_be_stale() {
            return Waited::Ended(end.await);
        }
        let mut limits: SmallVec<[_; 2]> = soft.into_iter().chain(instances).collect();
        limits.sort_unstable();
        let mut end = pin!(end);
        for Patience { limit, is_for_instances } in limits {
            let passed = self.clock.exact().saturating_sub(flight.started);
            if let Ok(ended) = timeout(limit.saturating_sub(passed), end.as_mut()).await {
                return Waited::Ended(ended);
            }
            if is_for_instances && !flight.waits_for_instance() {
                continue;
            }
            if let Some(outcome) = self.fallback(lookup, miss, failure, Why::SoftTimeout) {
                self.observer.observe(Event::SoftTimeout(lookup.key));
                return Waited::Stale(outcome);
            }
        }
        Waited::Ended(end.await)
    }

    /// Answers a follower from the result of its flight. `None` if it cannot use the result.
    pub(super) fn share(
        &self,
        lookup: &Lookup<'_>,
        miss: &mut Miss,
        result: FlightResult,
        arrival: Arrival,
    ) -> Option<Result<Outcome, LoadError>> {
        match result {
            FlightResult::Shared(entry, selection) => {
                let own = lookup.selection_of(&entry);
                if own != selection {
                    // Callers with the same fields have learned the same key, and meet under it.
                    miss.flight_key = own;
                    return None;
                }
                let why = Some(miss.why());
                let is_answer = self.answers(lookup, &entry, arrival);
                is_answer.then_some(Ok(Outcome { entry, source: Source::Followed, why }))
            }
            FlightResult::Failed(error) | FlightResult::OriginError(Some(error)) => {
                Some(self.fall_back(lookup, miss, error))
            }
            FlightResult::OriginError(None) => self.fallback_after_error(lookup, miss).map(Ok),
            FlightResult::Private | FlightResult::Abandoned => None,
        }
    }

    /// Returns a stale entry that may be served after a failed load, or else the error.
    pub(super) fn fall_back(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
        error: LoadError,
    ) -> Result<Outcome, LoadError> {
        let failure = error.trouble(lookup.demand);
        self.fallback(lookup, miss, failure, Why::LoadFailed).ok_or(error)
    }

    /// Returns a stale entry that may be served instead of an error response of the origin.
    pub(super) fn fallback_after_error(&self, lookup: &Lookup<'_>, miss: &Miss) -> Option<Outcome> {
        self.fallback(lookup, miss, OriginFailure::Failed, Why::LoadFailed)
    }

    /// Returns the stale entry of the lookup, or one that a lower tier or another load has brought
    /// since.
    pub(super) fn fallback(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
        failure: OriginFailure,
        why: Why,
    ) -> Option<Outcome> {
        let now = self.clock.now();
        let entry = miss.fallback(failure, now).or_else(|| match self.peek(lookup) {
            LookupResult::Hit(outcome) => Some(outcome.entry),
            LookupResult::Miss(again) => again.fallback(failure, now),
        })?;
        Some(Outcome { entry, source: Source::Fallback, why: Some(why) })
    }
}

//! Forecast of a request that memory does not answer. It changes nothing: it joins no flight, starts
//! no load, and requests no lease.

use std::time::Duration;

use forebay_core::{Verdict, Why};

use super::Alone;
use crate::engine::Engine;
use crate::fill::TierReport;
use crate::fill::inspect::Inquiry;
use crate::flight::load::LoadError;
use crate::flight::source::Source;
use crate::lookup::{Lookup, Miss, Outcome};

/// Course that [`Miss::load`] would take now.
#[derive(Clone, Debug)]
pub enum Forecast {
    /// The caller gets this stored entry without waiting.
    Served {
        /// Answer.
        outcome: Outcome,
        /// True if a load renews the entry meanwhile.
        is_renewed: bool,
    },
    /// The caller gets this error without a load.
    Failed(LoadError),
    /// The caller waits for a load that is under way.
    Follows(RunningLoad),
    /// The caller starts a load: it searches the lower tiers, then asks the origin.
    Loads {
        /// Reason why memory does not answer, or why the caller gets a load of its own.
        why: Why,
        /// True if no other caller shares the load.
        is_alone: bool,
    },
}

/// Load that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLoad {
    /// Number of callers that wait for it besides the one that started it.
    pub followers: usize,
    /// Time since its start.
    pub running: Duration,
    /// True if it waits for another instance, which holds the lease.
    pub waits_for_instance: bool,
}

impl Engine {
    /// Returns the course that a request takes if its load starts now.
    #[must_use]
    pub fn forecast(&self, lookup: &Lookup<'_>, miss: &Miss) -> Forecast {
        if let (Verdict::ServeThenRefresh(why), Some(entry)) = (miss.verdict, miss.prior.clone()) {
            let outcome = Outcome { entry, source: Source::Refreshing, why: Some(why) };
            let may_load = !lookup.demand.only_if_cached && !lookup.demand.no_store;
            let is_renewed = may_load && self.recent_failure(lookup, miss).is_none();
            return Forecast::Served { outcome, is_renewed };
        }
        if lookup.demand.only_if_cached {
            return Forecast::Failed(LoadError::NotCached);
        }
        if let Some(Alone { why, .. }) = self.must_load_alone(lookup) {
            return Forecast::Loads { why, is_alone: true };
        }
        match self.answer_in_back_off(lookup, miss) {
            Some(Ok(outcome)) => return Forecast::Served { outcome, is_renewed: false },
            Some(Err(error)) => return Forecast::Failed(error),
            None => {}
        }
        match self.running_load(lookup, miss) {
            Some(running) => Forecast::Follows(running),
            None => Forecast::Loads { why: miss.why(), is_alone: false },
        }
    }

    /// Reads the entry that a request selects in each lower tier, within the read limit of the
    /// tiers, for a report. A bypassed tier is not read.
    pub async fn inspect_tiers(&self, lookup: &Lookup<'_>) -> Vec<TierReport> {
        let Lookup { key, demand, select, .. } = *lookup;
        self.tier_reports(Inquiry { key, demand, select }).await
    }

    /// Returns the load under way that a request would wait for.
    #[must_use]
    pub fn running_load(&self, lookup: &Lookup<'_>, miss: &Miss) -> Option<RunningLoad> {
        let flight = self.flights.peek(self.join_request(lookup, miss, None))?;
        Some(RunningLoad {
            followers: flight.followers(),
            running: self.clock.exact().saturating_sub(flight.started),
            waits_for_instance: flight.waits_for_instance(),
        })
    }

    /// Returns the answer of a caller whose load fails with this error: a stale entry that may be
    /// served, or the error.
    ///
    /// # Errors
    /// `error`, if no stored entry may be served.
    pub fn answer_after(
        &self,
        lookup: &Lookup<'_>,
        miss: &Miss,
        error: LoadError,
    ) -> Result<Outcome, LoadError> {
        self.fall_back(lookup, miss, error)
    }
}

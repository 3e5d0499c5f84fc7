//! Requests that memory did not answer: following a flight, leading one, or loading alone.
//!
//! Ends with an entry, an error, or a stale fallback. This folder uses `engine`, `fill`, `flight`,
//! `lookup` and `runtime`; it never sees a tier, a lease or the body of an entry.

mod refresh;
mod wait;

use std::sync::Arc;

use forebay_core::Verdict;

use crate::engine::Engine;
use crate::flight::load::{Load, LoadError};
use crate::flight::via::Via;
use crate::lookup::{Ask, Look, Obtained, Wanting};

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
}

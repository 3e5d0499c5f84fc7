//! Refreshes behind an answer.

use std::sync::Arc;

use forebay_core::Demand;

use super::wait::keep_of;
use crate::engine::Engine;
use crate::fill::Keep;
use crate::fill::lower_lookup::{Purpose, Sought};
use crate::flight::load::Load;
use crate::flight::{Boarding, Landed};
use crate::lookup::{Ask, Wanting, selection_of};
use crate::runtime::event::Event;
use crate::runtime::sync::atomic::Ordering;
use crate::runtime::sync::spawn;

/// How many background refreshes may be under way at once. Beyond it, stale entries are served
/// without a refresh; a later caller starts it.
const REFRESHES_MAX: usize = 1_024;

/// A background refresh under way; dropping it makes room for another.
struct Refreshing(Arc<Engine>);

impl Refreshing {
    fn begin(engine: &Arc<Engine>) -> Option<Self> {
        let room = |count: usize| (count < REFRESHES_MAX).then_some(count + 1);
        let counter = &engine.refreshes;
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Self(engine.clone()))
    }
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.refreshes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Refreshes behind an answer; one flight per key, and a bound on all of them.
    pub(crate) fn refresh<L: Load>(self: &Arc<Self>, ask: &Ask<'_>, wanting: Wanting, load: L) {
        if self.recent_failure(ask, &wanting).is_some() {
            self.observer.observe(Event::HeldBack(ask.key));
            return;
        }
        let Some(refreshing) = Refreshing::begin(self) else {
            self.observer.observe(Event::RefreshSkipped(ask.key));
            return;
        };
        let Boarding::Lead(seat) = self.board(ask, &wanting, None) else { return };
        // As for every leader: somebody may have refreshed it since our look, or purged it.
        match self.current(ask) {
            Some(current) if wanting.is_about(&current) => {}
            Some(current) => {
                let selection = selection_of(ask, &current);
                seat.land(Landed::Shared(current, selection));
                return;
            }
            None => return,
        }
        load.departs();
        // A refresh is for everybody, whatever its caller demands.
        let sought = Sought { demand: Demand::default(), purpose: Purpose::Refresh };
        let keep = Keep { sought: Some(sought), ..keep_of(ask, &wanting) };
        let flight = self.clone().fly((seat, keep, None), wanting.prior, load);
        spawn(async move {
            flight.await;
            drop(refreshing);
        });
    }
}

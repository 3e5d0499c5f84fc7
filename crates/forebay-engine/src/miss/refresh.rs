//! Refreshes in the background, after an answer.

use std::sync::Arc;

use forebay_core::Demand;

use crate::engine::Engine;
use crate::fill::lower_lookup::{Purpose, TierDemand};
use crate::fill::{FillRules, Leading};
use crate::flight::Role;
use crate::flight::load::Load;
use crate::lookup::{Lookup, Miss};
use crate::runtime::event::Event;
use crate::runtime::sync::atomic::Ordering;
use crate::runtime::sync::spawn;

/// Maximum number of background refreshes. Beyond it, stale entries are served without a refresh; a
/// later request starts it.
const REFRESHES_MAX: usize = 1_024;

/// Background refresh in progress; dropping it allows another.
struct Refreshing(Arc<Engine>);

impl Refreshing {
    fn begin(engine: &Arc<Engine>) -> Option<Self> {
        let free = |count: usize| (count < REFRESHES_MAX).then_some(count + 1);
        let counter = &engine.refreshes;
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
        Some(Self(engine.clone()))
    }
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        self.0.refreshes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Starts a refresh, at most one per key, within the bound on all of them.
    pub(super) fn refresh<L: Load>(self: &Arc<Self>, lookup: &Lookup<'_>, miss: Miss, load: L) {
        if self.recent_failure(lookup, &miss).is_some() {
            self.observer.observe(Event::BackingOff(lookup.key));
            return;
        }
        let Some(refreshing) = Refreshing::begin(self) else {
            self.observer.observe(Event::RefreshSkipped(lookup.key));
            return;
        };
        let request = self.join_request(lookup, &miss, None);
        let Role::Lead(leader) = self.flights.join(request, || self.log.position()) else {
            return;
        };
        // As for every leader: a load or a purge may have come since the lookup.
        match self.current(lookup) {
            Some(current) if miss.is_about(&current) => {}
            Some(current) => return leader.announce(lookup.shared(&current)),
            None => return,
        }
        // A refresh is for all callers, whatever this one demands.
        let tiers = TierDemand { demand: Demand::default(), purpose: Purpose::Refresh };
        let rules = FillRules { tiers: Some(tiers), ..miss.rules(lookup) };
        if let Some(part) = load.batch() {
            part.starts();
        }
        let (engine, options) = (self.clone(), load.options());
        let leading = Leading { engine, leader, rules, load, options, reply: None };
        spawn(async move {
            Box::pin(leading.run(miss.prior)).await;
            drop(refreshing);
        });
    }
}

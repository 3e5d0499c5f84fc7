//! What other instances tell, and what follows from hearing nothing.

use std::sync::{Arc, Weak};

use forebay_core::{KeyRef, Purge, Reach};

use crate::Engine;
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::tiers::bus::{Bookmark, Listener, Notice};

/// An engine, as the bus knows it: it does not keep it alive.
pub(crate) struct Ear(Weak<Engine>);

impl Ear {
    pub(crate) fn of(engine: &Arc<Engine>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(engine)))
    }
}

impl Listener for Ear {
    fn hear(&self, notice: Notice) {
        if let Some(engine) = self.0.upgrade() {
            engine.hear(notice);
        }
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.0.upgrade()?.lower.bookmark()
    }
}

impl Engine {
    fn hear(self: &Arc<Self>, notice: Notice) {
        let now = self.clock.now();
        match notice {
            Notice::Purged { what, reach } => self.hear_purge(what, reach),
            Notice::Outdated { key, newer } => self.hear_version(&Purge::Key(key), newer),
            Notice::Gap => {
                self.following.broke();
                self.change_suspicion(|bus_trust, at| bus_trust.gap(at, now));
                self.observer.observe(Event::BusGap);
            }
            Notice::Lost => {
                self.change_suspicion(|bus_trust, at| bus_trust.lost(at, now));
                self.observer.observe(Event::BusLost);
            }
            Notice::Heard => {
                self.change_suspicion(|bus_trust, _| bus_trust.heard());
                self.observer.observe(Event::BusHeard);
                self.hear_first_word();
            }
            Notice::Reached(bookmark) => self.reached(bookmark),
        }
    }

    /// Flights and memory at once, tiers of this instance behind everybody's back: what departs
    /// meanwhile does not look there. What is shared was purged by who has published.
    fn hear_purge(self: &Arc<Self>, what: Purge, reach: Reach) {
        self.watches.note(&what);
        self.observer.observe(Event::Noticed(what.kind()));
        match &what {
            Purge::Key(key) => self.hear_purge_of_key(key.borrowed(), reach),
            _ => {
                let carrying_out = self.note(&what, reach);
                if !self.lower.any_of_its_own() {
                    carrying_out.end(true);
                } else {
                    let engine = self.clone();
                    spawn(async move { carrying_out.end(engine.lower.keep(&what, true).await) });
                }
            }
        }
    }

    fn hear_purge_of_key(self: &Arc<Self>, key: KeyRef<'_>, reach: Reach) {
        if !self.lower.any_of_its_own() {
            self.flights.cut(key, || self.purge_memory(key, reach));
            return;
        }
        let (purging, _) = self.flights.purging(key, || self.purge_memory(key, reach));
        let (engine, carrying_out) = (self.clone(), self.following.begin());
        spawn(async move {
            purging.settled().await;
            let removed = engine.lower.remove_its_own(purging.primary()).await;
            carrying_out.end(removed.is_some());
        });
    }
}

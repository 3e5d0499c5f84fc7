//! Messages of other instances: purges, versions, and interruptions of the bus.

use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_core::{KeyRef, Purge, Reach};
use tokio::time::sleep;

use crate::engine::Engine;
use crate::memory::Limits;
use crate::purge_log::cluster::Cluster;
use crate::runtime::clock::Clock;
use crate::runtime::event::{Event, Observer};
use crate::runtime::sync::spawn;
use crate::tiers::bus::{Bookmark, Listener, Notice};
use crate::tiers::setup::TierSetup;

/// Shortest interval between two recorded bookmarks. Purges of that interval are applied once more
/// after a restart.
const BOOKMARK_INTERVAL: Duration = Duration::from_millis(250);

/// Receiver of the bus for one engine, which it does not keep alive.
struct BusReceiver(Weak<Engine>);

impl Listener for BusReceiver {
    fn hear(&self, notice: Notice) {
        if let Some(engine) = self.0.upgrade() {
            engine.receive(notice);
        }
    }

    fn bookmark(&self) -> Option<Bookmark> {
        self.0.upgrade()?.lower.bookmark()
    }
}

impl Engine {
    /// Creates an engine that shares one of its `tiers` with other instances, and exchanges leases
    /// and purges with them.
    #[must_use]
    pub fn clustered<T: Into<TierSetup>>(
        limits: Limits,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        tiers: Vec<T>,
        cluster: Cluster,
    ) -> Arc<Self> {
        let bus = cluster.bus.clone();
        let engine = Arc::new(Self::build(limits, clock, observer, tiers, Some(cluster)));
        bus.listen(Arc::new(BusReceiver(Arc::downgrade(&engine))));
        engine
    }

    fn receive(self: &Arc<Self>, notice: Notice) {
        let now = self.clock.now();
        match notice {
            Notice::Purged { what, reach } => self.receive_purge(what, reach),
            Notice::Outdated { key, newer } => self.receive_version(&Purge::Key(key), newer),
            Notice::Gap => {
                self.log.progress.note_gap();
                self.log.change_trust(|bus_trust, at| bus_trust.gap(at, now));
                self.observer.observe(Event::BusGap);
            }
            Notice::Disconnected => {
                self.log.change_trust(|bus_trust, at| bus_trust.lost(at, now));
                self.observer.observe(Event::BusDisconnected);
            }
            Notice::Connected => {
                self.log.change_trust(|bus_trust, _| bus_trust.heard());
                self.observer.observe(Event::BusConnected);
                if let Some(joined) = &self.joined {
                    joined.has_reported();
                }
            }
            Notice::Reached(bookmark) => {
                if self.lower.any_of_its_own() && self.log.progress.reached(bookmark) {
                    spawn(record_bookmarks(Arc::downgrade(self)));
                }
            }
        }
    }

    /// Applies a purge of another instance: to flights and memory at once, to the tiers of this
    /// instance in the background; loads that start meanwhile do not look there. The publishing
    /// instance has purged the shared tiers.
    fn receive_purge(self: &Arc<Self>, what: Purge, reach: Reach) {
        self.log.note_for_watches(&what);
        self.observer.observe(Event::PurgeReceived(what.kind()));
        match &what {
            Purge::Key(key) => self.receive_purge_of_key(key.borrowed(), reach),
            _ => {
                let in_progress = self.record(&what, reach);
                if !self.lower.any_of_its_own() {
                    in_progress.end(true);
                } else {
                    let engine = self.clone();
                    spawn(async move {
                        in_progress.end(engine.lower.keep(&what, reach, true).await);
                    });
                }
            }
        }
    }

    fn receive_purge_of_key(self: &Arc<Self>, key: KeyRef<'_>, reach: Reach) {
        self.sample_purge(key, false);
        if !self.lower.any_of_its_own() {
            self.flights.purge(key, || self.purge_memory(key, reach));
            return;
        }
        let (purging, _) = self.flights.begin_purge(key, || self.purge_memory(key, reach));
        let reach = self.reach_below(reach);
        let (engine, in_progress) = (self.clone(), self.log.progress.begin());
        spawn(async move {
            purging.committed().await;
            let purged = engine.lower.purge_its_own(purging.primary(), reach).await;
            in_progress.end(purged.is_some());
        });
    }

    /// Waits until the tiers of this instance have applied all purges that were received, and
    /// stores the bus position in them. Call it before closing the tiers: otherwise the next
    /// process receives some purges once more, which does no harm.
    pub async fn settle(&self) {
        self.record_bookmark().await;
    }

    /// Records the newest bookmark. Returns `false` if there is none.
    async fn record_bookmark(&self) -> bool {
        let progress = &self.log.progress;
        let Some(pending) = progress.next() else { return false };
        progress.carried_out(pending.behind).await;
        let chain = progress.take_chain();
        if !self.lower.keep_bookmark(&pending.bookmark, chain).await {
            progress.put_back(pending, chain);
        }
        true
    }
}

/// Records bookmarks until there is none left, or the engine is dropped.
async fn record_bookmarks(engine: Weak<Engine>) {
    loop {
        let Some(engine) = engine.upgrade() else { return };
        if !engine.record_bookmark().await {
            return;
        }
        drop(engine);
        sleep(BOOKMARK_INTERVAL).await;
    }
}

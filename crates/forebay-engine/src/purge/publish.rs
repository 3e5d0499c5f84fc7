//! Publication of purges to other instances, at once or, if that fails, later.

use std::sync::{Arc, Weak};

use forebay_core::{Dice, Purge, Reach, pace};
use tokio::time::sleep;

use crate::engine::Engine;
use crate::purge_log::cluster::BusStatus;
use crate::purge_log::unpublished::Pending;
use crate::runtime::clock::ThreadDice;
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::tiers::bus::Published;
use crate::tiers::catch_panic::caught;
use crate::tiers::error::TierError;

/// Result of a purge on this instance, and of its publication to other instances.
#[derive(Clone, Debug)]
pub struct Purged {
    /// `true` if the purge affected a stored entry. Always `true` for purges that name no single
    /// key, because their entries are not counted.
    pub found: bool,
    /// Says whether other instances know of the purge.
    pub propagation: Propagation,
}

/// Knowledge that other instances have of a purge.
#[derive(Clone, Debug)]
pub enum Propagation {
    /// This engine shares no tier with other instances.
    None,
    /// The purge is published: every connected instance applies it within the delay of the bus.
    Published(Published),
    /// Publishing failed with this error, so other instances may still serve purged entries. The
    /// engine retries while the process runs, in the order of the purges. If more than 1,000 wait,
    /// one purge of everything replaces them.
    Pending(TierError),
}

impl Purged {
    /// Combines the results of two purges: something was found if either found something, and other
    /// instances know only if they know of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let found = self.found || other.found;
        let propagation = match (self.propagation, other.propagation) {
            (later @ Propagation::Pending(_), _) | (_, later @ Propagation::Pending(_)) => later,
            (Propagation::None, told) | (told, Propagation::None) => told,
            (Propagation::Published(one), Propagation::Published(other)) => {
                // The later one of a bus stands for both; instances start and end meanwhile.
                let instances = one.instances.min(other.instances);
                Propagation::Published(Published { instances, ..other })
            }
        };
        Self { found, propagation }
    }

    pub(super) fn new(found: bool, propagation: Propagation) -> Self {
        let elsewhere =
            matches!(&propagation, Propagation::Published(published) if published.found);
        Self { found: found || elsewhere, propagation }
    }
}

impl Engine {
    /// Returns the state of the bus, which carries purges between instances. `None` if this engine
    /// shares no bus.
    #[must_use]
    pub fn bus_status(&self) -> Option<BusStatus> {
        let joined = self.joined.as_ref()?;
        let unpublished = joined.unpublished.count();
        Some(BusStatus { connected: !self.log.is_blind(), unpublished })
    }

    /// Publishes a purge, which removes shared entries and tells other instances.
    pub(crate) async fn publish(self: &Arc<Self>, what: &Purge, reach: Reach) -> Propagation {
        match self.try_publish(what, reach).await {
            None => Propagation::None,
            Some(Ok(published)) => Propagation::Published(published),
            Some(Err(error)) => {
                self.publish_later(what, reach);
                Propagation::Pending(error)
            }
        }
    }

    async fn try_publish(
        &self,
        what: &Purge,
        reach: Reach,
    ) -> Option<Result<Published, TierError>> {
        let joined = self.joined.as_ref()?;
        Some(caught(|| joined.bus.publish(what, reach)).await)
    }

    /// Queues a purge whose publication failed.
    pub(super) fn publish_later(self: &Arc<Self>, what: &Purge, reach: Reach) {
        let Some(joined) = &self.joined else { return };
        self.observer.observe(Event::PublishFailed(what.kind()));
        if let Purge::Key(key) = what {
            self.lower.owe_shared(key.borrowed());
        }
        if joined.unpublished.add(what, reach) {
            spawn(publish_queue(Arc::downgrade(self)));
        }
    }

    /// Publishes the queue. Returns `true` if it is empty.
    async fn publish_pending(&self) -> bool {
        let Some(joined) = &self.joined else { return true };
        while let Some(Pending { number, what, reach }) = joined.unpublished.next() {
            let Some(Ok(_)) = self.try_publish(&what, reach).await else { return false };
            self.record_again(&what, reach).await;
            joined.unpublished.done(number);
        }
        true
    }
}

/// Publishes the queue with back-off, until it is empty or the engine is dropped.
async fn publish_queue(engine: Weak<Engine>) {
    let mut failed = 1_u32;
    loop {
        failed = failed.saturating_add(1);
        sleep(pace::back_off(failed, ThreadDice.unit())).await;
        let Some(engine) = engine.upgrade() else { return };
        if engine.publish_pending().await {
            return;
        }
    }
}

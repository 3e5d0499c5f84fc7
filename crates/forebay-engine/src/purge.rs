//! Purges: what is stored goes or becomes stale, and what is on its way is not stored.

pub(crate) mod publish;
pub(crate) mod receive;
pub(crate) mod version;

use std::sync::Arc;

use forebay_core::{KeyRef, Lifetime, Position, Purge, Reach, Recorded};
use futures_util::future::join;

use crate::Engine;
use crate::entry::Entry;
use crate::purge::publish::{Purged, Told};
use crate::purge_log::bus_progress::CarryingOut;
use crate::runtime::event::Event;
use crate::runtime::sync::spawn;
use crate::tiers::tier::TierError;

impl Engine {
    /// Purges. When it returns, no caller that comes later is given what it reached (soft: not
    /// as fresh). Other instances are told; the answer says whether they know.
    ///
    /// It takes as long as lower tiers and the bus need, within the bounds of their operations.
    /// Once begun it is carried out, even if nobody waits for it any more.
    pub async fn purge(self: &Arc<Self>, what: &Purge, reach: Reach) -> Purged {
        self.watches.note(what);
        let purged = match what {
            Purge::Key(key) => self.purge_key(key.borrowed(), reach).await,
            _ => self.purge_many(what, reach).await,
        };
        self.observer.observe(Event::Purged(what.kind()));
        purged
    }

    /// What departs while others are told may read from a shared tier what is about to be purged
    /// there, so the purge is noted once more when that is done.
    async fn purge_many(self: &Arc<Self>, what: &Purge, reach: Reach) -> Purged {
        let carrying_out = self.note(what, reach);
        if self.lower.is_empty() && self.joined.is_none() {
            carrying_out.end(true);
            return Purged::new(true, Told::Nobody);
        }
        let (engine, what) = (self.clone(), what.clone());
        let telling = spawn(async move {
            let keeping = async {
                let kept = engine.lower.keep(&what, engine.joined.is_some()).await;
                carrying_out.end(kept);
            };
            let ((), told) = join(keeping, engine.tell(&what, reach)).await;
            if !matches!(told, Told::Nobody) {
                engine.note_again(&what, reach).await;
            }
            told
        });
        Purged::new(true, telling.await.unwrap_or_else(ended))
    }

    /// What a purge has reached by now that was noted before: what was read from a shared tier
    /// while the others were told may be in the tiers of this instance, too.
    pub(crate) async fn note_again(&self, what: &Purge, reach: Reach) {
        if !matches!(what, Purge::Key(_)) {
            let carrying_out = self.note(what, reach);
            carrying_out.end(self.lower.keep(what, true).await);
        }
    }

    /// Writes the purge into the record. The position is published last: a load that departs
    /// with the new position asks an origin that already knew better.
    ///
    /// What is given back is over once the tiers below have it, too.
    pub(crate) fn note(&self, what: &Purge, reach: Reach) -> CarryingOut {
        let now = self.clock.now();
        let mut purges = self.purges.write();
        if matches!(what, Purge::Prefix { .. }) {
            purges.retire_prefixes(now.minus(self.longest_lifetime()));
        }
        let before = purges.newest();
        let at = before.next();
        purges.note(what, reach, at, now);
        let carrying_out = self.following.begin_noted((before, at));
        self.stand_at(at);
        drop(purges);
        if reach == Reach::Hard {
            self.cut_short(what, at);
        }
        carrying_out
    }

    /// Flights that are known to bring what was just purged are not to be waited for. Of tags
    /// only the answer tells, so there it is the followers who find out when it lands.
    fn cut_short(&self, what: &Purge, at: Position) {
        if !matches!(what, Purge::Tag(_)) {
            self.flights.cut_where(|flight| {
                flight.position < at && what.is_about(flight.primary().borrowed())
            });
        }
    }

    /// First the flights and memory, then the lower tiers.
    ///
    /// 1. Under one lock, flights are cut and memory is purged: a flight that lands later is
    ///    refused, one that landed before is found. Who departs from here on does not look into
    ///    lower tiers, or it could bring back what is about to be removed there.
    /// 2. What the flights are committing to lower tiers is waited for.
    /// 3. The lower tiers are purged; those that are shared by telling the others.
    async fn purge_key(self: &Arc<Self>, key: KeyRef<'_>, reach: Reach) -> Purged {
        if self.lower.is_empty() && self.joined.is_none() {
            let found = self.flights.cut(key, || self.purge_memory(key, reach));
            return Purged::new(found, Told::Nobody);
        }
        let (purging, found) = self.flights.purging(key, || self.purge_memory(key, reach));
        let (engine, carrying_out) = (self.clone(), self.following.begin());
        let removing = spawn(async move {
            purging.settled().await;
            let key = purging.primary();
            if engine.joined.is_none() {
                return (engine.lower.remove(key).await, Told::Nobody);
            }
            let purge = Purge::Key(key.to_key());
            let removing = async {
                let removed = engine.lower.remove_its_own(key).await;
                carrying_out.end(removed.is_some());
                removed.unwrap_or(false)
            };
            join(removing, engine.tell(&purge, reach)).await
        });
        // The task does not panic; it can only end early with the runtime itself.
        let (below, told) = removing.await.unwrap_or_else(|error| (false, ended(error)));
        Purged::new(found | below, told)
    }

    /// A lower tier only removes: a softened entry stays in memory alone.
    pub(crate) fn purge_memory(&self, key: KeyRef<'_>, reach: Reach) -> bool {
        match (reach, self.memory.get(key)) {
            (Reach::Soft, Some(entry)) => {
                self.memory.put(key.to_key(), Arc::new(softened(&entry, self)));
                true
            }
            // Variants cannot be listed. Removing what names them leaves all of them behind.
            _ => self.memory.remove(key),
        }
    }

    /// How many purges are on record that name no single key: each entry that is older than the
    /// newest of them is compared with them.
    #[must_use]
    pub fn purges_on_record(&self) -> Recorded {
        self.purges.read().recorded()
    }
}

/// A purge whose task has ended early.
fn ended(error: impl std::error::Error + Send + Sync + 'static) -> Told {
    Told::Later(TierError::failed(error))
}

/// The same entry, stale from now on.
fn softened(entry: &Entry, engine: &Engine) -> Entry {
    let age = entry.meta.age(engine.clock.now());
    let lifetime = entry.meta.lifetime();
    let fresh = lifetime.fresh.min(age);
    let mut meta = entry.meta.clone();
    meta.set_lifetime(Lifetime { fresh, ..lifetime });
    entry.with_meta(meta).softened()
}

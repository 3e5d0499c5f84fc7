//! Purges: what is stored goes or becomes stale, and what is on its way is not stored.

use std::sync::Arc;

use forebay_core::{KeyRef, Lifetime, Position, Purge, Reach};

use crate::Engine;
use crate::entry::Entry;
use crate::event::Event;
use crate::sync::atomic::Ordering;
use crate::sync::spawn;

impl Engine {
    /// Purges. When it returns, no caller that comes later is given what it reached (soft: not
    /// as fresh). `false` if a purge of one key found nothing stored.
    ///
    /// A purge of one key takes as long as its lower tiers need to be rid of it, within the bounds
    /// of their operations. Once begun it is carried out, even if nobody waits for it any more.
    pub async fn purge(self: &Arc<Self>, what: &Purge, reach: Reach) -> bool {
        self.watches.note(what);
        let found = match what {
            Purge::Key(key) => self.purge_key(key.borrowed(), reach).await,
            _ => {
                let found = self.note(what, reach);
                self.keep(what).await;
                found
            }
        };
        self.observer.observe(Event::Purged(what.kind()));
        found
    }

    /// Has tiers that outlive the process remember a purge of many. What is begun there from now on
    /// is newer than it, or has departed before and is not committed.
    async fn keep(self: &Arc<Self>, what: &Purge) {
        if self.lower.is_empty() {
            return;
        }
        let (engine, what) = (self.clone(), what.clone());
        let keeping = spawn(async move { engine.lower.keep(&what).await });
        // The task does not panic; it can only end early with the runtime itself.
        let _ = keeping.await;
    }

    /// Writes the purge into the record. The position is published last: a load that departs
    /// with the new position asks an origin that already knew better.
    fn note(&self, what: &Purge, reach: Reach) -> bool {
        let mut purges = self.purges.write();
        let at = purges.newest().next();
        purges.note(what, reach, (at, self.clock.now()));
        self.position.store(at.number(), Ordering::Release);
        drop(purges);
        if reach == Reach::Hard {
            self.cut_short(what, at);
        }
        true
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
    /// 3. The lower tiers are purged.
    async fn purge_key(self: &Arc<Self>, key: KeyRef<'_>, reach: Reach) -> bool {
        if self.lower.is_empty() {
            return self.flights.cut(key, || self.purge_memory(key, reach));
        }
        let (purging, found) = self.flights.purging(key, || self.purge_memory(key, reach));
        let engine = self.clone();
        let removing = spawn(async move {
            purging.settled().await;
            engine.lower.remove(purging.primary()).await
        });
        // The task does not panic; it can only end early with the runtime itself.
        found | removing.await.unwrap_or(false)
    }

    /// A lower tier only removes: a softened entry stays in memory alone.
    fn purge_memory(&self, key: KeyRef<'_>, reach: Reach) -> bool {
        match (reach, self.memory.get(key)) {
            (Reach::Soft, Some(entry)) => {
                self.memory.put(key.to_key(), Arc::new(softened(&entry, self)));
                true
            }
            // Variants cannot be listed. Removing what names them leaves all of them behind.
            _ => self.memory.remove(key),
        }
    }

    /// Where the log of purges stands.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        Position::new(self.position.load(Ordering::Acquire))
    }
}

/// The same entry, stale from now on.
fn softened(entry: &Entry, engine: &Engine) -> Entry {
    let age = entry.meta.age(engine.clock.now());
    let fresh = entry.meta.lifetime.fresh.min(age);
    let mut meta = entry.meta.clone();
    meta.lifetime = Lifetime { fresh, ..meta.lifetime };
    entry.with_meta(meta).softened()
}

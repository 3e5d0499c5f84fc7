//! Purges: what is stored goes or becomes stale, and what is on its way is not stored.

use std::sync::atomic::Ordering;

use forebay_core::{Key, KeyRef, Lifetime, Position, Purge, Reach};

use crate::Engine;
use crate::entry::Entry;
use crate::event::Event;

impl Engine {
    /// Purges. When it returns, no caller that comes later is given what it reached (soft: not
    /// as fresh). `false` if a purge of one key found nothing stored.
    pub fn purge(&self, what: &Purge, reach: Reach) -> bool {
        let found = match what {
            Purge::Key(key) => self.purge_key(key.borrowed(), reach),
            _ => self.note(what, reach),
        };
        self.observer.observe(Event::Purged(what.kind()));
        found
    }

    /// Writes the purge into the record. The position is published last: a load that departs
    /// with the new position asks an origin that already knew better.
    fn note(&self, what: &Purge, reach: Reach) -> bool {
        let mut purges = self.purges.write();
        let at = purges.newest().next();
        purges.note(what, reach, at);
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
        let in_site = |key: &Key| match what {
            Purge::Site(site) => key.borrowed().namespace() == site.as_bytes(),
            Purge::All => true,
            Purge::Tag(_) | Purge::Key(_) => false,
        };
        if !matches!(what, Purge::Tag(_)) {
            self.flights.cut_where(|flight| flight.position < at && in_site(flight.primary()));
        }
    }

    /// The flights and the store under one lock: a flight that lands later is refused, one that
    /// landed before is found.
    fn purge_key(&self, key: KeyRef<'_>, reach: Reach) -> bool {
        self.flights.cut(key, || match (reach, self.memory.get(key)) {
            (Reach::Soft, Some(entry)) => {
                self.memory.put(key.to_key(), std::sync::Arc::new(softened(&entry, self)));
                true
            }
            // Variants cannot be listed. Removing what names them leaves all of them behind.
            _ => self.memory.remove(key),
        })
    }

    /// Where the log of purges stands.
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
    Entry { softened: true, ..entry.with_meta(meta) }
}

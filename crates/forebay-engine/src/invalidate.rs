//! Purges: what is stored goes or becomes stale, and what is on its way is not stored.

use std::sync::atomic::Ordering;

use forebay_core::{KeyRef, Lifetime, Position, Purge, Reach};

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
        true
    }

    /// First the flights, then the store: a flight that lands in between is refused, one that
    /// landed before is found.
    fn purge_key(&self, key: KeyRef<'_>, reach: Reach) -> bool {
        self.flights.cut(key);
        match (reach, self.memory.get(key)) {
            (Reach::Soft, Some(entry)) => {
                self.memory.put(key.to_key(), std::sync::Arc::new(softened(&entry, self)));
                true
            }
            // Variants cannot be listed. Removing what names them leaves all of them behind.
            _ => self.memory.remove(key),
        }
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
    entry.with_meta(meta)
}

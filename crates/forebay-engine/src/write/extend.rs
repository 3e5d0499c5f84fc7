//! Entries whose lifetime grows with each use.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Lifetime};

use crate::engine::Engine;
use crate::entry::Entry;

impl Engine {
    /// Sets the freshness lifetime of an entry in memory to `fresh`, counted from its age zero.
    /// Changes memory only, and only if it still holds this entry; otherwise returns `false`.
    pub fn extend(&self, key: KeyRef<'_>, entry: &Arc<Entry>, fresh: Duration) -> bool {
        let mut meta = entry.meta.clone();
        meta.set_lifetime(Lifetime { fresh, ..meta.lifetime() });
        let extended = Arc::new(entry.with_meta(meta));
        self.flights.locked(key, || {
            let is_stored = self.memory.get(key).is_some_and(|stored| Arc::ptr_eq(&stored, entry));
            if is_stored {
                self.memory.put(key.to_key(), extended);
            }
            is_stored
        })
    }
}

//! Entries whose lifetime grows while they are used.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{KeyRef, Lifetime};

use crate::engine::Engine;
use crate::entry::Entry;

impl Engine {
    /// Lets an entry be fresh for this long from its birth on; in memory alone, and only if this
    /// very entry stands there still. `false` if it does not.
    pub fn extend(&self, key: KeyRef<'_>, entry: &Arc<Entry>, fresh: Duration) -> bool {
        let mut meta = entry.meta.clone();
        meta.set_lifetime(Lifetime { fresh, ..meta.lifetime() });
        let extended = Arc::new(entry.with_meta(meta));
        self.flights.excluding(key, || {
            let stands = self.memory.get(key).is_some_and(|stored| Arc::ptr_eq(&stored, entry));
            if stands {
                self.memory.put(key.to_key(), extended);
            }
            stands
        })
    }
}
